"""What an error says when the value cannot be printed, is too long, or raises an error of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import gpuinterop as gi


def test_an_interrupt_in_a_slice_passes():
    class Stop:
        def __index__(self):
            raise KeyboardInterrupt("mine")

    with pytest.raises(KeyboardInterrupt, match=r"^mine$"):
        gi.zeros(3)[: Stop()]


def test_a_keyword_device_is_no_part_of_the_shape():
    if gi.default_device().type == "cpu":
        with pytest.raises(gi.DeviceError) as caught:
            gi.zeros(3, device=0)
        assert "shape" not in caught.value.fix
    with pytest.raises(gi.DeviceError, match=r"\(3, 99\)"):
        gi.CudaNdarray.zeros(3, 99)


def test_lists_too_deep_are_not_called_ragged():
    nested = [1.0]
    for _ in range(70):
        nested = [nested]
    with pytest.raises(gi.ShapeError) as caught:
        gi.asarray(nested)
    assert "pad" not in caught.value.fix


@pytest.mark.parametrize(("key", "axis"), [((0, 7), 1), (7, 0), ((..., -9), 1)])
def test_an_index_out_of_range_tells_its_axis(key, axis):
    with pytest.raises(gi.ArrayIndexError) as caught:
        gi.zeros((3, 4))[key]
    assert caught.value.axis == axis


NO_ARRAYS = (5, 1 + 2j, "a", None, [1, 2], (1,), {}, object(), type, len)


@pytest.mark.parametrize("library", gi.converters.names())
def test_converters_called_with_no_array(library):
    options = {"xp": np} if library == "array_api" else {}
    for wrong in NO_ARRAYS:
        for call in (
            lambda wrong=wrong: getattr(gi.converters, f"to_{library}")(wrong, **options),
            lambda wrong=wrong: getattr(gi.converters, f"from_{library}")(wrong),
            lambda wrong=wrong: gi.to(wrong, library, **options),
        ):
            with pytest.raises((gi.ConversionTypeError, gi.ProtocolError)) as caught:
                call()
            assert caught.value.expected
            assert caught.value.got
            assert caught.value.fix


def test_a_dtype_in_words_is_the_cast_that_was_asked_for():
    x = gi.CudaNdarray(np.array([1.5, 2.5]), dtype="float32", device="cpu")
    assert (x.dtype, x.tolist()) == (np.float32, [1.5, 2.5])
    assert gi.arange(2**24, 2**24 + 2, dtype="float32", device="cpu").tolist() == [2**24, 2**24]
    assert gi.arange(2**24, 2**24 + 2, dtype="int64", device="cpu").tolist()[1] == 2**24 + 1
    assert x.view("float32").ptr == x.view().ptr == x.ptr


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [Unprintable(), [10**5000]])
def test_what_cannot_be_shown_does_not_hide_what_is_wrong(value):
    x = gi.zeros((2, 3))
    for call in (lambda: x.squeeze(value), lambda: x.item(value), lambda: gi.device(value),
                 lambda: x.dimshuffle(value), lambda: gi.from_gpu_pointer(value, 3)):  # fmt: skip
        with pytest.raises(gi.GpuInteropError) as told:
            call()
        assert "fix: " in str(told.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_a_sequence_raises_itself_is_not_hidden(error):
    class Extents(list):
        def __iter__(self):
            raise error("from within")

    for call in (gi.zeros, gi.zeros(6).reshape, gi.zeros(6).broadcast_to):
        with pytest.raises(error, match="from within"):
            call(Extents((2, 3)))


class Wordy:
    """Tells more about itself than a message has room for, and not in ASCII."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text

    def __dlpack__(self, **options):
        raise BufferError(self.text)

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("character", "é中😀")
def test_long_words_are_cut_between_characters(character, before):
    wordy = Wordy("a" * before + character * 200)
    with pytest.raises(gi.ExchangeError, match=rf"BufferError: a{{{before}}}{character}+\.\.\."):
        gi.from_dlpack(wordy)


def product(text):
    return gi.MapReduce(text, lambda x, e: (x[0].sum(-1),))(gi.zeros(3, device="cpu"))


HUGE = {
    "device": lambda: gi.device("cuda:" + "9" * 5000),
    "a number as an operand with a dtype": lambda: gi.exp(10**5000, dtype="float32"),
    "an operand's number": lambda: product("x0 * x99999999"),
    "more digits": lambda: product("x" + "9" * 5000),
}


@pytest.mark.parametrize("name", HUGE)
def test_numbers_of_many_digits_are_refused_in_words(name):
    with pytest.raises(gi.GpuInteropError) as caught:
        HUGE[name]()
    assert len(str(caught.value)) < 1000


def test_lgamma_of_64_dimensions():
    x = gi.full((1,) * 64, 3.0, device="cpu")
    assert gi.lgamma(x).ndim == 64


def test_a_path_that_is_not_utf8_is_shown():
    program = "import gpuinterop as gi; gi.zeros(3, device='cuda')"
    env = {**os.environb, b"PYTHONIOENCODING": b"utf-8", b"GPUINTEROP_LIBCUDA": b"/nowhere/\xff.so"}
    run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=60)
    assert b"DeviceError" in run.stderr
    assert rb"/nowhere/\xff.so" in run.stderr

"""Slips of a first hour: each is an error of this library that says what to write instead."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi

MASKED = np.ma.array([1.0, 2.0], mask=[False, True], dtype="float32")

SLIPS = {
    "order": (lambda: gi.empty(3, order="K"), gi.ShapeError),
    "like a number": (lambda: gi.zeros_like(3), gi.ArgumentTypeError),
    "like a list": (lambda: gi.full_like([1, 2], 0), gi.ArgumentTypeError),
    "step 0": (lambda: gi.arange(0, 3, 0), gi.ShapeError),
    "range of text": (lambda: gi.arange("a"), gi.ShapeError),
    "get into a number": (lambda: gi.zeros(3).get(3), gi.ArgumentTypeError),
    "shape set": (lambda: setattr(gi.zeros(3), "shape", (3, 1)), gi.UnsupportedError),
    "masked, copied": (lambda: gi.CudaNdarray(MASKED), gi.UnsupportedError),
    "masked, shared": (lambda: gi.asarray(MASKED), gi.UnsupportedError),
    "masked, assigned": (lambda: gi.zeros(2).__setitem__(..., MASKED), gi.UnsupportedError),
    "memory of a number": (lambda: gi.shares_memory(gi.zeros(3), 3), gi.ConversionTypeError),
    "dtype of a CudaNdarray": (lambda: gi.CudaNdarray([1], dtype="int32"), gi.DTypeError),
    "dtype of a view": (lambda: gi.zeros(3).view("int32"), gi.UnsupportedError),
    "offset of a diagonal": (lambda: gi.eye(3, k="a"), gi.ArgumentTypeError),
    "item of text": (lambda: gi.zeros((2, 2)).item("a"), gi.ArgumentTypeError),
    "negative extent": (lambda: gi.zeros(-1), gi.ShapeError),
    "too many elements": (lambda: gi.ones(1 << 62), gi.ShapeError),
    "full of text": (lambda: gi.full((2,), "a"), gi.ConversionTypeError),
    "full of nothing": (lambda: gi.full((2,), None), gi.ConversionTypeError),
    "like, full of text": (lambda: gi.full_like(gi.zeros(2), "a"), gi.ConversionTypeError),
    "range to None": (lambda: gi.arange(None), gi.ShapeError),
    "range that float32 rounds": (lambda: gi.arange(2**24, 2**24 + 4), gi.DTypeError),
    "option of to": (lambda: gi.to(gi.zeros(3), "torch", strided=True), gi.ArgumentTypeError),
    "option of explain": (
        lambda: gi.explain(gi.zeros(3), "torch", strided=True),
        gi.ArgumentTypeError,
    ),
    "option of from_any": (lambda: gi.from_any(np.zeros(3), layout="F"), gi.ArgumentTypeError),
    "option for one of ours": (lambda: gi.from_any(gi.zeros(3), layout="F"), gi.ArgumentTypeError),
    "option for bytes": (lambda: gi.explain(b"abc", strict=True), gi.ArgumentTypeError),
    "library by number": (lambda: gi.to(gi.zeros(3), 5), gi.ConversionTypeError),
    "library by list": (lambda: gi.explain(gi.zeros(3), []), gi.ConversionTypeError),
    "kernel argument alone": (
        lambda: gi.converters.pointer_arguments(gi.zeros(3)).__enter__(),
        gi.ArgumentTypeError,
    ),
    "slice step 0": (lambda: gi.zeros(3)[::0], gi.ShapeError),
    "slice step 0, written": (
        lambda: gi.zeros(3).__setitem__(slice(None, None, 0), 1),
        gi.ShapeError,
    ),
    "slice of text": (lambda: gi.zeros(3)[:"a"], gi.ArgumentTypeError),
    "slice of a float": (lambda: gi.zeros((3, 3))[0, 1.5:], gi.ArgumentTypeError),
    "slice by a float": (lambda: gi.zeros(3)[::1.0], gi.ArgumentTypeError),
    "a class, shared": (lambda: gi.from_dlpack(np.ndarray), gi.ConversionTypeError),
    "a class, copied": (lambda: gi.CudaNdarray(np.ndarray), gi.ConversionTypeError),
    "our class": (lambda: gi.asarray(gi.GpuArray), gi.ConversionTypeError),
    "a class without protocols": (lambda: gi.from_dlpack(int), gi.ConversionTypeError),
    "handle of a new stream": (lambda: gi.Stream(handle=5), gi.ArgumentTypeError),
    "priority without its name": (lambda: gi.Stream("cpu", 1), gi.ArgumentTypeError),
    "handle of a new event": (lambda: gi.Event(handle=5), gi.ArgumentTypeError),
    "stride of text": (lambda: gi.zeros(3)._set_stride("a", 1), gi.ArgumentTypeError),
    "extent of text": (lambda: gi.zeros(3)._set_shape_i(0, "a"), gi.ArgumentTypeError),
    "order of a copy": (lambda: gi.zeros(3).copy(order=5), gi.ShapeError),
    "axis beyond print": (lambda: gi.zeros(3).swapaxes(0, 10**5000), gi.ShapeError),
    "extent beyond print": (lambda: gi.zeros(10**5000), gi.BoundsError),
    "index beyond print": (lambda: gi.zeros(3)[10**5000], gi.ArrayIndexError),
    "device beyond print": (lambda: gi.zeros(3, device=10**5000), gi.DeviceError),
    "dtype beyond print": (lambda: gi.zeros(3, 10**5000), gi.DTypeError),
    "range beyond print": (lambda: gi.arange(10**5000), gi.ShapeError),
    "no device": (lambda: gi.device("graphics"), gi.DeviceError),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_slip_is_answered_in_full(slip):
    call, kind = SLIPS[slip]
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert error.where
    assert error.expected
    assert error.got
    assert error.fix


def test_an_object_of_type_int_is_called_so():
    for wrong in (["a"], [object()], [[1], ["b"]]):
        with pytest.raises(gi.ConversionTypeError) as caught:
            gi.asarray(wrong)
        assert "an object of type list" in caught.value.got


def test_errors_of_the_slice_itself_pass():
    class Stop:
        def __index__(self):
            raise self.error

    for error in (ValueError("mine"), TypeError("mine"), KeyboardInterrupt("mine")):
        stop = Stop()
        stop.error = error
        with pytest.raises(type(error), match=r"^mine$"):
            gi.zeros(3)[:stop]
        with pytest.raises(type(error), match=r"^mine$"):
            gi.zeros(3)[::stop]


@pytest.mark.parametrize("like", [gi.empty_like, gi.zeros_like, gi.ones_like])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
def test_like_takes_foreign_arrays(like, dtype):
    source = np.zeros((2, 3), dtype)[:, ::-1]
    made = like(source, device="cpu")
    assert (made.shape, made.dtype) == ((2, 3), dtype)
    assert made.is_c_contiguous()
    assert not gi.shares_memory(made, source)


def test_numbers_of_numpy_make_a_range():
    assert gi.arange(np.int64(1), np.float32(3), device="cpu").tolist() == [1, 2]


HUGE = np.broadcast_to(np.float32(1), (1 << 46,))  # more than there is memory for

PLACES = {
    "zeros": lambda: gi.zeros(-1),
    "ones": lambda: gi.ones(-1),
    "full": lambda: gi.full(-1, 0),
    "empty": lambda: gi.empty(-1),
    "eye": lambda: gi.eye(-1),
    "full_like": lambda: gi.full_like(gi.zeros(2), "a"),
    "CudaNdarray.zeros": lambda: gi.CudaNdarray.zeros(-1),
    "GpuArray.zeros": lambda: gi.GpuArray.zeros(-1),
    "CudaNdarray": lambda: gi.CudaNdarray(HUGE, device="cpu"),
    "GpuArray": lambda: gi.GpuArray([3], "O"),
    "asarray": lambda: gi.asarray(HUGE, copy=True, device="cpu"),
    "array": lambda: gi.array([3], device="nowhere"),
    "zeros ": lambda: gi.zeros(3, "O"),
    "ones ": lambda: gi.ones(3, device="nowhere"),
    "empty ": lambda: gi.empty("a"),
    "empty_like": lambda: gi.empty_like(_huge()),
    "asarray ": lambda: gi.asarray([3], device="nowhere"),
    "astype": lambda: gi.zeros(3).astype("O"),
    "astype ": lambda: _huge().astype("int8"),
    "concatenate": lambda: gi.concatenate([_huge(), _huge()]),
    "sum": lambda: _huge().expand_dims(1).sum(axis=1),
    "broadcast_to": lambda: gi.zeros(1).broadcast_to(1 << 62),
    "reshape": lambda: _without_copies(lambda: gi.zeros((3, 4), device="cpu").T.reshape(12)),
    "CudaNdarray.from_pointer": lambda: gi.CudaNdarray.from_pointer("a", 3),
    "GpuArray.from_pointer": lambda: gi.GpuArray.from_pointer(8, 3, "O"),
    "from_gpu_pointer": lambda: gi.from_gpu_pointer(8, (2,), (1, 1), device="cpu"),
}


def _huge():
    return gi.ones(1, device="cpu").broadcast_to(HUGE.shape)


def _without_copies(call):
    with gi.no_copies():
        return call()


@pytest.mark.parametrize("place", PLACES)
def test_the_function_that_was_called_is_named(place):
    with pytest.raises(gi.GpuInteropError) as caught:
        PLACES[place]()
    assert caught.value.where == place.strip()


FIXES = {
    "device by position": (lambda: gi.zeros(3, "cpu"), "device='cpu'"),
    "order by position": (lambda: gi.zeros(12).reshape((3, 4), "F"), "order='F'"),
    "complex numbers": (lambda: gi.GpuArray([1j]), "dtype='complex64'"),
    "strides in elements": (lambda: gi.from_gpu_pointer(8, 2, (1, 1), device="cpu"), "one stride"),
}


@pytest.mark.parametrize("slip", FIXES)
def test_the_slip_is_recognised(slip):
    call, words = FIXES[slip]
    with pytest.raises(gi.GpuInteropError) as caught:
        call()
    assert words in caught.value.fix
    assert len(str(caught.value)) < 300


def test_strides_are_shown_in_the_unit_they_came_in():
    with pytest.raises(gi.ShapeError) as caught:
        gi.from_gpu_pointer(8, 2, (1, 1), device="cpu")
    assert caught.value.got == "(1, 1) (elements)"
    with pytest.raises(gi.ShapeError) as caught:
        gi.GpuArray.from_pointer(8, 2, "float32", (4, 4), device="cpu")
    assert caught.value.got == "(4, 4) (bytes)"


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


def test_an_item_too_large_to_be_shown():
    with pytest.raises(gi.errors.ArrayIndexError, match="an int of 16610 bits"):
        gi.zeros(3).item(10**5000)


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
    with pytest.raises(gi.IndexKindError, match=rf"a{{{before}}}{character}+\.\.\."):
        gi.zeros(3)[wordy]
    with pytest.raises(gi.ExchangeError, match=rf"BufferError: a{{{before}}}{character}+\.\.\."):
        gi.from_dlpack(wordy)

"""What an error says when the value cannot be printed, is too long, or raises an error of its own."""

import numpy as np
import pytest

import gpuinterop as gi

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
            with pytest.raises((gi.ConversionTypeError, gi.ProtocolError)):
                call()


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [Unprintable(), [10**5000]])
def test_object_whose_repr_fails_still_gets_the_original_error(value):
    x = gi.zeros((2, 3))
    for call in (lambda: x.squeeze(value), lambda: x.item(value), lambda: gi.device(value),
                 lambda: x.dimshuffle(value), lambda: gi.from_gpu_pointer(value, 3)):  # fmt: skip
        with pytest.raises(gi.GpuInteropError):
            call()


class Wordy:
    """Has a repr that is too long for a message, and not in ASCII."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text

    def __dlpack__(self, **options):
        raise BufferError(self.text)

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize("before", range(2))
@pytest.mark.parametrize("character", "é😀")
def test_long_words_are_cut_between_characters(character, before):
    wordy = Wordy("a" * before + character * 200)
    with pytest.raises(gi.ExchangeError, match=rf"BufferError: a{{{before}}}{character}+\.\.\."):
        gi.from_dlpack(wordy)


_X, _OTHER = gi.ones((2, 3), device="cpu"), gi.ones(7, device="cpu")
COMPOSED = {
    "clip": lambda: _X.clip(_OTHER),
    "round": lambda: _X.round(1, out=_OTHER),
    "vdot": lambda: gi.vdot(_X, _OTHER),
    "<lambda>": lambda: gi.fuse(lambda x: x + 1)(_X, out=_OTHER),
    "numpy.clip": lambda: np.clip(_X, _OTHER, None),
    "numpy.copyto": lambda: np.copyto(_X, _OTHER),
    "numpy.flip": lambda: np.flip(_X, 7),
    "numpy.full_like": lambda: np.full_like(_X, _OTHER),
    "numpy.outer": lambda: np.outer(_X, _X, out=_OTHER),
    "numpy.tile": lambda: np.tile(_X, -1),
    "numpy.trace": lambda: np.trace(_X, out=_OTHER),
    "numpy.vdot": lambda: np.vdot(_X, _OTHER),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_error_names_the_called_function_not_the_operation_inside(name):
    with pytest.raises(gi.ShapeError) as caught:
        COMPOSED[name]()
    assert caught.value.where == name
    assert ("axis from -2 to 1" in caught.value.expected) == (name == "numpy.flip")

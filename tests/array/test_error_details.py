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

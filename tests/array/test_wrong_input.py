"""Slips of a first hour: each is an error of this library that says what to write instead."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi

MASKED = np.ma.array([1.0, 2.0], mask=[False, True], dtype="float32")

SLIPS = {
    "order": (lambda: gi.empty(3, order="K"), gi.ArgumentTypeError),
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

"""NumPy arrays that `get`, `copy_async` and unpickling read and fill: what they are, not what they say."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import (
    ContiguityError,
    DTypeError,
    ReadOnlyError,
    ShapeError,
    UnsupportedError,
)
from gpuinterop.ndarray import _unpickle

BIG = 10**6


class Boaster(np.ndarray):
    """Four numbers that say they are a million."""

    shape = property(lambda self: (BIG,))
    strides = property(lambda self: (4,))
    size = property(lambda self: BIG)


def boaster():
    return np.zeros(4, np.float32).view(Boaster)


def get(x, out):
    x.get(out=out)


def copy_async(x, out):
    gi.copy_async(out, x)


both = pytest.mark.parametrize("fill", [get, copy_async])


@both
def test_a_shape_that_is_not_the_memorys(fill):
    with pytest.raises(ShapeError):
        fill(gi.ones(BIG, device="cpu"), boaster())
    host = boaster()
    fill(gi.ones(4, device="cpu"), host)
    assert np.asarray(host).tolist() == [1, 1, 1, 1]


def test_unpickling_a_shape_that_is_not_the_memorys():
    assert _unpickle(gi.CudaNdarray, boaster(), "cpu").tolist() == [0, 0, 0, 0]


@both
def test_a_dtype_and_a_flag_that_are_not_the_memorys(fill):
    class Liar(np.ndarray):
        dtype = property(lambda self: np.dtype(np.float32))

    with pytest.raises(DTypeError):
        fill(gi.ones(2, device="cpu"), np.zeros(2, np.int8).view(Liar))
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        fill(gi.ones(2, device="cpu"), frozen)


@both
def test_masks_and_repeats_are_refused(fill):
    x = gi.arange(3, dtype="float32", device="cpu")
    masked = np.ma.masked_array(np.full(3, 7, np.float32), [1, 0, 0])
    with pytest.raises(UnsupportedError, match=f"{fill.__name__}: expected data without a mask"):
        fill(x, masked)
    assert masked.data.tolist() == [7, 7, 7]
    repeated = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3,), (0,))
    with pytest.raises(
        ContiguityError, match=f"{fill.__name__}: .*\n.*axis 0 is broadcast"
    ) as caught:
        fill(x, repeated)
    assert caught.value.axis == 0
    one = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1,), (0,))
    fill(x[2:], one)
    assert one.tolist() == [2]


@both
def test_elements_where_none_may_lie(fill):
    x = gi.ones(1, device="cpu")
    shifted = np.zeros(5, np.uint8)[1:].view(np.float32)
    field = np.zeros(3, np.dtype([("a", "f4"), ("b", "i2")], align=False))["a"]
    for source, out in ((x, shifted), (x.broadcast_to(3), field)):
        with pytest.raises(ContiguityError, match=f"{fill.__name__}: .* aligned elements"):
            fill(source, out)
        assert not out.any()


@pytest.mark.parametrize("shape", [-1, (-1, -1), (2, -3)])
def test_pinned_memory_of_negative_extents(shape):
    with pytest.raises(ShapeError, match="pinned_empty"):
        gi.pinned_empty(shape, device="cpu")

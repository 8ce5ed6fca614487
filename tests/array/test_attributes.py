"""What an array says of itself, and how NumPy reads it, against NumPy; on views of every kind."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi

VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "every second, backwards": lambda x: x[::-1, ::2],
    "one row": lambda x: x[1],
    "one column, kept": lambda x: x[:, 1:2],
    "nothing": lambda x: x[2:2],
    "one element": lambda x: x[1, 2, ...],
    "repeated": lambda x: np.broadcast_to(x, (2, 4, 6)) if isinstance(x, np.ndarray)
    else x.broadcast_to(2, 4, 6),
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "int16", "complex128"])
def test_attributes_agree_with_numpy(device, view, dtype):
    host = np.arange(24).reshape(4, 6).astype(dtype)
    whole = gi.array(host, device=device)
    x, theirs = view(whole), view(host)
    for name in ("shape", "ndim", "size", "nbytes", "itemsize", "dtype"):
        assert getattr(x, name) == getattr(theirs, name), name
    assert x.mem_size == x.size
    assert x.device == whole.device
    assert x.T.shape == theirs.T.shape
    assert x.flags.c_contiguous == x.is_c_contiguous() == theirs.flags.c_contiguous
    assert x.flags.f_contiguous == x.is_f_contiguous() == theirs.flags.f_contiguous
    assert x.base is (None if x is whole else whole)
    if x.size:
        assert x.strides == theirs.strides
        shown = tuple(0 if n == 1 else s // x.itemsize
                      for n, s in zip(x.shape, theirs.strides, strict=True))  # fmt: skip
        assert x._strides == shown
        # The first element's address, as far from the base's as in NumPy.
        assert x.gpudata == x._dev_data == x.ptr
        assert x.ptr - whole.ptr == theirs.ctypes.data - host.ctypes.data
    else:
        assert x.gpudata == x._dev_data == 0


@pytest.mark.parametrize(
    "values", [[1.5, -2.0], [[1.0, 2.0], [3.0, 4.0]], [[]], [], ((1.0, 2), [3, 4.5]), 2.5]
)
@pytest.mark.parametrize("make", [gi.CudaNdarray, gi.GpuArray, gi.array, gi.asarray])
def test_nested_lists_of_numbers(device, make, values):
    x = make(values, device=device)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x.get(), np.float32(values), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_zeros_of_any_dtype(device, dtype):
    x = gi.GpuArray.zeros((2, 3), dtype, device)
    assert (type(x), x.dtype, x.device) == (gi.GpuArray, dtype, gi.device(device))
    assert not x.get().any()


@pytest.mark.parametrize(
    ("n", "m", "k"), [(3, None, 0), (3, 4, 1), (4, 2, -1), (2, 2, 5), (0, 3, 0)]
)
def test_eye(device, n, m, k):
    for dtype in ("float32", "int8"):
        x = gi.eye(n, m, k, dtype, device=device)
        np.testing.assert_array_equal(x.get(), np.eye(n, m, k, dtype), strict=True)


def test_empty_takes_dtype_order_and_device(device):
    for order in "CF":
        x = gi.empty((3, 4), "int16", device=device, order=order)
        assert x.strides == np.empty((3, 4), "int16", order=order).strides
        assert x.device == gi.device(device)


# ---- numpy.asarray, by the rules of NumPy 2 ---------------------------------------------------


def test_numpy_asks_for_a_copy_or_forbids_it(device):
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)[:, ::-1]
    on_the_host = x.device.type == "cpu"
    expected = np.arange(6, dtype="float32").reshape(2, 3)[:, ::-1]
    for read in (
        lambda **how: np.array(x, **how),
        lambda **how: x.__array__(**how),
    ):
        for copy in (True, None):
            found = read(copy=copy)
            np.testing.assert_array_equal(found, expected, strict=True)
            shared = on_the_host and found.ctypes.data == x.ptr
            assert shared == (on_the_host and copy is None)
        if on_the_host:
            assert read(copy=False).ctypes.data == x.ptr
            assert read(copy=False).strides == x.strides
        else:
            with pytest.raises(ValueError, match="download"):
                read(copy=False)
        # Another dtype is a copy, so it cannot be had without one.
        assert read(dtype="float64").dtype == np.float64
        with pytest.raises(ValueError):
            read(dtype="float64", copy=False)


def test_numpy_sees_what_is_written_afterwards_only_on_the_host(device):
    x = gi.zeros(3, device=device)
    seen = np.asarray(x)
    x[1] = 5
    assert seen[1] == (5 if x.device.type == "cpu" else 0)


def test_numpy_may_not_write_to_what_is_read_only(device):
    x = gi.zeros(3, device=device).broadcast_to(2, 3)
    found = np.asarray(x)
    if x.device.type == "cpu":
        assert not found.flags.writeable
    assert np.array(x, copy=True).flags.writeable

"""Empty arrays, 2**31 elements, sizes of more than 63 bits, every dtype, moves between devices."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core, dtypes

ml_dtypes = pytest.importorskip("ml_dtypes")


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2), (0, 0)])
def test_empty_arrays(device, shape):
    x = gi.CudaNdarray(np.zeros(shape, "float32"), device=device)
    assert (x.shape, x.size, x.nbytes, x.ptr) == (shape, 0, 0, 0)
    assert x.is_c_contiguous()
    assert x.is_f_contiguous()
    x[...] = 1
    x[...] = x
    assert x.copy().shape == shape
    assert x.T.shape == shape[::-1]
    assert x.get().shape == shape
    assert x.tolist() == np.zeros(shape).tolist()
    assert x.reshape(-1).shape == (0,)
    assert not x.flags.owndata or x.base is None
    if shape[0]:
        assert x[0].shape == shape[1:]


@pytest.mark.parametrize(
    "shape", [(2**62, 4), (2**40, 2**40), (0, 2**62, 2**62), (2**63 - 1,), (2**64,)]
)
def test_sizes_that_do_not_fit_are_refused(device, shape):
    with pytest.raises((ValueError, MemoryError), match="expected"):
        gi.empty(shape, device=device)


def test_more_memory_than_there_is(device):
    with pytest.raises(MemoryError, match="expected"):
        gi.empty(2**45, device=device)
    assert gi.ones(4, device=device).tolist() == [1, 1, 1, 1]


@pytest.mark.slow
def test_more_than_2_to_the_31_elements(device):
    n = 2**31 + 8
    x = gi.empty(n, "int8", device=device)
    x[...] = 1
    x[2**31 :] = np.arange(8, dtype="int8")
    x[:4] = [4, 3, 2, 1]
    assert x[2**31 + 3].item() == 3
    assert x[-1].item() == 7
    assert x[::-1][:2].tolist() == [7, 6]
    assert x[:: 2**30].tolist() == [4, 1, 0]
    pairs = x.reshape(-1, 2).T
    assert pairs.shape == (2, n // 2)
    assert pairs[1, -1].item() == 7
    assert pairs[:, : 2**29 : 2**28].copy().tolist() == [[4, 1], [3, 1]]
    wide = x[:64].broadcast_to(2**31, 64)
    assert wide.size == 2**37
    assert wide[2**31 - 1, 0].item() == 4


@pytest.mark.parametrize("name", dtypes.NAMES)
def test_every_dtype_travels(device, name):
    if name not in dtypes.NUMPY_NAMES and not hasattr(ml_dtypes, name):
        pytest.skip("needs ml_dtypes 0.6")
    dtype = dtypes.dtype_from_id(dtypes.NAMES.index(name))
    host = np.arange(6).astype(dtype).reshape(2, 3)
    x = gi.GpuArray(host, device=device)
    assert x.dtype == dtype
    assert x.itemsize == host.itemsize
    assert x.strides == host.strides
    # Compared byte by byte: some of these types have no equality in NumPy.
    assert x[:, ::-1].get().tobytes() == host[:, ::-1].tobytes()
    x[0] = host[1]
    x[1, 0] = host[0, 1]
    host[0] = host[1].copy()
    host[1, 0] = np.arange(6).astype(dtype)[1]
    assert x.get().tobytes() == host.tobytes()
    assert x.copy("F").get().tobytes() == host.tobytes()


def test_the_dtype_table_is_one():
    rows = _core._dtype_rows()
    assert tuple(row[0] for row in rows) == dtypes.NAMES
    for i, (name, _, bits, itemsize) in enumerate(rows):
        if name not in dtypes.NUMPY_NAMES and not hasattr(ml_dtypes, name):
            continue
        dtype = dtypes.dtype_from_id(i)
        assert dtype.name == name
        assert dtype.itemsize == itemsize
        assert bits <= 8 * itemsize
        assert dtypes.dtype_id(dtype) == dtypes.dtype_id(name) == i


@pytest.mark.parametrize(
    "bad", ["object", "datetime64[s]", "U4", ">f4", [("a", "f4")], "float128", "?x"]
)
def test_unknown_dtypes_name_the_known_ones(device, bad):
    with pytest.raises(TypeError, match="float32"):
        gi.empty(3, bad, device=device)


def test_asarray_shares_where_it_can():
    host = np.arange(6, dtype="float32").reshape(2, 3)
    x = gi.asarray(host, device="cpu")
    assert type(x) is gi.CudaNdarray
    host[0, 0] = 9
    assert x[0, 0].item() == 9
    assert gi.asarray(x) is x
    assert gi.asarray(x, copy=True).ptr != x.ptr
    assert gi.asarray(host[:, ::-1], device="cpu").strides == (12, -4)
    assert type(gi.asarray(np.arange(3), device="cpu")) is gi.GpuArray
    assert gi.asarray([1, 2], device="cpu").dtype == np.float32
    assert gi.asarray([1, 2], "int8", device="cpu").dtype == np.int8
    cast = gi.asarray(host, "float64", device="cpu")
    assert (type(cast), cast.dtype) == (gi.GpuArray, np.float64)
    for obj, keywords in [(host, {"dtype": "int32"}), ([1.0], {}), (host.astype(">f4"), {})]:
        with pytest.raises(ValueError, match="copy=None"):
            gi.asarray(obj, device="cpu", copy=False, **keywords)
    frozen = host.copy()
    frozen.flags.writeable = False
    assert gi.asarray(frozen, device="cpu").readonly


def test_moving_between_devices(device):
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)
    assert x.to_device(device) is x
    assert x.cpu().device == "cpu"
    away = x[:, ::-1].to_device("cpu", copy=True)
    assert away.base is None
    np.testing.assert_array_equal(away.get(), x.get()[:, ::-1])
    x.sync()
    assert x.transfer("cpu").tolist() == x.tolist()


def test_keys_that_change_the_array_while_they_are_read():
    x = gi.GpuArray(np.arange(200, dtype="int32").reshape(100, 2), device="cpu")

    class Turn:
        def __index__(self):
            x.shape = (2, 100)
            return 99

    # The key is read against the shape at the beginning.
    with pytest.raises(IndexError, match="axis 1"):
        x[Turn(), 99]
    x.shape = (100, 2)
    assert x[Turn(), 1].item() == 199
    assert x.shape == (2, 100)

    class Twist:
        def __index__(self):
            x._dev_data += 0
            x._set_stride(0, 10**6)
            x._set_stride(0, 100)
            return 0

    x._set_stride(Twist(), 100)
    assert x._strides == (100, 1)

"""complex32: held, cast and exchanged, but not computed with."""

import pickle

import numpy as np
import pytest

import gpuinterop as gi

ml_dtypes = pytest.importorskip("ml_dtypes")
if not hasattr(ml_dtypes, "complex32"):
    pytest.skip("needs ml_dtypes 0.6", allow_module_level=True)

VALUES = np.array([[1 + 2j, -0.5j], [3, 1e-3 + 7j], [0, -2]], "complex64")


def test_casts_match_numpy(device):
    half = VALUES.astype("complex32")
    x = gi.asarray(half, device=device)
    for name in ("complex64", "complex128", "complex32"):
        found = x[::-1].astype(name).get()
        assert found.tobytes() == half[::-1].astype(name).tobytes()
    wide = gi.asarray(VALUES, device=device)
    assert wide.T.astype("complex32").get().tobytes() == VALUES.T.astype("complex32").tobytes()
    real = gi.asarray(VALUES.real.copy(), device=device)
    for name in ("complex32", "int4", "int1"):
        with np.errstate(invalid="ignore"):  # ml_dtypes 0.7 warns of numbers that int4 cannot hold
            expected = VALUES.real.astype(name)
        assert real.astype(name).get().tobytes() == expected.tobytes()
    assert pickle.loads(pickle.dumps(x)).get().tobytes() == half.tobytes()


def test_numbers_follow_the_rule_of_complex_dtypes(device):
    x = gi.zeros(3, dtype="complex32", device=device)
    for value in (1 + 2j, -1, 0.5, [0, 0.25, 1j], np.complex64(2j), ml_dtypes.complex32(3j)):
        x[...] = value
        assert x.tolist() == np.broadcast_to(np.array(value, "complex64"), 3).tolist()
    x[...] = gi.asarray(VALUES[:, 0], device=device)
    assert x.tolist() == VALUES[:, 0].tolist()
    with pytest.raises(gi.DTypeError, match="hold"):
        x[...] = 1e6
    with pytest.raises(gi.DTypeError, match="real number"):
        gi.zeros(3, device=device)[...] = ml_dtypes.complex32(3j)


OPERATIONS = {
    "beside float32": lambda x: x + gi.ones(4, device=x.device),
    "fused": lambda x: gi.fuse(lambda y: y)(x),
    "sum": lambda x: x.sum(),
    "dot": lambda x: gi.dot(x, x),
    "where": lambda x: gi.where(x, 1, x),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_complex32_operations_raise(device, name):
    with pytest.raises(gi.DTypeError, match="complex32") as caught:
        OPERATIONS[name](gi.zeros(4, dtype="complex32", device=device))
    assert "x.astype('complex64')" in caught.value.fix


@pytest.mark.parametrize("name", ["complex32", "int1", "int4"])
def test_an_out_that_no_kernel_writes_is_refused(device, name):
    ones = gi.ones(4, device=device)
    with pytest.raises(gi.DTypeError, match=name):
        gi.add(ones, 1, out=gi.zeros(4, dtype=name, device=device))


def test_memory_is_shared_at_every_entry_point():
    half = VALUES.astype("complex32")
    for entry_point in (gi.from_any, gi.from_dlpack, gi.converters.from_numpy):
        x = entry_point(half)
        assert x.ptr == half.ctypes.data
        assert np.asarray(x).dtype == half.dtype
        assert gi.from_dlpack(x.__dlpack__()).dtype == half.dtype
    odd = np.frombuffer(bytearray(18), np.uint8)[2:].view("complex32")  # aligned to its parts
    assert gi.asarray(odd, device="cpu", copy=False).ptr == odd.ctypes.data


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_torch_shares_complex32_memory():
    torch = pytest.importorskip("torch")
    t = torch.tensor(VALUES.tolist(), dtype=torch.complex32)
    for entry_point in (gi.from_any, gi.from_dlpack, gi.converters.from_torch):
        x = entry_point(t)
        assert x.ptr == t.data_ptr()
        assert x.get().tobytes() == VALUES.astype("complex32").tobytes()
        with pytest.raises(gi.GpuInteropError, match="conj"):
            entry_point(t.conj())
    back = gi.converters.to_torch(x)
    assert back.dtype == torch.complex32
    assert back.data_ptr() == t.data_ptr()

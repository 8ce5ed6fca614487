"""Other libraries on the host: memory is shared both ways, and refused for the right reason."""

import array
import gc
import mmap

import numpy as np
import pytest
from peers import capsule

import gpuinterop as gi
from gpuinterop import from_dlpack

# ---- Python and NumPy -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "dtype", "readonly"),
    [
        (b"abc", "uint8", True),
        (bytearray(b"abc"), "uint8", False),
        (mmap.mmap(-1, 64), "uint8", False),
        (array.array("q", [1, 2, 3]), "int64", False),
        (memoryview(b"abcd").cast("i"), "int32", True),
        (memoryview(np.arange(6.0).reshape(2, 3))[::-1], "float64", False),
        (memoryview(np.array([1 + 2j])), "complex128", False),
        (memoryview(np.array([True])), "bool", False),
        (memoryview(np.zeros(2, "e")), "float16", False),
    ],
)
def test_buffer_protocol(obj, dtype, readonly):
    x = from_dlpack(obj)
    assert (x.dtype, x.readonly) == (dtype, readonly)
    assert gi.explain(obj).shared
    np.testing.assert_array_equal(np.from_dlpack(x), np.asarray(memoryview(obj)))
    assert x.ptr == np.asarray(memoryview(obj)).ctypes.data


def test_buffer_is_locked_as_long_as_it_is_used():
    raw = bytearray(8)
    x = from_dlpack(raw)
    y = x[2:]
    del x
    with pytest.raises(BufferError):
        raw.append(1)
    del y
    gc.collect()
    raw.append(1)


def test_arrays_and_capsules_of_gpuinterop_become_views():
    x = gi.full((2, 3), 5.0, device="cpu")[::-1]
    y = from_dlpack(x.T)
    assert (y.ptr, y.base) == (x.ptr, x.base)
    assert from_dlpack(x, copy=True).ptr != x.ptr
    assert type(from_dlpack(x, cls=gi.GpuArray)) is gi.GpuArray
    for version in (None, (1, 3)):
        y = from_dlpack(x.__dlpack__(max_version=version))
        assert (y.ptr, y.strides) == (x.ptr, x.strides)


# ---- torch --------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.torch
class TestTorch:
    def test_torch_never_receives_memory_that_it_cannot_hold(self, torch):
        padded = from_dlpack(capsule(dtype=(17, 4, 1), flags=4))
        for refused in (from_dlpack(capsule(flags=1)), padded):
            with pytest.raises(gi.GpuInteropError):
                gi.to(refused, "torch")

    # torch's DLPack table reports no autograd.

    def test_gradient_state_is_that_of_the_moment(self, torch):
        t = torch.ones(3)
        for wanted in (False, True, False):
            t.requires_grad_(wanted)
            if wanted:
                with pytest.raises(gi.ExportError, match="requires_grad"):
                    from_dlpack(t)
            else:
                assert from_dlpack(t).ptr == t.data_ptr()
        leaf = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            assert from_dlpack(leaf * 2).tolist() == [2, 2, 2]
        with torch.inference_mode():
            assert from_dlpack(torch.ones(3)).tolist() == [1, 1, 1]


# ---- tvm-ffi ------------------------------------------------------------------------------------


def test_tvm_function_takes_and_returns_arrays():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    seen = []
    function = tvm_ffi.convert(lambda t: seen.append(tuple(t.shape)) or t)
    x = from_dlpack(np.arange(6, dtype="float32").reshape(2, 3))
    result = function(x)
    assert seen == [(2, 3)]
    assert from_dlpack(result).ptr == x.ptr

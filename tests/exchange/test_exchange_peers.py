"""Real libraries as peers on the host: memory is shared both ways, and refused for the right reason."""

from __future__ import annotations

import array
import gc
import mmap
import sys
import weakref

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.converters import from_dlpack
from gpuinterop.foreign_handles import protocols_of

# ---- numpy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "dtype", "readonly"),
    [
        (b"abc", "uint8", True),
        (bytearray(b"abc"), "uint8", False),
        (mmap.mmap(-1, 64), "uint8", False),
        (array.array("f", [1, 2, 3]), "float32", False),
        (array.array("q", [1, 2, 3]), "int64", False),
        (memoryview(b"abcd").cast("i"), "int32", True),
        (memoryview(np.arange(6.0).reshape(2, 3))[::-1], "float64", False),
        (memoryview(np.array([1 + 2j])), "complex128", False),
        (memoryview(np.array([True])), "bool", False),
        (memoryview(np.zeros(2, "e")), "float16", False),
    ],
)
def test_the_buffer_protocol(obj, dtype, readonly):
    x = from_dlpack(obj)
    assert x.dtype == dtype
    assert x.readonly is readonly
    assert gi.explain(obj).shared
    np.testing.assert_array_equal(np.from_dlpack(x), np.asarray(memoryview(obj)))
    assert x.ptr == np.asarray(memoryview(obj)).ctypes.data


def test_a_buffer_is_locked_as_long_as_it_is_used():
    raw = bytearray(8)
    x = from_dlpack(raw)
    y = x[2:]
    del x
    with pytest.raises(BufferError):
        raw.append(1)
    del y
    gc.collect()
    raw.append(1)


def test_bfloat16_comes_by_the_dictionary():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,  # whose typestr is "<f1"
        ml_dtypes.int4,
    ):
        n = np.arange(4).astype(dtype)
        x = from_dlpack(n)
        assert x.dtype == dtype
        assert x.ptr == n.ctypes.data


# ---- our own ------------------------------------------------------------------------------------


def test_our_own_arrays_become_views():
    x = gi.zeros((2, 3), device="cpu")
    y = from_dlpack(x.T)
    assert y is not x
    assert y.ptr == x.ptr
    assert y.base is x
    assert from_dlpack(x, copy=True).ptr != x.ptr
    assert type(from_dlpack(x, cls=gi.GpuArray)) is gi.GpuArray


def test_our_capsule_comes_back():
    x = gi.full((2, 3), 5.0, device="cpu")[::-1]
    for version in (None, (1, 3)):
        y = from_dlpack(x.__dlpack__(max_version=version))
        assert y.ptr == x.ptr
        assert y.strides == x.strides


# ---- class and dtype ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "complex64"])
def test_a_cudandarray_holds_float32_only(dtype):
    n = np.zeros(3, dtype)
    with pytest.raises(TypeError, match=r"x\.astype\('float32'\)") as caught:
        from_dlpack(n, cls=gi.CudaNdarray)
    assert isinstance(caught.value, ValueError)
    assert type(from_dlpack(n)) is gi.GpuArray


@pytest.mark.torch
def test_the_cast_is_written_as_torch_writes_it():
    torch = pytest.importorskip("torch")
    with pytest.raises(gi.DTypeError, match=r"x\.to\(torch\.float32\)"):
        from_dlpack(torch.zeros(3, dtype=torch.float64), cls=gi.CudaNdarray)


@pytest.mark.parametrize("cls", [int, np.ndarray, "CudaNdarray", 3])
def test_other_classes_are_refused(cls):
    with pytest.raises(TypeError):
        from_dlpack(np.zeros(3), cls=cls)


def test_devices_and_copies():
    n = np.arange(3.0)
    assert from_dlpack(n, device="cpu").ptr == n.ctypes.data
    assert from_dlpack(n, device="cpu", copy=False).ptr == n.ctypes.data
    copied = from_dlpack(n, copy=True)
    assert copied.ptr != n.ctypes.data
    assert copied.base is None
    with pytest.raises(TypeError):
        from_dlpack(n, stream=3)


def test_the_message_lists_what_was_tried():
    class Stubborn:
        def __dlpack__(self, **_):
            raise BufferError("not today")

        def __dlpack_device__(self):
            return (1, 0)

        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("nor this way")

    with pytest.raises(BufferError) as caught:
        from_dlpack(Stubborn())
    text = str(caught.value)
    assert "__dlpack__: BufferError: not today" in text
    assert "__cuda_array_interface__: RuntimeError: nor this way" in text
    assert caught.value.where == "from_dlpack"
    assert caught.value.fix


def test_protocols_by_name():
    assert protocols_of(np.zeros(3)) == ("__dlpack__", "__array_interface__", "buffer protocol")
    assert protocols_of(gi.zeros(3, device="cpu"))[0] == "DLPack C exchange API"
    assert protocols_of(3) == ()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12 or later")
def test_an_interrupt_of_a_buffer_passes():
    class Interrupted:
        def __buffer__(self, flags):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        from_dlpack(Interrupted())


def test_types_are_forgotten_when_they_go():
    class Passing:
        def __init__(self):
            self.n = np.zeros(3)

        def __dlpack__(self, **keywords):
            return self.n.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return (1, 0)

    from_dlpack(Passing())
    gone = weakref.ref(Passing)
    del Passing
    gc.collect()
    assert gone() is None


# ---- torch --------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.torch
class TestTorch:
    def test_out(self, torch):
        x = gi.from_dlpack(np.arange(24, dtype="float32").reshape(4, 6))
        for y in (x, x.T, x[1:, ::2], x[:, 2:3], x[4:], x[1:2, 2:3].reshape(())):
            for t in (torch.from_dlpack(y), _core.export_via(y, torch.Tensor)):
                assert tuple(t.shape) == y.shape
                assert t.data_ptr() == y.ptr
                np.testing.assert_array_equal(t.numpy(), np.from_dlpack(y))
        t = _core.export_via(x, torch.Tensor)
        t.add_(1)
        assert x[0, 0].item() == 1

    def test_every_dtype_of_both(self, torch):
        names = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32"
        names += " float64 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e8m0fnu"
        for name in names.split():
            t = torch.zeros(3, dtype=getattr(torch, name))
            x = from_dlpack(t)
            assert str(x.dtype) == name
            assert _core.export_via(x, torch.Tensor).dtype == t.dtype

    def test_torch_is_never_given_what_aborts_it(self, torch):
        x = gi.from_dlpack(np.arange(6.0))[::-1]
        for call in (torch.from_dlpack, torch.utils.dlpack.from_dlpack):
            with pytest.raises(BufferError, match=r"x\.copy\(\)"):
                call(x)
        with pytest.raises(gi.ExportError):
            _core.export_via(x, torch.Tensor)
        assert torch.from_dlpack(x[::-1]).tolist() == [0, 1, 2, 3, 4, 5]
        assert torch.from_dlpack(x[2:3]).tolist() == [3]
        assert torch.from_dlpack(x, copy=True).tolist() == [5, 4, 3, 2, 1, 0]


# ---- tvm-ffi ------------------------------------------------------------------------------------


def test_a_tvm_function_takes_and_returns_our_arrays():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    seen = []
    function = tvm_ffi.convert(lambda t: seen.append(tuple(t.shape)) or t)
    x = gi.from_dlpack(np.arange(6, dtype="float32").reshape(2, 3))
    result = function(x)
    assert seen == [(2, 3)]
    assert from_dlpack(result).ptr == x.ptr

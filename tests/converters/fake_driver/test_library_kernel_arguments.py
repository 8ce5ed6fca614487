"""What other libraries' kernel launchers read of an array, and the order that this brings."""

import sys
import types

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters

HOST = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_pycuda_reads_the_address(gpu):
    """SourceModule accepts objects with `gpudata`, an int; the elementwise kernels require a launch."""
    x = gpu(HOST)
    assert type(x.gpudata) is int
    assert x.gpudata == x.ptr
    assert (x.dtype, x.size, x.mem_size) == (np.float32, 6, 6)
    assert x.flags.forc
    assert not x[:, ::2].flags.forc  # by which PyCUDA refuses strided arguments
    assert x._block[0] * x._grid[0] >= x.size


def test_pycuda_reduction_requires_an_allocator(gpu, monkeypatch):
    x = gpu(HOST)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    assert not hasattr(x, "allocator")
    driver = types.ModuleType("pycuda.driver")
    driver.mem_alloc = object()
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    assert x.allocator is driver.mem_alloc


def test_triton_reads_address_and_dtype_and_is_in_order(gpu, monkeypatch):
    x = gpu(HOST)
    assert x.data_ptr() == x.ptr
    assert str(x.dtype) == "float32"
    side = gi.Stream("cuda:0")
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        current_stream=lambda index: types.SimpleNamespace(cuda_stream=side.handle),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert x.data_ptr() == x.ptr
    assert x._stream == side.handle  # later work of gpuinterop waits for the launch


def test_numba_cupy_and_mpi_read_the_dictionary(gpu):
    x = gpu(HOST)[:, ::-2]
    interface = x.__cuda_array_interface__
    assert interface["data"] == (x.ptr, False)
    assert (interface["shape"], interface["strides"], interface["typestr"]) == (
        (2, 2),
        (12, -8),
        "<f4",
    )
    assert interface["stream"] not in (0, None)


def prepared(*args):
    with converters.pointer_arguments(args, copyif=True) as made:
        return [m.ptr for m in made]


def test_strided_arrays_that_share_no_element_are_copied_each(gpu):
    x = gpu(np.arange(12, dtype=np.float32))
    for others in ((x[::2],), (x[::4], x[1::4], x[2::4]), (gpu(HOST).T,)):
        assert len(set(prepared(x[3::4], *others))) == len(others) + 1
    with pytest.raises(gi.ContiguityError, match="argument 1"):
        prepared(x[::2], x[::3])


def test_fix_uses_the_class_of_the_passed_argument(gpu, pycuda):
    x = gpu(np.arange(12, dtype=np.float32))
    g = gi.to_gpuarray(x[::2], strided=True)
    for passed, copied in ((x[::2], "x.copy()"), (g, "gpuinterop.from_any(x, copyif=True).copy()")):
        with pytest.raises(gi.ContiguityError) as raised, converters.pointer_arguments([passed]):
            pass
        assert raised.value.fix == f"pass copyif=True, or pass {copied}"
        with pytest.raises(gi.ContiguityError) as raised:
            prepared(x[::3], passed)
        assert raised.value.fix.endswith(f": {copied}")
        moved = copied.removesuffix(".copy()")
        with (
            pytest.raises(gi.DeviceMismatchError) as raised,
            converters.pointer_arguments([passed], copyif=True, device=1),
        ):
            pass
        assert raised.value.fix == f"pass an array on the GPU: x = {moved}.to_device('cuda:1')"


class View:
    """The attributes of a StridedMemoryView that the converter reads."""

    __module__ = "cuda.core"
    __qualname__ = "StridedMemoryView"
    strides, device_id, readonly = None, 0, False

    def __init__(self, x):
        self.ptr, self.shape, self.dtype, self.owner = x.ptr, x.shape, x.dtype, x


def test_a_stream_is_named_by_any_object_or_handle(gpu):
    x, queue = gpu(HOST), gi.Stream("cuda")
    torch_stream = types.SimpleNamespace(cuda_stream=queue.handle)
    for named in (queue, torch_stream, queue.handle, 0, 1, 2, np.uint64(queue.handle)):
        with converters.pointer_arguments((x,), stream=named) as (made,):
            assert made is x
        assert converters.from_cuda_core(View(x), stream=named).ptr == x.ptr


@pytest.mark.parametrize("named", [True, -1, 1 << 64, 1.0, "1", object(), gi.ones(1, device="cpu")])
def test_invalid_stream_raises_a_complete_error(gpu, named):
    x = gpu(HOST)
    with pytest.raises(gi.StreamError), converters.pointer_arguments((x,), stream=named):
        pass
    with pytest.raises(gi.StreamError):
        converters.from_cuda_core(View(x), stream=named)
    with pytest.raises(gi.StreamError):
        converters.to_cuda_core(x, stream=named)


@pytest.mark.parametrize("count", [6, 0])
def test_pinned_buffer_without_a_device_is_identified_by_its_address(count, monkeypatch):
    memory = gi.pinned_empty(count)
    names = {"__module__": "cuda.core", "__qualname__": "Buffer", "is_device_accessible": True}
    cls = type("Buffer", (), names)
    if "cuda.core" in sys.modules:  # another test has imported it
        monkeypatch.setattr(sys.modules["cuda.core"], "Buffer", cls)
    buffer = cls()
    buffer.size, buffer.device_id, buffer.handle = 4 * count, -1, memory.ctypes.data
    assert converters.from_cuda_core(buffer).shape == (4 * count,)
    plan = gi.explain(buffer, "buffer")
    assert plan.refused
    assert "on cuda:0" in plan.got

"""What other libraries' kernel launchers read of an array, and the order that this brings."""

import sys
import types

import numpy as np

import gpuinterop as gi

HOST = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_pycuda_reads_the_address(gpu):
    """SourceModule takes what has `gpudata`, an int; the elementwise kernels ask for a launch."""
    x = gpu(HOST)
    assert type(x.gpudata) is int
    assert x.gpudata == x.ptr
    assert (x.dtype, x.size, x.mem_size) == (np.float32, 6, 6)
    assert x.flags.forc
    assert not x[:, ::2].flags.forc  # by which PyCUDA refuses strided arguments
    assert x._block[0] * x._grid[0] >= x.size


def test_pycudas_reduction_asks_for_an_allocator(gpu, monkeypatch):
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
    assert x._stream == side.handle  # later work here waits for the launch


def test_numba_cupy_and_mpi_read_the_dictionary(gpu):
    x = gpu(HOST)[:, ::-2]
    told = x.__cuda_array_interface__
    assert told["data"] == (x.ptr, False)
    assert (told["shape"], told["strides"], told["typestr"]) == ((2, 2), (12, -8), "<f4")
    assert told["stream"] not in (0, None)


def test_an_array_of_the_host_tells_no_launcher_that_it_is_on_a_gpu():
    x = gi.array(HOST, device="cpu")
    assert not hasattr(x, "__cuda_array_interface__")

"""Known hazards of the libraries on a real GPU: none of them reaches whoever converts here."""

from __future__ import annotations

import gc
import importlib

import numpy as np
import pytest
from cases import Liar, agree
from gpu_peers import PEERS, load, peer, pycuda_ready, spin

import gpuinterop as gi
from gpuinterop import _core, converters

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def host(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


# ---- copies, and what explain says of them ------------------------------------------------------

VIEWS = {
    "c": np.s_[:], "rows": np.s_[1:3], "sliced": np.s_[::2, ::2], "reversed": np.s_[::-1],
    "mirrored": np.s_[:, ::-1], "column": np.s_[:, 2:3], "vector": np.s_[2], "0-d": np.s_[1, 1],
    "empty": np.s_[:0],
}  # fmt: skip


@pytest.mark.parametrize("view", [*VIEWS, "transposed"])
def test_a_download_is_what_explain_says(view):
    whole, expected = gi.array(host(4, 6), device="cuda"), host(4, 6)
    if view == "transposed":
        x, expected = whole.T, expected.T
    else:
        x, expected = whole[VIEWS[view]], expected[VIEWS[view]]
    _, _, error = agree(x, "numpy")
    assert type(error) is gi.DeviceMismatchError
    assert "copyif" in error.fix
    _, found, _ = agree(x, "numpy", True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("name", PEERS)
def test_explain_foresees_what_a_capture_forbids(name, copyif):
    x = gi.array(host(4, 6), device="cuda")
    peer(name)
    gi.to(x, name, copyif)  # what is loaded at a first use is no concern of the capture
    with gi.capture(device="cuda"):
        x += 1
        for key in ("c", "sliced", "empty"):
            plan, error = gi.explain(x[VIEWS[key]], name, copyif), None
            try:
                gi.to(x[VIEWS[key]], name, copyif)
            except gi.GpuInteropError as raised:
                error = raised
            assert plan.refused == (error is not None), f"{key}: {plan}; {error!r}"
            assert error is None or type(error) is plan.error


class Window:
    """Elements that lie between those of any float32 array, by the CUDA Array Interface."""

    def __init__(self, base):
        self.base = base
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (4,), "strides": (6,), "typestr": "<f4",
            "data": (base.ptr + 2, False), "stream": None,
        }  # fmt: skip


def between(name, base):
    if name == "cupy":
        cupy = load("cupy")
        memory = cupy.cuda.UnownedMemory(base.ptr, 64, base, 0)
        return cupy.ndarray((4,), "float32", cupy.cuda.MemoryPointer(memory, 2), (6,))
    if name == "numba":
        load("numba", "numba.cuda")
        return importlib.import_module("numba.cuda").as_cuda_array(Window(base), sync=False)
    return pycuda_ready().GPUArray((4,), np.float32, base=base, gpudata=base.ptr + 2, strides=(6,))


@pytest.mark.parametrize("name", ["cupy", "numba", "pycuda"])
def test_elements_between_those_of_any_array_are_copied(name):
    raw = np.arange(64, dtype=np.uint8)
    expected = np.ndarray((4,), np.float32, raw, 2, (6,))
    foreign = between(name, gi.array(raw, device="cuda"))
    _, _, error = agree(foreign)
    assert "copyif" in error.fix
    plan, x, _ = agree(foreign, copyif=True)
    assert plan.bytes == 16
    assert x.get().tobytes() == expected.tobytes()
    side = gi.Stream()
    with gi.stream(side):  # what the copy left behind is waited for on other streams too
        assert (x + 0).get().tobytes() == (expected + 0).tobytes()


def test_pending_signs_of_strided_tensors():
    torch = load("torch")
    z = (torch.arange(6, device="cuda") + 1j).to(torch.complex64).reshape(2, 3)
    for tensor in (z.T.conj(), z.conj().imag, z[:, ::2].conj()):
        plan, x, _ = agree(tensor, copyif=True)
        assert plan.copied
        expected = tensor.resolve_conj().resolve_neg().cpu().numpy()
        np.testing.assert_array_equal(x.get(), expected)


# ---- kinds of memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_managed_memory(name):
    """Shared, or refused as explain says; never another memory unasked."""
    cupy = load("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc):
        a = cupy.arange(64, dtype="float32")
    x = gi.from_any(a)
    assert x.memory == "managed"
    lib = peer(name)
    _, made, error = agree(x, name)
    if error is not None:
        return
    assert lib.ptr(made) == x.ptr
    np.testing.assert_array_equal(gi.from_any(made).get(), np.arange(64, dtype=np.float32))


def test_memory_of_numba_that_the_host_sees_too():
    load("numba", "numba.cuda")
    cuda = importlib.import_module("numba.cuda")
    mapped = cuda.mapped_array(8, np.float32)
    mapped[:] = 3
    x = gi.from_any(mapped)
    assert gi.explain(mapped).shared
    assert x.tolist() == [3] * 8
    x.fill(4)
    gi.synchronize()
    assert mapped.tolist() == [4] * 8


# ---- lifetimes on the device's clock ------------------------------------------------------------

MULTIPLY = """
extern "C" __global__ void multiply_them(float *dest, float *a, float *b, int n)
{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dest[i] = a[i] * b[i];
}
"""
N = 1 << 16


def overwrite():
    """Take whatever memory was given back, and write to it."""
    for _ in range(8):
        gi.full(N, -1, device="cuda")


def test_copies_made_for_a_kernel_live_until_it_is_through():
    cupy = load("cupy")
    raw = cupy.RawKernel(MULTIPLY, "multiply_them")
    safe = converters.cupy.kernel(raw, copyif=True)
    a, b = gi.array(host(2 * N), device="cuda"), gi.full(2 * N, 2, device="cuda")
    dest = gi.zeros(2 * N, device="cuda")
    safe((N // 256,), (256,), (dest[::2], a[::2], b[::2], np.int32(N)))  # compiled now
    dest.fill(0)
    gi.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as side:
        spin(side.ptr)
        safe((N // 256,), (256,), (dest[::2], a[::2], b[::2], np.int32(N)))
    overwrite()
    expected = np.zeros(2 * N, np.float32)
    expected[::2] = 2 * host(2 * N)[::2]
    np.testing.assert_array_equal(dest.get(), expected)


def test_temporaries_given_to_a_triton_kernel_live_until_it_is_through():
    torch = load("torch")
    load("triton")
    import triton_kernel

    dest = gi.zeros(128, device="cuda")

    def launch():
        triton_kernel.multiply[(1,)](
            dest, gi.array(host(128), device="cuda"), gi.full(128, 2, device="cuda"), 128, BLOCK=128
        )

    launch()
    dest.fill(0)
    gi.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        spin(side.cuda_stream)
        launch()
    for _ in range(16):
        gi.full(128, -1, device="cuda")
    np.testing.assert_array_equal(dest.get(), 2 * host(128))


def test_a_pool_of_pycuda_keeps_what_is_looked_at():
    gpuarray = pycuda_ready()
    tools = importlib.import_module("pycuda.tools")
    pool = tools.DeviceMemoryPool()
    g = gpuarray.to_gpu(host(N), allocator=pool.allocate)
    x = gi.from_any(g)
    assert x.ptr == int(g.gpudata)
    del g
    gc.collect()
    later = [gpuarray.to_gpu(np.full(N, -1, np.float32), allocator=pool.allocate) for _ in range(4)]
    assert x.ptr not in [int(other.gpudata) for other in later]
    np.testing.assert_array_equal(x.get(), host(N))
    side = gi.Stream()
    result = gi.empty(N, device="cuda")
    gi.synchronize()
    with gi.stream(side):
        spin(side.handle)
        result[...] = x
    del x, later
    gc.collect()
    for _ in range(4):
        gpuarray.to_gpu(np.full(N, -2, np.float32), allocator=pool.allocate)
    np.testing.assert_array_equal(result.get(), host(N))


# ---- geometry -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_what_a_subclass_shows_never_reaches_another_library(name):
    x = gi.array(host(4, 6), device="cuda")
    liar = _core.view(Liar, x)
    there = peer(name)  # sets PyCUDA up, where that is the one
    made = gi.to(liar, name)
    assert there.ptr(made) == x.ptr
    np.testing.assert_array_equal(gi.from_any(made).get(), host(4, 6))
    assert gi.shares_memory(liar, x)
    assert liar.data_ptr() == x.ptr


# ---- MPI ----------------------------------------------------------------------------------------


def test_what_mpi4py_reads():
    """mpi4py itself may be absent: this is what it asks for, DLPack first, then the older interface.

    DLPack version 1.0 without a stream (the caller synchronises) and without a copy; an address, a
    dense layout in either order, an element type, and the read-only mark.
    """
    whole = gi.array(host(4, 6), device="cuda")
    for x in (whole, whole.T, whole[1], whole[:0]):
        x.sync()
        kind, index = x.__dlpack_device__()
        capsule = x.__dlpack__(stream=-1, max_version=(1, 0), copy=False)
        seen = gi.from_dlpack(capsule)
        assert (int(kind), index) == (2, 0)
        assert (seen.shape, seen.nbytes, seen.dtype) == (x.shape, x.nbytes, x.dtype)
        interface = x.__cuda_array_interface__
        assert interface.get("mask") is None
        assert (interface["typestr"], interface["shape"]) == ("<f4", x.shape)
        assert interface["data"] == (x.ptr, False)
        if x.size:
            assert seen.ptr == x.ptr
            assert seen.strides == x.strides
    whole.readonly = True
    assert whole.__cuda_array_interface__["data"][1] is True
    assert gi.from_dlpack(whole.__dlpack__(stream=-1, max_version=(1, 0), copy=False)).readonly
    with pytest.raises(BufferError):  # the old capsule, which cannot say so
        whole.__dlpack__(stream=-1)

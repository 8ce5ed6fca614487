"""How the tests on a real GPU make, read and write arrays of each library."""

from __future__ import annotations

import functools
import importlib
import importlib.util

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters

# About 50 ms on an H200: longer than any conversion, so that a missing order shows.
SLOW_CYCLES = 100_000_000


def load(name, module=None):
    return pytest.importorskip(module or name)


def pycuda_ready():
    load("pycuda")
    converters.pycuda.init()
    return importlib.import_module("pycuda.gpuarray")


class ForeignType:
    """One library: make(host) uploads, read(a) downloads, ptr(a), write(a, value) fills in place."""

    mutable = True
    dtypes = ("float32", "float64", "int32", "uint8", "float16", "complex64", "bool")

    def held(self):
        """Bytes of device memory that this process has from the library; 0 where it counts none."""
        return 0


class Torch(ForeignType):
    name = "torch"

    def __init__(self):
        self.torch = load("torch")

    def held(self):
        return self.torch.cuda.memory_allocated()

    def make(self, a):
        return self.torch.from_numpy(np.ascontiguousarray(a).copy()).cuda()

    def read(self, t):
        return t.cpu().numpy()

    def ptr(self, t):
        return t.data_ptr()

    def write(self, t, value):
        t.fill_(value)

    def views(self, t):
        return [t.T, t[::2], t[:, 1:3], t[:0], t[1, 1]]

    def taken(self, array):
        """A tensor of what another library exports."""
        return self.torch.from_dlpack(array)

    def at(self, described):
        """A tensor on memory that somebody describes."""
        return self.torch.as_tensor(described, device="cuda")


class CuPy(ForeignType):
    name = "cupy"

    def __init__(self):
        self.cupy = load("cupy")

    def held(self):
        return self.cupy.get_default_memory_pool().used_bytes()

    def make(self, a):
        return self.cupy.asarray(a)

    def read(self, a):
        return self.cupy.asnumpy(a)

    def ptr(self, a):
        return a.data.ptr

    def write(self, a, value):
        a[...] = value

    def views(self, a):
        return [a.T, a[::2], a[::-1], a[:, ::-2], a[:0], a[1, 1]]

    def taken(self, array):
        """An array of what another library exports."""
        return self.cupy.from_dlpack(array)

    def at(self, described):
        """An array on memory that somebody describes."""
        return self.cupy.asarray(described)


class Numba(ForeignType):
    name = "numba"

    def __init__(self):
        load("numba", "numba.cuda")
        self.cuda = importlib.import_module("numba.cuda")

    def make(self, a):
        return self.cuda.to_device(np.ascontiguousarray(a))

    def read(self, a):
        return a.copy_to_host()

    def ptr(self, a):
        return int(a.__cuda_array_interface__["data"][0])

    def write(self, a, value):
        a[:] = np.full(a.shape, value, a.dtype)

    def views(self, a):
        return [a[::2], a[:, 1:3], a[1]]


class Jax(ForeignType):
    name = "jax"
    mutable = False
    dtypes = ("float32", "int32", "uint8", "float16", "complex64", "bool")

    def __init__(self):
        self.jax = load("jax")
        if not [d for d in self.jax.devices() if d.platform == "gpu"]:
            pytest.skip("jax has no GPU")

    def held(self):
        return self.jax.devices("gpu")[0].memory_stats()["bytes_in_use"]

    def make(self, a):
        made = self.jax.device_put(np.ascontiguousarray(a), self.jax.devices("gpu")[0])
        return made.block_until_ready()

    def read(self, a):
        return np.asarray(a)

    def ptr(self, a):
        return a.unsafe_buffer_pointer()

    def views(self, a):
        return []


class PyCuda(ForeignType):
    name = "pycuda"

    def __init__(self):
        self.gpuarray = pycuda_ready()

    def make(self, a):
        return self.gpuarray.to_gpu(np.ascontiguousarray(a))

    def read(self, a):
        return a.get()

    def ptr(self, a):
        return int(a.gpudata or 0)

    def write(self, a, value):
        a.set(np.full(a.shape, value, a.dtype))

    def views(self, a):
        return [a[::2], a[:, 1:3], a.T, a[1]]


class TvmFfi(ForeignType):
    name = "tvm_ffi"
    dtypes = ("float32", "float64", "int32", "uint8", "float16", "bool")

    def __init__(self):
        self.tvm_ffi = load("tvm_ffi")
        self.source = Torch() if importlib.util.find_spec("torch") else CuPy()

    def make(self, a):
        return self.tvm_ffi.from_dlpack(self.source.make(a))

    def read(self, t):
        return self.source.read(self.source.taken(t))

    def ptr(self, t):
        return t.data_ptr()

    def write(self, t, value):
        self.source.write(self.source.taken(t), value)
        gi.synchronize()

    def views(self, t):
        return []


class Described:
    """What a view of cuda.core says of its memory, for libraries that read it without ours."""

    def __init__(self, view):
        self.view = view
        strides, dtype = view.strides, np.dtype(view.dtype)
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tuple(view.shape),
            "typestr": dtype.str,
            "strides": strides and tuple(s * dtype.itemsize for s in strides),
            "data": (view.ptr, False),
            "stream": None,
        }


class CudaCore(ForeignType):
    name = "cuda_core"

    def __init__(self):
        self.utils = load("cuda.core", "cuda.core.utils")
        self.source = CuPy() if importlib.util.find_spec("cupy") else Torch()

    def make(self, a):
        return self.utils.StridedMemoryView.from_dlpack(self.source.make(a), stream_ptr=1)

    def read(self, v):
        return self.source.read(self.source.at(Described(v)))

    def ptr(self, v):
        return v.ptr

    def write(self, v, value):
        self.source.write(self.source.at(Described(v)), value)
        gi.synchronize()

    def views(self, v):
        return []


PEERS = {cls.name: cls for cls in (Torch, CuPy, Numba, Jax, PyCuda, TvmFfi, CudaCore)}


@functools.cache
def peer(name):
    return PEERS[name]()


def spin(handle, cycles=SLOW_CYCLES):
    """Keep a stream busy for a while, by torch or by CuPy."""
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        if torch.version.cuda:
            with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
                torch.cuda._sleep(cycles)
            return
    cupy = load("cupy")
    source = (
        'extern "C" __global__ void spin(long long n) '
        "{ long long t = clock64(); while (clock64() - t < n) {} }"
    )
    kernel = cupy.RawKernel(source, "spin")
    with gi.devices.as_stream(handle) as s, cupy.cuda.Stream.from_external(s):
        kernel((1,), (1,), (np.int64(cycles),))

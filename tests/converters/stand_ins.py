"""Stand-ins with the documented attributes of libraries that need a GPU, or Python 2, to run.

Their device memory comes from the driver that the tests run with, the fake one in CI. Faults of the
originals that a converter must survive are reproduced and marked.
"""

from __future__ import annotations

import ctypes
import os
import sys
import types
from collections import defaultdict

import numpy as np


class Driver:
    """The few driver calls that the stand-ins need."""

    def __init__(self):
        self.lib = ctypes.CDLL(os.environ.get("GPUINTEROP_LIBCUDA", "libcuda.so.1"))
        self.check("cuInit", 0)

    def check(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            raise RuntimeError(f"{name} returned {status}")

    def primary(self, ordinal=0):
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        return context

    def new_context(self, ordinal=0):
        context = ctypes.c_void_p()
        self.check("cuCtxCreate_v2", ctypes.byref(context), 0, ordinal)
        self.pop()  # a new context is current at once
        return context

    def push(self, context):
        self.check("cuCtxPushCurrent_v2", context)

    def pop(self):
        context = ctypes.c_void_p()
        self.check("cuCtxPopCurrent_v2", ctypes.byref(context))

    def current(self):
        context = ctypes.c_void_p()
        self.check("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    def allocate(self, nbytes):
        ptr = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(ptr), ctypes.c_size_t(nbytes))
        return ptr.value

    def free(self, ptr):
        self.check("cuMemFree_v2", ctypes.c_uint64(ptr))

    # The fake driver's memory is the host's, so values are read and written where they are.
    def write(self, ptr, host):
        host = np.ascontiguousarray(host)
        ctypes.memmove(ptr, host.ctypes.data, host.nbytes)

    def read(self, ptr, count, dtype="float32"):
        self.check("cuCtxSynchronize")
        host = np.empty(count, dtype)
        ctypes.memmove(host.ctypes.data, ptr, host.nbytes)
        return host


def values(x):
    """The elements of an array of ours in fake GPU memory, read through its address and strides.

    The fake driver runs no kernels, so a strided array cannot be downloaded.
    """
    x.sync()
    if not x.size:
        return np.empty(x.shape, x.dtype)
    window = types.SimpleNamespace(
        __array_interface__={
            "shape": x.shape, "strides": tuple(x.strides), "typestr": x.dtype.str,
            "data": (x.ptr, True), "version": 3,
        }
    )  # fmt: skip
    return np.array(window)


# ---- PyCUDA -------------------------------------------------------------------------------------


class DeviceAllocation:
    """Frees on death, as PyCUDA's; counts the living."""

    alive = 0

    def __init__(self, driver, nbytes):
        self.driver, self.ptr = driver, driver.allocate(nbytes)
        type(self).alive += 1

    def __int__(self):
        return self.ptr

    __index__ = __int__

    def free(self):
        # As PyCUDA does, with a context made current for the call.
        self.driver.push(self.driver.primary())
        self.driver.free(self.ptr)
        self.driver.pop()
        type(self).alive -= 1
        self.ptr = None

    def __del__(self):
        if self.ptr is not None:
            self.free()


class PointerHolderBase:
    """Knows its address by a method only."""

    def __init__(self, allocation):
        self.allocation = allocation

    def get_pointer(self):
        return self.allocation.ptr


class LogicError(Exception):
    pass


def pycuda(driver, name="pycuda"):
    """The modules of a PyCUDA that works with `driver`; install them with `installed`."""
    package = types.ModuleType(name)
    drv = types.ModuleType(f"{name}.driver")
    gpuarray = types.ModuleType(f"{name}.gpuarray")
    tools = types.ModuleType(f"{name}.tools")
    package.__path__ = []
    stack = []

    class Context:
        def __init__(self, handle):
            self.handle = handle

        def push(self):
            driver.push(self.handle)
            stack.append(self)

        @staticmethod
        def pop():
            stack.pop()
            driver.pop()

        @staticmethod
        def get_current():
            return stack[-1] if stack else None

        @staticmethod
        def get_device():
            if driver.current() is None:
                raise LogicError("cuCtxGetDevice failed: invalid device context")
            return Device(0)

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal

        def __eq__(self, other):
            return self.ordinal == other.ordinal

        __hash__ = None

        @staticmethod
        def count():
            return 2

        def retain_primary_context(self):
            return Context(driver.primary(self.ordinal))

        def make_context(self):
            return Context(driver.new_context(self.ordinal))

    drv.Context, drv.Device, drv.LogicError, drv.init = Context, Device, LogicError, lambda: None
    drv.mem_alloc = lambda nbytes: DeviceAllocation(driver, nbytes)
    tools.cleared = []
    tools.clear_context_caches = lambda: tools.cleared.append(len(stack))

    class GPUArray:
        """The documented attributes; strides in bytes, not validated, as in PyCUDA."""

        __module__ = f"{name}.gpuarray"

        def __init__(
            self, shape, dtype, allocator=None, base=None, gpudata=None, strides=None, order="C"
        ):
            drv.Context.get_device()  # even to wrap a pointer
            self.shape = tuple(int(n) for n in shape)
            self.dtype = np.dtype(dtype)
            probe = np.empty(self.shape, self.dtype, order=order)
            self.strides = probe.strides if strides is None else tuple(strides)
            self.size = self.mem_size = probe.size
            self.itemsize, self.nbytes = self.dtype.itemsize, probe.nbytes
            self.allocator = allocator or drv.mem_alloc
            if gpudata is None:
                assert base is None
                self.gpudata = self.allocator(self.nbytes) if self.size else None
            else:
                self.gpudata = gpudata
            self.base = base
            self._grid, self._block = (1, 1), (32, 1, 1)

        @property
        def ndim(self):
            return len(self.shape)

        @property
        def ptr(self):
            return self.gpudata.__int__()

        @property
        def flags(self):
            probe = np.lib.stride_tricks.as_strided(
                np.empty(1, self.dtype), self.shape, self.strides, writeable=False
            )
            flags = types.SimpleNamespace()
            flags.c_contiguous, flags.f_contiguous = (
                probe.flags.c_contiguous,
                probe.flags.f_contiguous,
            )
            flags.forc = flags.c_contiguous or flags.f_contiguous
            return flags

        @property
        def __cuda_array_interface__(self):
            ptr = int(self.gpudata) if self.gpudata is not None else 0
            return {
                "shape": self.shape, "strides": self.strides, "data": (ptr, False),
                "typestr": self.dtype.str, "stream": None, "version": 3,
            }  # fmt: skip

        def view_of(self, host, key):
            """What slicing gives: a view whose gpudata is a plain int."""
            part = host[key]
            start = part.__array_interface__["data"][0] - host.__array_interface__["data"][0]
            return GPUArray(
                part.shape, self.dtype, base=self, gpudata=int(self.gpudata) + start,
                strides=part.strides,
            )  # fmt: skip

    gpuarray.GPUArray = GPUArray

    def to_gpu(host):
        made = GPUArray(host.shape, host.dtype, order="F" if host.flags.fnc else "C")
        if host.size:
            driver.write(int(made.gpudata), host.ravel(order="K"))
        return made

    gpuarray.to_gpu = to_gpu
    package.driver, package.gpuarray, package.tools = drv, gpuarray, tools
    return {m.__name__: m for m in (package, drv, gpuarray, tools)}


# ---- CUDAMat ------------------------------------------------------------------------------------


def cudamat(driver, name="cudamat"):
    """A CUDAMat for Python 3 on the memory of `driver`."""
    module = types.ModuleType(name)

    class Struct(ctypes.Structure):
        _fields_ = (
            ("data_host", ctypes.POINTER(ctypes.c_float)),
            ("data_device", ctypes.POINTER(ctypes.c_float)),
            ("on_device", ctypes.c_int),
            ("on_host", ctypes.c_int),
            ("size", ctypes.c_int * 2),
            ("is_trans", ctypes.c_int),
            ("owns_data", ctypes.c_int),
        )

    def address(mat):
        return ctypes.cast(mat.data_device, ctypes.c_void_p).value or 0

    class TransposedCUDAMatrix:
        __module__ = f"{name}.cudamat"

        def __init__(self, mat):
            self.mat = Struct()
            ctypes.memmove(ctypes.byref(self.mat), ctypes.byref(mat), ctypes.sizeof(mat))
            self.mat.is_trans, self.mat.owns_data = 1, 0
            self.p_mat = ctypes.pointer(self.mat)

    class CUDAMatrix:
        __module__ = f"{name}.cudamat"

        def __init__(self, array, copy_to_device=True):
            if isinstance(array, np.ndarray):
                self.numpy_array = np.array(array, np.float32, order="F", ndmin=2)
                self.mat = Struct()
                self.mat.size[0], self.mat.size[1] = self.numpy_array.shape
                self.size = self.mat.size
                self.mat.on_host, self.mat.owns_data = 1, 1
                if copy_to_device:
                    self.copy_to_device()
            else:
                self.mat = array
            self.p_mat = ctypes.pointer(self.mat)
            self.T = TransposedCUDAMatrix(self.mat)

        def copy_to_device(self):
            ptr = driver.allocate(self.numpy_array.nbytes)
            driver.write(ptr, self.numpy_array.ravel(order="F"))
            self.mat.data_device = ctypes.cast(ctypes.c_void_p(ptr), ctypes.POINTER(ctypes.c_float))
            self.mat.on_device = 1

        @property
        def shape(self):
            return (self.mat.size[0], self.mat.size[1])

        def set_trans(self, flag):
            self.mat.is_trans = int(flag)

        def slice(self, first, last):
            part = Struct()
            rows, columns = self.shape
            # Fault of the original: a column vector is offset by whole columns as well.
            start = address(self.mat) + 4 * first * rows
            part.size[0], part.size[1] = (last - first, 1) if columns == 1 else (rows, last - first)
            part.on_device, part.owns_data = self.mat.on_device, 0
            part.data_device = ctypes.cast(ctypes.c_void_p(start), ctypes.POINTER(ctypes.c_float))
            made = CUDAMatrix(part)
            made.sliceof = getattr(self, "sliceof", self)
            return made

        def asarray(self):
            rows, columns = self.shape
            flat = driver.read(address(self.mat), rows * columns)
            self.numpy_array = flat.reshape((rows, columns), order="F")
            return self.numpy_array

        def free_device_memory(self):
            if self.mat.owns_data and self.mat.on_device:
                driver.push(driver.primary())  # the runtime API finds its context itself
                driver.free(address(self.mat))
                driver.pop()
                self.mat.on_device = 0

        def __del__(self):
            # The driver may be gone: gnumpy's cache keeps matrices until the very end.
            if "mat" in self.__dict__ and not sys.is_finalizing():
                self.free_device_memory()

    module.cudamat, module.CUDAMatrix = Struct, CUDAMatrix
    module.TransposedCUDAMatrix = TransposedCUDAMatrix
    return module


# ---- npmat --------------------------------------------------------------------------------------


def npmat(dtype="float32", name="npmat"):
    """npmat: the stand-in for CUDAMat that gnumpy brings, on host memory."""
    module = types.ModuleType(name)
    module.__DTYPE__ = np.dtype(dtype)

    class CUDAMatrix:
        __module__ = name

        def __init__(self, array, ref=True):
            kept = np.asarray(array, module.__DTYPE__, order="F")
            self.numpy_array = kept if kept.ndim == 2 else kept.reshape((kept.size, 1), order="F")
            self.trans = False

        @property
        def mat(self):
            return self.numpy_array

        @property
        def num_elems(self):
            return self.numpy_array.size

        @property
        def shape(self):
            return self.numpy_array.shape

        def reshape(self, shape):
            self.numpy_array = self.numpy_array.reshape(shape, order="F")
            return self

        def set_trans(self, flag):
            if flag:
                self.numpy_array = self.numpy_array.T.copy(order="F")

        def asarray(self):
            return self.numpy_array

        def free_device_memory(self):
            pass

    module.CUDAMatrix = CUDAMatrix
    return module


# ---- gnumpy -------------------------------------------------------------------------------------


def gnumpy(backend, name="gnumpy"):
    """Gnumpy over a CUDAMat or an npmat, with its reuse cache."""
    module = types.ModuleType(name)
    module._cudamat = backend
    module._cmsForReuse = defaultdict(list)

    def new_matrix(size):
        if module._cmsForReuse[size]:
            return module._cmsForReuse[size].pop()  # contents not cleared
        return backend.CUDAMatrix(np.zeros((max(size, 1), 1), np.float32))

    class garray:
        __module__ = name

        def __init__(self, data, shape=None, is_alias_of=None):
            if shape is None:
                host = np.asarray(data, np.float32)
                self.shape, self.size = host.shape, host.size
                self._base = backend.CUDAMatrix(
                    host.reshape(-1, 1) if host.size else np.zeros((1, 1))
                )
                self._is_alias_of = None
            else:
                assert isinstance(data, backend.CUDAMatrix)
                self._base, self.shape = data, tuple(shape)
                self.size = int(np.prod(self.shape, dtype=np.int64))
                self._is_alias_of = is_alias_of
            self.ndim = len(self.shape)

        @property
        def ndarray(self):
            return (
                np.asarray(self._base.asarray()).ravel(order="F")[: self.size].reshape(self.shape)
            )

        def __del__(self):
            if getattr(self, "_is_alias_of", self) is None:
                module._cmsForReuse[self.size].append(self._base)
            elif "_is_alias_of" in self.__dict__:
                assert isinstance(self._is_alias_of, garray)

    def empty(shape):
        shape = tuple(shape)
        made = garray(new_matrix(int(np.prod(shape))), shape, None)
        made._is_alias_of = None
        return made

    module.garray, module.empty = garray, empty
    module.free_reuse_cache = module._cmsForReuse.clear
    return module


def installed(monkeypatch, *modules):
    """Put modules (or dicts of them) where `import` finds them, for one test."""
    for entry in modules:
        found = entry if isinstance(entry, dict) else {entry.__name__: entry}
        for name, module in found.items():
            monkeypatch.setitem(sys.modules, name, module)

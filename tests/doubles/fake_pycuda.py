"""Fakes with the documented attributes of PyCUDA, and what all fakes share.

Their device memory comes from the driver that the tests run with, the fake one in CI. Faults of the
originals that a converter must survive are reproduced and marked.
"""

import ctypes
import sys
import threading
import types

import numpy as np

from doubles import driver


# The fake driver's memory is the host's, so values are read and written where they are.
def write(ptr, host):
    host = np.ascontiguousarray(host)
    ctypes.memmove(ptr, host.ctypes.data, host.nbytes)


def read(ptr, count, dtype="float32"):
    driver.call("cuCtxSynchronize")
    host = np.empty(count, dtype)
    ctypes.memmove(host.ctypes.data, ptr, host.nbytes)
    return host


def window(x):
    """The memory of a gpuinterop array in fake GPU memory, as an array of NumPy."""
    base = (ctypes.c_char * x.itemsize).from_address(x.ptr)
    return np.lib.stride_tricks.as_strided(np.frombuffer(base, x.dtype), x.shape, x.strides)


def values(x):
    """The elements of a gpuinterop array in fake GPU memory, read through its address and strides.

    A download of a strided array would have g++ compile a kernel.
    """
    x.sync()
    return np.array(window(x)) if x.size else np.empty(x.shape, x.dtype)


# ---- PyCUDA -------------------------------------------------------------------------------------


class DeviceAllocation:
    """Frees on death, as PyCUDA's; counts the living."""

    alive = 0

    def __init__(self, nbytes):
        self.ptr = driver.allocate(nbytes, driver.current_context())
        type(self).alive += 1

    def __int__(self):
        return self.ptr

    __index__ = __int__

    def free(self):
        driver.free(self.ptr)  # as PyCUDA does, with a context made current for the call
        type(self).alive -= 1
        self.ptr = None

    def __del__(self):
        if self.ptr is not None:
            self.free()


class PointerHolderBase:
    """Provides its address only through a method."""

    def __init__(self, allocation):
        self.allocation = allocation

    def get_pointer(self):
        return self.allocation.ptr


class LogicError(Exception):
    pass


def pycuda():
    """The modules of a PyCUDA; install them with `installed`."""
    package = types.ModuleType("pycuda")
    drv = types.ModuleType("pycuda.driver")
    gpuarray = types.ModuleType("pycuda.gpuarray")
    tools = types.ModuleType("pycuda.tools")
    package.__path__ = []

    class OfThread(threading.local):
        """PyCUDA's stack of contexts is one a thread, as the driver's."""

        def __init__(self):
            self.contexts = []

    stacks = OfThread()

    class Context:
        def __init__(self, handle, ordinal):
            self.handle, self.ordinal = handle, ordinal

        def push(self):
            driver.push(self.handle)
            stacks.contexts.append(self)

        @staticmethod
        def pop():
            if not stacks.contexts:
                raise LogicError("cannot pop non-current context")
            stacks.contexts.pop()
            driver.pop()

        @staticmethod
        def get_current():
            return stacks.contexts[-1] if stacks.contexts else None

        @staticmethod
        def get_device():
            if driver.current_context() is None:
                raise LogicError("cuCtxGetDevice failed: invalid device context")
            return Device(stacks.contexts[-1].ordinal if stacks.contexts else 0)

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
            return Context(driver.primary(self.ordinal), self.ordinal)

        def make_context(self):
            return Context(driver.new_context(self.ordinal), self.ordinal)

    drv.Context, drv.Device, drv.LogicError, drv.init = Context, Device, LogicError, lambda: None
    drv.mem_alloc = DeviceAllocation
    tools.cleared = []
    tools.clear_context_caches = lambda: tools.cleared.append(len(stacks.contexts))

    class GPUArray:
        """The documented attributes; strides in bytes, not validated, as in PyCUDA."""

        __module__ = "pycuda.gpuarray"
        __qualname__ = "GPUArray"

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
            write(int(made.gpudata), host.ravel(order="K"))
        return made

    gpuarray.to_gpu = to_gpu
    package.driver, package.gpuarray, package.tools = drv, gpuarray, tools
    return {m.__name__: m for m in (package, drv, gpuarray, tools)}


def installed(monkeypatch, *modules):
    """Put modules (or dicts of them) where `import` finds them, for one test."""
    for entry in modules:
        found = entry if isinstance(entry, dict) else {entry.__name__: entry}
        for name, module in found.items():
            monkeypatch.setitem(sys.modules, name, module)

"""Fakes with the documented attributes of PyCUDA, and what all fakes share.

Their device memory comes from the driver that the tests run with, the fake one in CI. Faults of the
originals that a converter must survive are reproduced and marked.
"""

import ctypes
import sys
import threading
import types

import numpy as np

from doubles import driver, fake_driver


class Driver:
    """The few driver calls that the fakes need."""

    check = staticmethod(driver.call)
    calls = staticmethod(fake_driver.calls)
    current = staticmethod(driver.current_context)
    lib = property(lambda self: driver.libcuda())

    def __init__(self):
        self.check("cuInit", 0)

    def primary(self, ordinal=0):
        return ctypes.c_void_p(driver.primary(ordinal))

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
    """The elements of a gpuinterop array in fake GPU memory, read through its address and strides.

    A download of a strided array would have g++ compile a kernel.
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
    """Provides its address only through a method."""

    def __init__(self, allocation):
        self.allocation = allocation

    def get_pointer(self):
        return self.allocation.ptr


class LogicError(Exception):
    pass


def pycuda(driver, name="pycuda"):
    """The modules of a PyCUDA that works with a `Driver`; install them with `installed`."""
    package = types.ModuleType(name)
    drv = types.ModuleType(f"{name}.driver")
    gpuarray = types.ModuleType(f"{name}.gpuarray")
    tools = types.ModuleType(f"{name}.tools")
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
            if driver.current() is None:
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
    drv.mem_alloc = lambda nbytes: DeviceAllocation(driver, nbytes)
    tools.cleared = []
    tools.clear_context_caches = lambda: tools.cleared.append(len(stacks.contexts))

    class GPUArray:
        """The documented attributes; strides in bytes, not validated, as in PyCUDA."""

        __module__ = f"{name}.gpuarray"
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
            driver.write(int(made.gpudata), host.ravel(order="K"))
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

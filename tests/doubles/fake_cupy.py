"""A CuPy whose functions are NumPy's, in the memory of the fake driver, with the attributes that gpuinterop reads."""

import ctypes
import importlib.machinery
import importlib.util
import sys
import textwrap
import types
import weakref
from pathlib import Path

import numpy as np

from doubles import driver


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, max(device_id, 0)


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class ndarray:
    __module__ = "cupy"

    def __init__(self, shape, dtype=float, memptr=None, strides=None):
        dtype = np.dtype(dtype)
        if memptr is None:
            nbytes = max(1, int(np.prod(shape)) * dtype.itemsize)
            memory = UnownedMemory(driver.allocate(nbytes), nbytes, None)
            weakref.finalize(memory, free, memory.ptr)
            memptr = MemoryPointer(memory, 0)
        self.data, memory = memptr, memptr.mem
        buffer = (ctypes.c_char * memory.size).from_address(memory.ptr) if memory.size else b""
        self.host = np.ndarray(shape, dtype, buffer, memptr.ptr - memory.ptr, strides)

    shape = property(lambda self: self.host.shape)
    strides = property(lambda self: self.host.strides)
    dtype = property(lambda self: self.host.dtype)
    device = property(lambda self: types.SimpleNamespace(id=self.data.device_id))
    get = property(lambda self: self.host.copy)
    _c_contiguous = property(lambda self: self.host.flags.c_contiguous)


def free(ptr):
    with driver.Current():
        driver.call("cuMemFree_v2", ctypes.c_void_p(ptr))


def to_host(value):
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_host, value))
    return value.host if isinstance(value, ndarray) else value


def to_device(value):
    if isinstance(value, (list, tuple)):
        items = map(to_device, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype == object:
        return value
    made = ndarray(value.shape, value.dtype)
    made.host[...] = value
    return made


def on_the_device(function):
    def call(*args, **kwargs):
        with driver.Current():
            driver.call("cuCtxSynchronize")  # NumPy computes at once, and not in a stream
        return to_device(
            function(*map(to_host, args), **{k: to_host(v) for k, v in kwargs.items()})
        )

    return call


class Namespace(types.ModuleType):
    """A module with the functions of one of NumPy's modules."""

    def __init__(self, name, module):
        super().__init__(name)
        self.module, self.__spec__ = module, importlib.machinery.ModuleSpec(name, None)

    def __getattr__(self, name):
        found = getattr(self.module, name)
        return on_the_device(found) if callable(found) else found


def install():
    """Let this process import this CuPy, as if no other were installed."""
    cupy = sys.modules["cupy"] = Namespace("cupy", np)
    cupy.__version__, cupy.ndarray = "14.0.0", ndarray
    stream = types.SimpleNamespace(ptr=0)
    cupy.cuda = types.SimpleNamespace(
        UnownedMemory=UnownedMemory, MemoryPointer=MemoryPointer,
        get_current_stream=lambda device=0: stream,
        runtime=types.SimpleNamespace(getDevice=lambda: 0),
    )  # fmt: skip
    for part in ("linalg", "fft"):
        setattr(cupy, part, Namespace(f"cupy.{part}", getattr(np, part)))
    cupy.asarray = lambda value: to_device(np.asarray(value))
    scipys = Namespace("cupyx.scipy", None)
    sys.modules["cupyx"], sys.modules["cupyx.scipy"] = Namespace("cupyx", None), scipys
    sys.modules["cupyx"].scipy = scipys
    for part in ("ndimage", "signal", "special"):
        if importlib.util.find_spec("scipy"):
            made = Namespace(f"cupyx.scipy.{part}", importlib.import_module(f"scipy.{part}"))
            setattr(scipys, part, made)
            sys.modules[made.__name__] = made
    sys.modules["cupy_backends"] = None


def run(code: str, *folders: str) -> str:
    """Run a program with this CuPy on the fake driver, and modules of these folders of tests/; return its output.

    It has a process of its own, because the core keeps the class that it saw.
    """
    tests = Path(__file__).parents[1]
    begin = f"""
import sys, warnings

warnings.simplefilter("ignore")
sys.path[:0] = {[str(tests / folder) for folder in ("", *folders)]!r}
from doubles import fake_driver

fake_driver.use()
from doubles import fake_cupy

fake_cupy.install()
"""
    return driver.run(begin + textwrap.dedent(code), timeout=300)

"""Shared by these tests: a C++ library, hand-made structs, and objects that implement a protocol."""

import ctypes
import functools
from collections.abc import Callable
from ctypes import (
    POINTER,
    PYFUNCTYPE,
    Structure,
    addressof,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_long,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from pathlib import Path

from doubles import driver, fake_driver

HERE = Path(__file__).resolve().parent

CPU, CUDA, PINNED, MANAGED = (1, 0), (2, 0), (3, 0), (13, 0)
FLOAT32 = (2, 32, 1)
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"


# ---- the C++ peer -------------------------------------------------------------------------------


@functools.cache
def peer() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(fake_driver.built("peer", "peer.cpp")))
    lib.peer_deleted.restype = c_long
    for ending in ("count_legacy", "count_versioned", "throw_legacy", "throw_versioned", "table"):
        getattr(lib, f"peer_{ending}").restype = c_void_p
    for name in ("peer_delete_on_thread", "peer_delete_at_exit", "peer_delete_while_finalizing"):
        getattr(lib, name).argtypes = [c_void_p]
        getattr(lib, name).restype = None
    lib.peer_delete_later.argtypes = [c_void_p, ctypes.c_int]
    lib.peer_delete_later.restype = None
    return lib


def counting() -> Callable[[], int]:
    """A function that counts the structs of the C++ library and of `struct` that were deleted since this call."""
    before = peer().peer_deleted()
    return lambda: peer().peer_deleted() - before


# ---- DLPack's structs, written down from the standard ---------------------------------------------


class Version(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class LegacyManaged(Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class VersionedManaged(Structure):
    _fields_ = [
        ("version", Version),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


api = ctypes.pythonapi
api.PyCapsule_New.restype = py_object
api.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]
api.PyCapsule_GetName.restype = c_char_p
api.PyCapsule_GetName.argtypes = [py_object]
api.PyCapsule_GetPointer.restype = c_void_p
api.PyCapsule_GetPointer.argtypes = [py_object, c_char_p]
api.PyCapsule_SetName.argtypes = [py_object, c_char_p]
api.PyCapsule_GetDestructor.restype = c_void_p
api.PyCapsule_GetDestructor.argtypes = [py_object]

_alive: list[object] = []  # names and structs: a capsule keeps pointers only


def forever(thing: object) -> object:
    _alive.append(thing)
    return thing


MEMORY = forever((ctypes.c_double * 512)(*range(512)))
ADDRESS = addressof(MEMORY)


def ints(values) -> object:
    return None if values is None else forever((c_int64 * max(len(values), 1))(*values))


def struct(
    *,
    shape=(2, 3),
    strides=(3, 1),
    dtype=FLOAT32,
    device=CPU,
    data=ADDRESS,
    byte_offset=0,
    ndim=None,
    flags=0,
    version=(1, 3),
    legacy=False,
    deleter="count",
) -> Structure:
    """A managed tensor; every field as the caller wants it.

    The deleter counts ("count"), counts and throws a C++ exception ("throw"), or is missing (None).
    """
    tensor = Tensor(
        data, *device, len(shape) if ndim is None else ndim, *dtype, byte_offset=byte_offset
    )
    if shape is not None:
        tensor.shape = ints(shape)
    if strides is not None:
        tensor.strides = ints(strides)
    layout = "legacy" if legacy else "versioned"
    ending = getattr(peer(), f"peer_{deleter}_{layout}")() if deleter else None
    if legacy:
        return forever(LegacyManaged(tensor, None, ending))
    return forever(VersionedManaged(Version(*version), None, ending, flags, tensor))


def capsule(managed: Structure | None = None, name: bytes | None = None, **fields) -> object:
    managed = struct(**fields) if managed is None else managed
    if name is None:
        name = LEGACY if isinstance(managed, LegacyManaged) else VERSIONED
    return api.PyCapsule_New(addressof(managed), forever(name), None)


def name_of(cap: object) -> bytes:
    return api.PyCapsule_GetName(cap)


def content(cap: object) -> LegacyManaged | VersionedManaged:
    """The struct inside a capsule, without consuming it."""
    name = name_of(cap)
    kind = LegacyManaged if name == LEGACY else VersionedManaged
    return kind.from_address(api.PyCapsule_GetPointer(cap, name))


def consume(cap: object) -> int:
    """Take the struct as a consumer does: rename the capsule, own what is in it."""
    name = name_of(cap)
    pointer = api.PyCapsule_GetPointer(cap, name)
    api.PyCapsule_SetName(cap, forever(b"used_" + name))
    return pointer


# ---- producers in Python -----------------------------------------------------------------------


class Producer:
    """An object with __dlpack__ that exports what `make` returns, and records the keyword arguments."""

    def __init__(self, make=None, device=CPU, **fields):
        self.make = make or (lambda **_: capsule(device=device, **fields))
        self.device = device
        self.calls: list[dict] = []

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        return self.make(**keywords)

    def __dlpack_device__(self):
        return self.device


def with_table(index: int, name: bytes = b"dlpack_exchange_api", **members) -> object:
    """An object whose type publishes a C exchange API table of the C++ library."""
    cap = api.PyCapsule_New(peer().peer_table(index), forever(name), None)
    return type("ForeignType", (), {"__dlpack_c_exchange_api__": cap, **members})()


def interface(name="__cuda_array_interface__", drop=(), **entries) -> object:
    """An object with an array dictionary: float32, 2x3 at ADDRESS, with the given changes."""
    full = {"shape": (2, 3), "typestr": "<f4", "data": (ADDRESS, False), "version": 3, **entries}
    for key in drop:
        del full[key]
    return type("Interface", (), {name: full})()


def exchange_table(from_=None, to=None, stream=None) -> object:
    """A capsule with a C exchange API table of ctypes functions: for the types of `foreign_type`."""
    cast = [
        None if f is None else ctypes.cast(forever(f), c_void_p).value for f in (from_, to, stream)
    ]
    entries = (c_void_p * 7)(1 | 3 << 32, None, None, cast[0], cast[1], None, cast[2])
    return api.PyCapsule_New(addressof(forever(entries)), forever(b"dlpack_exchange_api"), None)


def entries_of(cls: type) -> object:
    """The table of a type as pointers: version, previous, allocator, from, to, borrow, stream."""
    at = api.PyCapsule_GetPointer(cls.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return (c_void_p * 7).from_address(at)


TO_STRUCT = PYFUNCTYPE(c_int, py_object, POINTER(c_void_p))
TO_OBJECT = PYFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
WORK_STREAM = PYFUNCTYPE(c_int, c_int, c_int32, POINTER(c_void_p))


def run(code: str, libcuda: object = None, **options) -> str:
    """Run code in a fresh interpreter that can import this module; see doubles.driver.run."""
    return driver.run(code, libcuda, PYTHONPATH=str(HERE), **options)

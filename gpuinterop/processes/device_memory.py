"""GPU memory that other processes can open: which of the driver's mechanisms an address allows, and the calls.

The calls go to the driver that the core has loaded. They leave no context current and drop the GIL.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from functools import cache
from typing import Any, NamedTuple

from gpuinterop import _core
from gpuinterop.errors import CudaError, DeviceError, ExchangeError, OutOfMemoryError

# Names of cuda.h, with the driver's values.
_POSIX_DESCRIPTOR = 1  # CUmemAllocationHandleType
_ON_DEVICE, _PINNED = 1, 1  # CUmemLocationType, CUmemAllocationType
_READ, _READ_WRITE = 1, 3  # CUmemAccess_flags
_LAZY_PEER_ACCESS = 1  # CUipcMem_flags
_NO_TIMING, _INTERPROCESS = 2, 4  # CUevent_flags
_LEGACY_CAPABLE, _HANDLE_TYPES, _POOL = 10, 14, 17  # CUpointer_attribute
_START, _SIZE, _BUFFER_ID, _MAPPED_SIZE, _MAPPED_START = 11, 12, 7, 18, 19
_OUT_OF_MEMORY, _HANDLE_BYTES = 2, 64
_LEGACY_STREAM = c_void_p(1)

# What this process calls each mechanism, for explain() and messages.
WORDS = {
    "vmm": "a descriptor of its virtual memory allocation",
    "pool": "a descriptor of its memory pool",
    "legacy": "a legacy IPC handle of its cudaMalloc block",
}


class _Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int), ("handle_types", c_int), ("location", _Location), ("windows", c_void_p),
        ("compression", c_ubyte), ("rdma", c_ubyte), ("usage", c_ushort), ("reserved", c_ubyte * 4),
    )  # fmt: skip


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", c_int))


class _Bytes(ctypes.Structure):
    """A handle of the driver, which is passed by value."""

    _fields_ = (("bytes", c_char * _HANDLE_BYTES),)


@cache
def _driver() -> Any:
    return ctypes.CDLL(_core.cuda_library_path())


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorName(code, byref(text))
        kind = OutOfMemoryError if code == _OUT_OF_MEMORY else CudaError
        raise kind(
            where="share", expected=f"{name} to succeed", got=(text.value or b"").decode() + f" ({code})",
            fix="send a copy: a pickle of the array, or share(x, copyif=True)",
        )  # fmt: skip


@cache
def _primary_context(index: int) -> c_void_p:
    _core.cuda_mem_info(index)  # starts the device in the core, with its errors
    device, context = c_int(), c_void_p()
    _call("cuDeviceGet", byref(device), index)
    _call("cuDevicePrimaryCtxRetain", byref(context), device)
    return context


@contextmanager
def _current(index: int) -> Iterator[None]:
    _call("cuCtxPushCurrent_v2", _primary_context(index))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", byref(c_void_p()))


def device_id(index: int) -> str:
    """Return the identity of a GPU, which is the same in every process."""
    device, identity = c_int(), (c_ubyte * 16)()
    _call("cuDeviceGet", byref(device), index)
    _call("cuDeviceGetUuid_v2", byref(identity), device)
    return bytes(identity).hex()


def device_of(identity: str) -> int:
    """Return the number that a GPU has in this process."""
    count = _core.cuda_device_count()
    for index in range(count):
        if device_id(index) == identity:
            return index
    raise DeviceError(
        where="open", expected="the GPU on which the array was shared",
        got=f"{count} other GPUs" if count else f"no GPU: {_core.cuda_unavailable_reason()}",
        fix="start the process with the same CUDA_VISIBLE_DEVICES, or send a pickle of the array",
    )  # fmt: skip


# ---- the owner ----------------------------------------------------------------------------------


class Allocation(NamedTuple):
    """The allocation that holds an address, and the mechanism that shares it; "" if there is none."""

    mechanism: str
    start: int
    nbytes: int
    number: int  # unique in the process that allocated it
    why_not: str = ""


def allocation_of(address: int, nbytes: int, index: int) -> Allocation:
    """Ask the driver which mechanism shares the memory at an address."""
    with _current(index):
        pool, types = _attribute(address, _POOL), _attribute(address, _HANDLE_TYPES)
        legacy, number = _attribute(address, _LEGACY_CAPABLE), _attribute(address, _BUFFER_ID)
        start, size = _attribute(address, _START), _attribute(address, _SIZE)
        if pool:
            exportable = bool(types & _POSIX_DESCRIPTOR)
            why = "" if exportable else "memory of a pool that other processes cannot open"
            return Allocation("pool" if exportable else "", start, size, number, why)
        if legacy:
            return Allocation("legacy", start, size, number)
        start, size = _attribute(address, _MAPPED_START), _attribute(address, _MAPPED_SIZE)
        if not types & _POSIX_DESCRIPTOR:
            return Allocation("", start, size, number, "memory without a descriptor")
        if not start <= address <= address + nbytes <= start + size:
            return Allocation("", start, size, number, "memory of several allocations")
        return Allocation("vmm", start, size, number)


def _attribute(address: int, which: int) -> int:
    """Return a property of an address, 0 if the driver does not have it."""
    value = c_uint64()
    code = _driver().cuPointerGetAttribute(byref(value), which, c_uint64(address))
    return 0 if code else value.value


def handle_of(found: Allocation, index: int) -> str:
    """Return the driver's handle of an allocation as text, "" for one that has a descriptor alone."""
    handle, start = _Bytes(), c_uint64(found.start)
    with _current(index):
        if found.mechanism == "legacy":
            _call("cuIpcGetMemHandle", byref(handle), start)
        elif found.mechanism == "pool":
            # The driver exports a pool before its pointers.
            for descriptor in descriptors_of(found, index):
                os.close(descriptor)
            _call("cuMemPoolExportPointer", byref(handle), start)
        else:
            return ""
    return bytes(handle).hex()


def descriptors_of(found: Allocation, index: int) -> list[int]:
    """Return new descriptors of an allocation, or of its pool."""
    descriptor, memory, none = c_int(-1), c_uint64(), c_uint64(0)
    with _current(index):
        if found.mechanism == "legacy":
            return []
        if found.mechanism == "pool":
            pool = c_void_p(_attribute(found.start, _POOL))
            _call(
                "cuMemPoolExportToShareableHandle", byref(descriptor), pool, _POSIX_DESCRIPTOR, none
            )
            return [descriptor.value]
        _call("cuMemRetainAllocationHandle", byref(memory), c_void_p(found.start))
        try:
            _call(
                "cuMemExportToShareableHandle", byref(descriptor), memory, _POSIX_DESCRIPTOR, none
            )
        finally:
            _call("cuMemRelease", memory)
        return [descriptor.value]


class ReadyEvent:
    """An event behind the work that is queued on the current stream, for other processes to wait for."""

    def __init__(self, index: int) -> None:
        self._index, self._event = index, c_void_p()
        handle = _Bytes()
        with _current(index):
            _call("cuEventCreate", byref(self._event), _NO_TIMING | _INTERPROCESS)
            _call("cuEventRecord", self._event, c_void_p(_core.current_stream_handle(index)))
            _call("cuIpcGetEventHandle", byref(handle), self._event)
        self.text = bytes(handle).hex()

    def __del__(self) -> None:
        if self._event.value and not is_over():
            with _current(self._index):
                _call("cuEventDestroy_v2", self._event)


def wait_for_event(text: str, index: int) -> None:
    """Let the current stream wait for a `ReadyEvent` of another process."""
    event = c_void_p()
    with _current(index):
        _call("cuIpcOpenEventHandle", byref(event), _bytes_of(text))
        try:
            _call("cuStreamWaitEvent", c_void_p(_core.current_stream_handle(index)), event, 0)
        finally:
            _call("cuEventDestroy_v2", event)  # once the stream has passed it


def _bytes_of(text: str) -> _Bytes:
    found = bytes.fromhex(text)
    if len(found) != _HANDLE_BYTES:
        raise ExchangeError(where="open", expected="a handle of the driver of 64 bytes",
                            got=f"{len(found)} bytes", fix="share the array again")  # fmt: skip
    return _Bytes.from_buffer_copy(found)


# ---- new memory, and memory of others ------------------------------------------------------------


class DeviceMapping:
    """GPU memory that the driver maps into this process; unmapped with the object, once all work on it is done."""

    address = 0

    def __init__(self, index: int, nbytes: int) -> None:
        self.index, self.nbytes = index, nbytes

    def _opened_at(self, address: int) -> None:
        """Hold another process's allocation, and of the owner's size no more than the driver has mapped.

        A driver that does not report the size leaves the owner's. The core still refuses an array that reaches
        beyond the allocation at the array's address.
        """
        self.address = address
        start, size = _attribute(address, _START), _attribute(address, _SIZE)
        if size:
            self.nbytes = min(self.nbytes, start + size - address)

    def __del__(self) -> None:
        if self.address and not is_over():
            with _current(self.index):
                self._end()

    def _end(self) -> None:
        raise NotImplementedError


class VirtualMemory(DeviceMapping):
    """A virtual memory allocation: a new one, or another process's. It lives until no process maps it."""

    def __init__(
        self, index: int, nbytes: int, descriptor: int = -1, readonly: bool = False
    ) -> None:
        super().__init__(index, nbytes)
        with _current(index):
            memory = self._new() if descriptor < 0 else self._imported(descriptor)
            try:
                self._map(memory, _READ if readonly else _READ_WRITE)
            finally:
                _call("cuMemRelease", memory)  # the mapping holds it

    def _new(self) -> c_uint64:
        memory, unit = c_uint64(), c_size_t()
        wanted = _Properties(_PINNED, _POSIX_DESCRIPTOR, _Location(_ON_DEVICE, self.index))
        _call("cuMemGetAllocationGranularity", byref(unit), byref(wanted), 0)
        self.nbytes = -(-self.nbytes // unit.value) * unit.value
        _call("cuMemCreate", byref(memory), c_size_t(self.nbytes), byref(wanted), c_uint64(0))
        return memory

    def _imported(self, descriptor: int) -> c_uint64:
        memory = c_uint64()
        _call(
            "cuMemImportFromShareableHandle", byref(memory), c_void_p(descriptor), _POSIX_DESCRIPTOR
        )
        return memory

    def _map(self, memory: c_uint64, flags: int) -> None:
        at, size, none = c_uint64(), c_size_t(self.nbytes), c_uint64(0)
        _call("cuMemAddressReserve", byref(at), size, c_size_t(0), none, none)
        try:
            _call("cuMemMap", at, size, c_size_t(0), memory, none)
            try:
                access = _Access(_Location(_ON_DEVICE, self.index), flags)
                _call("cuMemSetAccess", at, size, byref(access), c_size_t(1))
            except BaseException:
                _call("cuMemUnmap", at, size)
                raise
        except BaseException:
            _call("cuMemAddressFree", at, size)
            raise
        self.address = at.value

    def _end(self) -> None:
        at, size = c_uint64(self.address), c_size_t(self.nbytes)
        _call("cuMemUnmap", at, size)
        _call("cuMemAddressFree", at, size)


class PoolMemory(DeviceMapping):
    """An allocation of another process's pool."""

    def __init__(self, index: int, nbytes: int, descriptor: int, handle: str) -> None:
        super().__init__(index, nbytes)
        self._pool, at = c_void_p(), c_uint64()
        with _current(index):
            _call("cuMemPoolImportFromShareableHandle", byref(self._pool), c_void_p(descriptor),
                  _POSIX_DESCRIPTOR, c_uint64(0))  # fmt: skip
            try:
                _call("cuMemPoolImportPointer", byref(at), self._pool, byref(_bytes_of(handle)))
            except BaseException:
                _call("cuMemPoolDestroy", self._pool)
                raise
            self._opened_at(at.value)

    def _end(self) -> None:
        _call("cuMemFree_v2", c_uint64(self.address))
        _call("cuMemPoolDestroy", self._pool)


class LegacyMemory(DeviceMapping):
    """A cudaMalloc block of another process."""

    def __init__(self, index: int, nbytes: int, handle: str) -> None:
        super().__init__(index, nbytes)
        at = c_uint64()
        with _current(index):
            _call("cuIpcOpenMemHandle_v2", byref(at), _bytes_of(handle), _LAZY_PEER_ACCESS)
            self._opened_at(at.value)

    def _end(self) -> None:
        _call("cuIpcCloseMemHandle", c_uint64(self.address))


def open_memory(answer: dict[str, Any], index: int, given: list[int]) -> DeviceMapping:
    """Map the allocation that an owner has sent; `given` are descriptors, which the caller closes."""
    size = int(answer["size"])
    if answer["mechanism"] == "legacy":
        return LegacyMemory(index, size, answer["handle"])
    if len(given) != 1:
        raise wrong_descriptors(given)
    if answer["mechanism"] == "pool":
        return PoolMemory(index, size, given[0], answer["handle"])
    return VirtualMemory(index, size, given[0], bool(answer["readonly"]))


def wrong_descriptors(given: list[int]) -> ExchangeError:
    """Return the error for an answer with another number of descriptors than one."""
    return ExchangeError(
        where="open", expected="a descriptor of the memory", got=f"{len(given)} descriptors",
        fix="share the array again",
    )  # fmt: skip


def finish(index: int) -> None:
    """Wait for the driver's default stream, which waits for all uses of memory that the core has released."""
    with _current(index):
        _call("cuStreamSynchronize", _LEGACY_STREAM)


def is_over() -> bool:
    """Return whether the driver frees all memory itself: the process ends, or was forked."""
    return sys.is_finalizing() or _core.cuda_forked()

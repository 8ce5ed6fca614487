"""The opener's side of shared handles: memory mapped from an owner's answer, and arrays that hold it."""

from __future__ import annotations

import os
import socket
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from gpuinterop import _core
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.devices.foreign_handles import CPU, CUDA
from gpuinterop.errors import ExchangeError, GpuInteropError, short_repr
from gpuinterop.ndarray import CudaNdarray, GpuArray

from . import device_memory, host_memory, service

# The open files and allocations of other processes. Each is mapped once, because the core finds arrays that overlap by
# their addresses, and the driver opens an allocation of a pool only once.
_mapped: weakref.WeakValueDictionary[Any, host_memory.HostMapping | device_memory.DeviceMapping]
_mapped = weakref.WeakValueDictionary()
_lock = threading.RLock()


def _renew_lock() -> None:
    """Replace the lock in a child of a fork, because a thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Held:
    """Holds memory for the arrays over it, and the lease if another process owns it."""

    def __init__(self, memory: Any, lease: socket.socket | None = None) -> None:
        self.memory, self.lease = memory, lease

    def array(
        self, cls: Any, start: int, shape: Any, dtype: Any, code: int, index: int, readonly: bool = False
    ) -> Any:  # fmt: skip
        """Return a C-ordered array from a byte on. On a GPU the default stream waits for the end of its use."""
        address = self.memory.address + start
        stream = 1 if code == CUDA else None
        return _core.from_pointer(
            cls, address, shape, None, dtype, code, index, self, readonly, stream, "open"
        )

    def __del__(self) -> None:
        # Without its own reference, so that the last one ends in _release, under the lock.
        _ended.append((self.__dict__.pop("memory"), self.lease))
        _release()


_ended: list[tuple[Any, socket.socket | None]] = []


def _release() -> None:
    """Unmap memory without arrays, and end its leases.

    On a GPU this waits for the work on it, which would break a capture, so it then happens later.
    """
    while _ended:
        try:
            memory, lease = _ended.pop()
        except IndexError:  # another thread has taken it
            return
        waits = isinstance(memory, device_memory.DeviceMapping) and not device_memory.is_over()
        if waits and _core.capturing():
            return _ended.append((memory, lease))
        try:
            if waits:
                device_memory.finish(memory.index)
        finally:  # also after a failure of the GPU, else the owner would keep the array for ever
            with _lock:  # no other thread opens the allocation again while it is being unmapped
                del memory
            if lease is not None:
                service.end_lease(lease)


def open_shared(address: str, token: bytes) -> Any:
    """Return an array over the memory that another process offers."""
    _release()
    lease, answer, given = service.connect(address, token)
    try:
        return _array(address, answer, given, lease)
    except BaseException as error:
        # Before the lease ends, because the owner may free the memory then. The frames hold it as long as the error.
        traceback.clear_frames(error.__traceback__)
        service.end_lease(lease)
        if isinstance(error, _MALFORMED) and not isinstance(error, GpuInteropError):
            raise service.wrong_answer(
                f"{type(error).__name__}: {error}, from {short_repr(answer)}"
            ) from error
        raise
    finally:
        service.close_all(given)


# What reading a field raises that is absent, of another type or out of range.
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _array(address: str, answer: dict[str, Any], given: list[int], lease: socket.socket) -> Any:
    if answer["mechanism"] not in ("none", "file", *device_memory.WORDS):
        raise ExchangeError(
            where="open", expected="a mechanism that this version supports", got=short_repr(answer["mechanism"]),
            fix="use the same version of gpuinterop in both processes",
        )  # fmt: skip
    dtype = as_supported_dtype(answer["dtype"], "open")
    cls = CudaNdarray if answer["float32"] else GpuArray
    nbytes, start = int(answer["bytes"]), int(answer["start"])
    code, index = CPU, 0
    if answer["mechanism"] == "none":
        code, index = _place(answer["device"])
        empty = _core.empty(cls, answer["shape"], dtype, code, index, where="open")
        service.end_lease(lease)
        return empty
    if answer["mechanism"] == "file":
        memory: Any = _map_file(given, start + nbytes, bool(answer["readonly"]))
    else:
        code, index = CUDA, device_memory.device_of(answer["gpu"])
        memory = _map_allocation(address, answer, index, given)
    if not 0 <= start <= start + nbytes <= memory.nbytes:
        raise _wrong_size(nbytes, memory.nbytes - start)
    if code == CUDA:
        device_memory.wait_for_event(answer["event"], index)
    held = Held(memory, lease)
    length = nbytes // dtype.itemsize
    flat = held.array(cls, start, (length,), dtype, code, index, bool(answer["readonly"]))
    steps = [s // dtype.itemsize for s in answer["strides"]]
    return flat._restrided(answer["shape"], steps, int(answer["inside"]) // dtype.itemsize)


def _place(device: str) -> tuple[int, int]:
    """Return the place of an empty array, on the host if its GPU is not here."""
    index = int(device.rpartition(":")[2]) if device != "cpu" else -1
    return (CUDA, index) if 0 <= index < _core.cuda_device_count() else (CPU, 0)


def _map_file(given: list[int], end: int, readonly: bool) -> Any:
    if len(given) != 1:
        raise device_memory.wrong_descriptors(given)
    status = os.fstat(given[0])
    if end > status.st_size:  # before it is mapped, because an empty file cannot be
        raise _wrong_size(end, status.st_size)
    key = "file", status.st_dev, status.st_ino, status.st_size, readonly
    return _map_once(
        key,
        lambda: host_memory.HostMapping(
            host_memory.File(os.dup(given[0])), status.st_size, readonly
        ),
    )


def _map_allocation(address: str, answer: dict[str, Any], index: int, given: list[int]) -> Any:
    # With the owner's address, because two owners may name their allocations alike. Virtual memory alone is mapped
    # without the right to write where the array is read-only.
    rights = answer["readonly"] if answer["mechanism"] == "vmm" else None
    key = address, answer["mechanism"], answer["handle"], answer["number"], index, rights
    return _map_once(key, lambda: device_memory.open_memory(answer, index, given))


def _map_once(key: Any, make: Callable[[], Any]) -> Any:
    with _lock:
        memory = _mapped.get(key)
        if memory is None:
            memory = _mapped[key] = make()
        return memory


def _wrong_size(nbytes: int, size: int) -> ExchangeError:
    return ExchangeError(
        where="open", expected=f"{nbytes} bytes of memory", got=f"{max(size, 0)} bytes", fix="share the array again"
    )  # fmt: skip

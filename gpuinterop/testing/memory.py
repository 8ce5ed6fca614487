"""Memory that the suite owns, on either device, read and written by address.

This file uses no gpuinterop array, so that the claims of a bridge are compared with bytes. The suite keeps
its memory until a case is over, so that a bridge that frees too early is reported and the process
does not crash.
"""

from __future__ import annotations

import ctypes
import functools
import os
from contextlib import AbstractContextManager
from ctypes import byref, c_size_t, c_void_p
from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import byte_range

# ---- the driver, called without gpuinterop ------------------------------------------------------

_LEGACY = 1  # CU_STREAM_LEGACY


@functools.cache
def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ.get("GPUINTEROP_LIBCUDA") or "libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_libcuda(), name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name} returned {status}")


@functools.cache
def _primary(device: int) -> int:
    _call("cuInit", 0)
    context = c_void_p()
    _call("cuDevicePrimaryCtxRetain", byref(context), device)
    return int(context.value or 0)


def _current(device: int) -> AbstractContextManager[None]:
    """Make the primary context of a device current for a block."""
    library, popped = _libcuda(), c_void_p()
    push = partial(library.cuCtxPushCurrent_v2, c_void_p(_primary(device)))
    return _core.Block((push, partial(library.cuCtxPopCurrent_v2, byref(popped))), result=None)


def wait(device: int) -> None:
    """Wait for all work that any library has queued on a device."""
    with _current(device):
        _call("cuCtxSynchronize")


@functools.cache
def _usleep() -> int:
    return ctypes.cast(ctypes.CDLL(None).usleep, c_void_p).value or 0


def slow(stream: int, device: int, microseconds: int = 20_000) -> None:
    """Queue a pause on a stream, in place of a long kernel. Does not block the host."""
    with _current(device):
        _call("cuLaunchHostFunc", c_void_p(stream), c_void_p(_usleep()), c_void_p(microseconds))


def fill(address: int, word: int, count: int, stream: int, device: int) -> None:
    """Queue a fill of `count` 32-bit words on a stream; raise RuntimeError if there is no memory."""
    require_memory(address, 4 * count, ("cuda", device))
    with _current(device):
        _call(
            "cuMemsetD32Async", c_void_p(address), ctypes.c_uint(word), c_size_t(count), c_void_p(stream)
        )  # fmt: skip


# ---- bytes at an address ------------------------------------------------------------------------


_LONGEST = 1 << 20  # all cases are smaller, so a longer range is wrong
_END = 1 << 56  # no processor has user memory above this address


def _unmapped(address: int, nbytes: int, place: tuple[str, int]) -> RuntimeError:
    where = "host memory" if place[0] == "cpu" else f"memory of cuda:{place[1]}"
    return RuntimeError(f"no {where} at {address:#x}, where {nbytes} bytes were expected")


def _host(address: int, nbytes: int, data: bytes | None) -> bytes:
    """Read host memory, or write `data` to it.

    For a bad address the system call fails, where a direct access would end the process.
    """
    try:
        with open("/proc/self/mem", "r+b" if data else "rb", buffering=0) as memory:  # noqa: PTH123
            memory.seek(address)
            done = memory.write(data) if data else len(found := memory.read(nbytes))
    except OSError:
        done = 0
    if done != nbytes:
        raise _unmapped(address, nbytes, ("cpu", 0))
    return found if data is None else data


_ASKED = (2, 11, 12)  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _RANGE_START_ADDR, _RANGE_SIZE


def _known_to_driver(address: int, nbytes: int) -> bool:
    # The driver would treat an unknown address as host memory, and access it.
    kind, start, size = ctypes.c_uint(), c_void_p(), c_size_t()
    out = (c_void_p * 3)(*(ctypes.addressof(a) for a in (kind, start, size)))
    what = (ctypes.c_int * 3)(*_ASKED)
    _call("cuPointerGetAttributes", 3, what, out, c_void_p(address))
    begin = start.value or 0
    return kind.value != 0 and begin <= address and address + nbytes <= begin + size.value


def require_memory(address: int, nbytes: int, place: tuple[str, int]) -> None:
    """Raise RuntimeError if there is no memory at an address, which must not be read then."""
    known = 0 < address < _END and nbytes <= _LONGEST
    if known and place[0] != "cpu":
        with _current(place[1]):
            known = _known_to_driver(address, nbytes)
    if not known:
        raise _unmapped(address, nbytes, place)


def _read(address: int, nbytes: int, place: tuple[str, int], patient: bool = True) -> bytes:
    require_memory(address, nbytes, place)
    if place[0] == "cpu":
        return _host(address, nbytes, None)
    out = ctypes.create_string_buffer(nbytes)
    if patient:
        wait(place[1])
    with _current(place[1]):
        _call("cuMemcpyDtoHAsync_v2", out, c_void_p(address), c_size_t(nbytes), c_void_p(_LEGACY))
        _call("cuStreamSynchronize", c_void_p(_LEGACY))
    return out.raw


def poke(address: int, data: bytes, place: tuple[str, int]) -> None:
    """Write bytes at an address, unknown to all libraries; raise RuntimeError if there is no memory."""
    if not data:
        return
    require_memory(address, len(data), place)
    if place[0] == "cpu":
        _host(address, len(data), data)
        return
    wait(place[1])
    with _current(place[1]):
        _call(
            "cuMemcpyHtoDAsync_v2", c_void_p(address), data, c_size_t(len(data)), c_void_p(_LEGACY)
        )
        _call("cuStreamSynchronize", c_void_p(_LEGACY))


def elements(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    place: tuple[str, int],
    patient: bool = True,
) -> np.ndarray[Any, Any]:
    """Read memory through a shape and byte strides; `address` is the address of element 0.

    Waits for all work on the device. If `patient` is false, it waits for the legacy default stream only,
    as a library without streams does. Raises RuntimeError if there is no memory.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    low, high = byte_range(address, shape, strides, dtype.itemsize)
    raw = np.frombuffer(_read(low, high - low, place, patient), np.uint8)
    window = np.lib.stride_tricks.as_strided(
        raw[address - low :], (*shape, dtype.itemsize), (*strides, 1), writeable=False
    )
    return np.ascontiguousarray(window).reshape(-1).view(dtype).reshape(shape)


class Keeper:
    """Stands for the owner of memory. A weak reference to it shows when the last user releases the memory."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
        }


MARGIN = 1024
_BLANK = b"\xa5" * MARGIN


class Store:
    """Memory for `count` elements with different values, aligned to 64 bytes, on a device."""

    def __init__(self, count: int, dtype: np.dtype[Any], place: tuple[str, int]) -> None:
        self.dtype, self.place, self.count = dtype, place, count
        values = (np.arange(count) % (2 if dtype == np.bool_ else 13)).astype(dtype)
        self.nbytes = values.nbytes
        # Margins, because a bridge that ignores strides reads and writes outside the array.
        whole = self.nbytes + 2 * MARGIN
        if place[0] == "cpu":
            self._raw = np.zeros(whole + 64, np.uint8)
            self._start = self._raw.ctypes.data + -self._raw.ctypes.data % 64
        else:
            pointer = c_void_p()
            with _current(place[1]):
                _call("cuMemAlloc_v2", byref(pointer), c_size_t(whole))
            self._start = int(pointer.value or 0)
        self.address = self._start + MARGIN
        self.values = values
        poke(self._start, _BLANK + values.tobytes() + _BLANK, place)
        self.keeper: Keeper | None = Keeper(self.address, self.nbytes)

    def flat(self) -> np.ndarray[Any, Any]:
        """Return host memory as a NumPy array that holds a reference to the keeper."""
        return np.asarray(self.keeper).view(self.dtype)

    def intact(self) -> bool:
        """Return whether the margins around the array are unchanged."""
        around = (self._start, self.address + self.nbytes)
        return all(_read(address, MARGIN, self.place) == _BLANK for address in around)

    def close(self) -> None:
        """Free the memory."""
        if self.place[0] == "cuda":
            wait(self.place[1])
            with _current(self.place[1]):
                _call("cuMemFree_v2", c_void_p(self._start))

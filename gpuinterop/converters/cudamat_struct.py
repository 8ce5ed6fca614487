"""The struct inside a CUDAMatrix: read once, and kept from giving its memory away."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, NamedTuple

from gpuinterop import _core, errors
from gpuinterop.converters import checks
from gpuinterop.converters.reading import read_shape

__all__ = ["Pin", "Struct", "address", "device_of", "read_struct"]


class Struct(NamedTuple):
    """What a CUDAMat struct says, read once."""

    source: Any
    rows: int
    columns: int
    is_trans: bool
    on_host: bool
    on_device: bool
    ptr: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


def read_struct(mat: Any, where: str) -> Struct:
    """Read the struct of a matrix, and refuse what is no size or no address."""
    rows, columns = read_shape((mat.size[0], mat.size[1]), 4, where)
    return Struct(
        mat, rows, columns, bool(mat.is_trans), bool(mat.on_host), bool(mat.on_device),
        address(mat.data_device, where),
    )  # fmt: skip


def address(pointer: Any, where: str = "from_cudamat") -> int:
    """Return the device address that a struct's pointer holds."""
    try:
        return int(ctypes.cast(pointer, ctypes.c_void_p).value or 0)
    except (ctypes.ArgumentError, TypeError, ValueError):
        raise errors.ExchangeError(
            where=where,
            expected="data_device as a pointer of ctypes",
            got=errors.short_repr(pointer),
            fix="cast the address: ctypes.cast(address, ctypes.POINTER(ctypes.c_float))",
        ) from None


def device_of(ptr: int) -> tuple[str, int]:
    """Return where an address of CUDAMat lives."""
    info = _core.pointer_info(ptr) if ptr else None
    return ("cuda", int(info[1])) if info is not None else ("cuda", 0)


# How many looks there are at a matrix, by its id: each of them holds it. Not by its value, because a
# class may compare elements or have no hash.
_pins: dict[int, int] = {}
# A collection inside the lock may end the last look at another matrix, in the same thread.
_pins_lock = threading.RLock()


class Pin(checks.Hold):
    """Holds a CUDAMatrix and keeps it from freeing its memory while it is looked at.

    CUDAMat frees on request, whoever looks: with `owns_data` off, the request does nothing. When the
    last look ends the matrix owns its memory again. `struct` is that of `root`, whose memory it is.
    """

    __slots__ = ("root", "struct")

    def __init__(self, matrix: Any, root: Any, struct: Any) -> None:
        super().__init__(matrix)
        self.root, self.struct = None, struct
        with _pins_lock:
            count = _pins.get(id(root), 0)
            if count or struct.owns_data:  # else it is somebody else's memory already
                struct.owns_data = 0
                _pins[id(root)] = count + 1
                self.root = root

    def __del__(self) -> None:
        root = getattr(self, "root", None)
        if root is None or sys.is_finalizing():
            return
        with _pins_lock:
            count = _pins.pop(id(root), 0) - 1
            if count > 0:
                _pins[id(root)] = count
            else:
                self.struct.owns_data = 1

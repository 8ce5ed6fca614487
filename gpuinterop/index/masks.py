"""The elements that a mask selects, in C order: their number, values and indices; and indices that are repeated.

On CUDA the mask is read twice, to count and to write, and the host reads the number in between.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.errors import CaptureError
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import loaded_kernels
from gpuinterop.jit.texts import program

_TILE, _THREADS = 8192, 256  # of compact.cuh
MOST = 1 << 48  # GI_MOST of compact.cuh: more results than any memory holds
_COUNTS, _RESULTS = 2048, 4096  # of compact_count.cuh: of a tile, and of a block
READ, ASSIGN, PLACES = range(3)


@cache
def _kernel(device: int, name: str, action: int, itemsize: int, ndim: int, wide: bool) -> Any:
    file = "compact_write" if name == "gi_compact_write" else "compact_count"
    values = {"ACTION": action, "ND": ndim, "INDEX": "i64" if wide else "i32"}
    parts = (kernel_text("index/compact.cuh"), kernel_text(f"index/{file}.cuh"))
    text = program(values, f"typedef u{8 * itemsize} T;", *parts)
    return loaded_kernels(device, text, [name])[0]


class Selection:
    """The elements that a mask selects; `count` is their number. Not inside a capture."""

    def __init__(self, mask: Any, where: str) -> None:
        self.mask, self.where = results.plain(mask), where
        self.device = self.mask.device
        require_waiting(
            self.device, where, "a result for each element that is true or not zero",
            "call it before the capture, or compute all elements: gpuinterop.where(mask, x, 0)",
        )  # fmt: skip
        if self.device.type == "cpu":
            _core._require_set(where, self.mask)
            self.count = _core._count_selected(self.mask)
            return
        if not self.mask.is_c_contiguous():
            mask_view, self.mask = self.mask, self._empty(self.mask.shape, np.bool_)
            _core.copy_into(self.mask, mask_view, where=where, uncounted=True)
        self.tiles = -(-self.mask.size // _TILE)
        self.count = 0
        if not self.tiles:
            return
        self.offsets = self._empty((self.tiles + 1,), np.int64)
        self._launch("gi_compact_count", self.tiles, (), ())
        self._launch("gi_compact_scan", 1, (), ())
        self.count = int(self.offsets[self.tiles].item())

    def _empty(self, shape: tuple[int, ...], dtype: Any, cls: Any = None) -> Any:
        return results.new_like(self.mask, shape, dtype, self.where, cls)

    def _launch(self, name: str, blocks: int, *rest: Any) -> None:
        _launch(name, blocks, self.mask, self.mask.size, self.tiles, self.offsets, *rest)

    def read(self, x: Any, cls: Any) -> Any:
        """Return the selected elements of `x`, which has the mask's shape, as a new array."""
        target = self._empty((self.count,), x.dtype, cls)
        if not self.count:
            return target
        if self.device.type == "cpu":
            _core._select(self.mask, x, target, self.where)
        else:
            self._launch("gi_compact_write", self.tiles, *_core._merged(x), target, x, 0, READ)
        return target

    def assign(self, x: Any, values: Any) -> None:
        """Set the selected elements of `x` to the 1-d `values`, of which there are `count`."""
        if self.count and self.device.type == "cpu":
            _core._select(self.mask, values, x, self.where)
        elif self.count:
            self._launch(
                "gi_compact_write",
                self.tiles,
                *_core._merged(x),
                x,
                values,
                values._strides[0],
                ASSIGN,
            )

    def places(self) -> Any:
        """Return the indices of the selected elements as an int64 array with one row for each axis."""
        shape = self.mask.shape
        indices = self._empty((len(shape), self.count), np.int64)
        if not self.count:
            return indices
        if self.device.type == "cpu":
            _core._select(self.mask, None, indices, self.where)
        else:
            self._launch(
                "gi_compact_write", self.tiles, shape, shape, indices, None, self.count, PLACES
            )
        return indices


def _launch(
    name: str, blocks: int, mask: Any, n: int, tiles: int, offsets: Any, extents: tuple[int, ...] = (),
    strides: tuple[int, ...] = (), out: Any = None, source: Any = None, step: int = 0, action: int = 0,
) -> None:  # fmt: skip
    extents, strides = extents or (1,), strides or (1,)
    item = source.itemsize if source is not None else 8
    wide = max(n, step) >= 1 << 31
    kernel = _kernel(offsets.device.index, name, action, item, len(extents), wide)
    arrays, addresses = [offsets], [0, 0, 0]
    # Comprehensions would cost each launch a microsecond.
    for i, array in enumerate((mask, out, source)):
        if array is not None:
            arrays.append(array)
            addresses[i] = array.ptr
    mask_at, out_at, source_at = addresses
    params = struct.pack(
        f"<6Q{1 + 2 * len(extents)}q", mask_at, n, tiles, offsets.ptr, out_at, source_at, step,
        *extents, *strides,
    )  # fmt: skip
    kernel.launch((blocks,), (_THREADS,), 0, [params], arrays)


def repeated_places(counts: Any, where: str) -> Any:
    """Return each index repeated by its count in `counts`, 1-d integers on a GPU.

    None if a count is negative, or their sum is beyond all memory.
    """
    source = counts = results.plain(counts)
    n = counts.size
    if counts.dtype != np.int64 or not counts.is_c_contiguous():
        counts = results.new_like(source, (n,), np.int64, where)
        FUNCTIONS["cast"](source, out=counts)
    tiles = -(-n // _COUNTS)
    offsets = results.new_like(counts, (tiles + 1,), np.int64, where)
    _launch("gi_compact_repeat_count", tiles, counts, 0, tiles, offsets, step=n)
    _launch("gi_compact_scan", 1, None, 0, tiles, offsets)
    total = int(offsets[tiles].item())
    if total >= MOST:
        return None
    index = np.int32 if max(total, n) < 1 << 31 else np.int64
    out = results.new_like(counts, (total,), index, where)
    if total:
        blocks = -(-total // _RESULTS)
        _launch("gi_compact_repeat_write", blocks, counts, total, tiles, offsets, out=out, step=n)
    return out


def require_waiting(
    device: Any,
    where: str,
    got: str = "a result for each distinct element",
    fix: str = "call it before the capture",
) -> None:
    """Refuse a result whose shape depends on values while gpuinterop or another library is capturing."""
    if not may_wait(device):
        raise CaptureError(
            where=where,
            expected="results whose shape does not depend on values, during a capture",
            got=got,
            fix=fix,
        )


def may_wait(device: Any) -> bool:
    """Return whether the host may wait: neither gpuinterop nor another library is capturing."""
    if _core._recording() is not None:
        return False
    return device.type == "cpu" or not devices.current_stream(device).is_capturing

"""The elements that a mask selects, in C order: their number, values and indices; and indices that are repeated.

On CUDA the mask is read twice, to count and to write, and the host reads the number in between. Both are one plan.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.errors import CaptureError
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import kernels_of
from gpuinterop.jit.texts import program
from gpuinterop.reduce.codegen import INPUT, OUTPUT, KernelLaunch, Output, Patch

_TILE, _THREADS = 8192, 256  # of compact.cuh and tiles.cuh
MOST = 1 << 48  # GI_MOST of tiles.cuh: more results than any memory holds
_COUNTS, _RESULTS = 2048, 4096  # of compact_count.cuh: of a tile, and of a block
READ, ASSIGN, PLACES = range(3)
_INT64 = dtype_id(np.dtype(np.int64))


def compact_text(file: str, action: int, itemsize: int, ndim: int, wide: bool) -> str:
    """Return the program of the kernels in a file; see compact_write.cuh for `action`."""
    values = {"ACTION": action, "ND": ndim, "INDEX": "i64" if wide else "i32"}
    names = ("last_block.cuh", "index/tiles.cuh", "index/compact.cuh", f"index/{file}.cuh")
    return program(values, f"typedef u{8 * itemsize} T;", *map(kernel_text, names))


def counting_plan(device: int, launch: Callable[[Any, Any], KernelLaunch], tiles: int) -> Any:
    """Return the `work` of a plan: ``launch(offsets, finished)`` counts the results of tiles."""
    made = launch((OUTPUT, 0, 0), (_core.Slot.BlockCounters, 0, 0))
    return _core.make_plan(
        device, [made], 0, [Output(_core.gpuarray_class(), _INT64, (tiles + 1,))]
    )


def _launch(
    device: int, name: str, blocks: int, mask: Any, n: int, tiles: int, offsets: Any, finished: Any = None,
    outs: Sequence[Any] = (), source: Any = None, *, step: int = 0, extents: tuple[int, ...] = (),
    strides: tuple[int, ...] = (), action: int = 0, itemsize: int = 8,
) -> KernelLaunch:  # fmt: skip
    """Return a launch for addresses of a plan: (slot, operand, shift)."""
    extents, strides = extents or (1,), strides or (1,)
    ndim, file = len(extents), "compact_write" if name == "gi_compact_write" else "compact_count"
    wide = max(n, step) >= 1 << 31
    (kernel,) = kernels_of(device, (name,), compact_text, file, action, itemsize, ndim, wide)
    params = struct.pack(
        f"<6Q{1 + 3 * ndim}q", 0, n, tiles, 0, 0, 0, step, *extents, *strides, *[0] * ndim
    )
    at = [(0, mask), (24, offsets), (32, finished), (40, source)]
    at += [(56 + 16 * ndim + 8 * i, out) for i, out in enumerate(outs)]
    patches = [Patch(offset, *address) for offset, address in at if address is not None]
    return KernelLaunch(kernel, (blocks, 1), _THREADS, params, patches)


@lru_cache(maxsize=1024)
def _count_plan(device: int, n: int, operand: int = 0) -> Any:
    tiles = -(-n // _TILE)
    count = partial(_launch, device, "gi_compact_count", tiles, (INPUT, operand, 0), n, tiles)
    return counting_plan(device, count, tiles)


@lru_cache(maxsize=1024)
def _places_plan(device: int, shape: tuple[int, ...], apart: bool) -> Any:
    """Return the plan of the indices of a mask: an array for each axis, or one with a row for each element."""
    n, ndim = math.prod(shape), len(shape)
    tiles, step = -(-n // _TILE), 1 if apart else ndim
    outs = [(OUTPUT, i, 0) if apart else (OUTPUT, 0, 8 * i) for i in range(ndim)]
    launch = _launch(device, "gi_compact_write", tiles, (INPUT, 0, 0), n, tiles, (INPUT, 1, 0), outs=outs,
                     step=step, extents=shape, strides=shape, action=PLACES)  # fmt: skip
    one = Output(_core.gpuarray_class(), _INT64, (1,) if apart else (1, ndim), counted=True)
    return _core.make_plan(
        device, [launch], 0, [one] * (ndim if apart else 1), _count_plan(device, n)
    )


@lru_cache(maxsize=1024)
def _elements_plan(
    device: int, dtype: np.dtype[Any], n: int, extents: tuple[int, ...], strides: tuple[int, ...], action: int,
    step: int = 0, cls: Any = None,
) -> Any:  # fmt: skip
    """Return the plan that reads the elements of the first operand that the second one, a mask, selects.

    Or the one that assigns them the values of the first operand; the third one is then what `_count_plan` returns.
    With the class of the result, the mask is the first operand.
    """
    tiles, read, mask = -(-n // _TILE), action == READ, int(cls is None)
    launch = _launch(device, "gi_compact_write", tiles, (INPUT, mask, 0), n, tiles, (INPUT, 2, 0), None,
                     [(OUTPUT, 0, 0)], (INPUT, 1 - mask, 0), step=step, extents=extents, strides=strides,
                     action=action, itemsize=dtype.itemsize)  # fmt: skip
    work = _count_plan(device, n, mask) if read else None
    result = Output(cls, dtype_id(dtype), (1,), read)
    return _core.make_plan(device, [launch], 0, [result], work)


def _readable(mask: Any, where: str) -> Any:
    """Return the mask, on a GPU C-contiguous. Not inside a capture."""
    mask = results.plain(mask)
    require_waiting(
        mask.device, where, "a result for each element that is true or not zero",
        "call it before the capture, or compute all elements: gpuinterop.where(mask, x, 0)",
    )  # fmt: skip
    if mask.device.type == "cpu":
        _core._require_set(where, mask)
    elif not mask.is_c_contiguous():
        held = results.new_like(mask, mask.shape, np.bool_, where)
        _core.copy_into(held, mask, where=where, uncounted=True)
        return held
    return mask


def selected(mask: Any, x: Any, where: str, cls: Any) -> Any:
    """Return the elements of `x` that a mask of its shape selects, in C order, as a new array."""
    mask = _readable(mask, where)
    if mask.device.type != "cpu" and mask.size:
        of_plan = x.device.index, x.dtype, mask.size, *_core._merged(x), READ
        found = _elements_plan(*of_plan).run((x, mask))
        return _core.view(results.class_for(cls, x.dtype), found)
    found = results.new_like(
        mask, (_core._count_selected(mask) if mask.size else 0,), x.dtype, where, cls
    )
    if found.size:
        _core._select(mask, x, found, where)
    return found


def places(mask: Any, where: str, apart: bool = True) -> Any:
    """Return the indices of the elements that a mask selects, in C order: an int64 array for each axis.

    Without `apart` they are one array, with a row for each element.
    """
    mask = _readable(mask, where)
    if mask.device.type == "cpu" or not mask.size:
        count = _core._count_selected(mask) if mask.size else 0
        indices = results.new_like(mask, (mask.ndim, count), np.int64, where)
        if count:
            _core._select(mask, None, indices, where)
        return list(indices) if apart else indices.T
    if apart and mask.ndim > _core.MAX_PLANNED:
        return list(places(mask, where, False).T)
    found = _places_plan(mask.device.index, mask.shape, apart).run((mask,))
    return found if not apart or mask.ndim > 1 else (found,)


def plan_of_selected(x: Any, key: Any, cls: Any = None) -> Any:
    """Return the plan of ``x[key]`` for a mask of the shape of x on a GPU; None for other keys."""
    x, mask = results.plain(x), results.plain(key)
    whole = mask.dtype == np.bool_ and mask.ndim and mask.size and mask.shape == x.shape
    if not whole or not mask.is_c_contiguous():
        return None
    return _elements_plan(x.device.index, x.dtype, mask.size, *_core._merged(x), READ, 0, cls)


def plan_of_compressed(condition: Any, x: Any, axis: Any = None) -> Any:
    """Return the plan of ``compress(condition, x, axis)`` for vectors of one length; None for other calls."""
    along = axis is None or (type(axis) is int and axis in (0, -1))
    if not along or results.plain(x).ndim != 1 or type(x) not in _core.result_types():
        return None
    return plan_of_selected(x, condition, results.class_for(type(x), x.dtype))


def plan_of_places(x: Any, apart: bool = True, flat: bool = False) -> Any:
    """Return the plan of the indices of the elements of a mask on a GPU; None for other arrays."""
    mask = results.plain(x)
    ordinary = mask.dtype == np.bool_ and mask.size and mask.ndim and mask.is_c_contiguous()
    if not ordinary or mask.ndim > _core.MAX_PLANNED:
        return None
    return _places_plan(mask.device.index, (mask.size,) if flat else mask.shape, apart)


class Selection:
    """The elements that a mask selects, to assign to them; `count` is their number."""

    def __init__(self, mask: Any, where: str) -> None:
        self.mask, self.where = _readable(mask, where), where
        self.device, self.work = self.mask.device, None
        if self.device.type == "cpu" or not self.mask.size:
            self.count = _core._count_selected(self.mask) if self.mask.size else 0
        else:
            self.work = _count_plan(self.device.index, self.mask.size).run((self.mask,))
            self.count = int(self.work.item(-1))

    def assign(self, x: Any, values: Any) -> None:
        """Set the selected elements of `x` to the 1-d `values`, of which there are `count`."""
        if self.count and self.device.type == "cpu":
            _core._select(self.mask, values, x, self.where)
        elif self.count:
            of_plan = self.device.index, x.dtype, self.mask.size, *_core._merged(x), ASSIGN
            plan = _elements_plan(*of_plan, values._strides[0])
            plan.run((values, self.mask, self.work), (x,))


def repeated_places(counts: Any, where: str) -> Any:
    """Return each index repeated by its count in `counts`, 1-d integers on a GPU.

    None if a count is negative, or their sum is beyond all memory.
    """
    source = counts = results.plain(counts)
    n, device = counts.size, counts.device.index
    if counts.dtype != np.int64 or not counts.is_c_contiguous():
        counts = results.new_like(source, (n,), np.int64, where)
        FUNCTIONS["cast"](source, out=counts)
    offsets = _repeat_plan(device, n).run((counts,))
    total = int(offsets.item(-1))
    if total >= MOST:
        return None
    index = np.int32 if max(total, n) < 1 << 31 else np.int64
    out = results.new_like(counts, (total,), index, where)
    if total:
        _repeat_plan(device, n, total).run((counts, offsets), (out,))
    return out


@lru_cache(maxsize=1024)
def _repeat_plan(device: int, n: int, total: int = 0) -> Any:
    """Return the plan that adds n counts up, or the one that writes the index of each of `total` results."""
    tiles, counts = -(-n // _COUNTS), (INPUT, 0, 0)
    if not total:
        count = partial(_launch, device, "gi_compact_repeat_count", tiles, counts, 0, tiles, step=n)
        return counting_plan(device, count, tiles)
    blocks = -(-total // _RESULTS)
    launch = _launch(device, "gi_compact_repeat_write", blocks, counts, total, tiles, (INPUT, 1, 0),
                     outs=[(OUTPUT, 0, 0)], step=n)  # fmt: skip
    return _core.make_plan(device, [launch], 0, [Output(None, _INT64, (total,))])


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

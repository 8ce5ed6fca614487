"""The plan of `unique` on a GPU: it sorts, counts the elements that differ from the one before, and writes the results.

The host reads the count in between. unique.cuh has the kernels.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import STORAGE, dtype_id, name_of
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import kernels_of
from gpuinterop.jit.texts import program
from gpuinterop.reduce.codegen import INPUT, OUTPUT, SCRATCH, KernelLaunch, Output

from .lines import (
    FIRST_INPUT,
    FIRST_OUTPUT,
    SECOND_INPUT,
    Address,
    Pieces,
    in_block,
    inverse_launches,
    is_wide,
    patches,
    place_bytes,
    sort_launches,
)

_INT64 = dtype_id(np.dtype(np.int64))
_TILE, _THREADS = 4096, 256  # of unique.cuh and tiles.cuh
# Elements of an inverse that is written in order of memory. At 2^22, where it fits the caches, that takes longer.
FAR = 1 << 24
_UNORDERED, _GATHERED, _BOTH = range(3)  # GI_ORDER of unique.cuh, and `indices` of `sort_launches`


class _Sorted(NamedTuple):
    """Where sorted elements and their places are: `form` is one of GI_ORDER, in which one of the two may be missing."""

    form: int
    elements: Address | None
    places: Address | None
    wide: bool = False

    @classmethod
    def into(cls, memory: Pieces, dtype: np.dtype[Any], n: int, with_places: bool) -> _Sorted:
        """Choose the form of n elements, and take the memory."""
        if with_places and in_block(dtype, n):
            return cls(_GATHERED, None, memory.take(8 * n))
        elements = memory.take(n * dtype.itemsize)
        if not with_places:
            return cls(_UNORDERED, elements, None)
        return cls(_BOTH, elements, memory.take(n * place_bytes(is_wide(n))), is_wide(n))


@lru_cache(maxsize=1024)
def unique_plan(
    device: int, dtype: np.dtype[Any], shape: tuple[int, ...], wanted: tuple[bool, bool, bool], equal_nan: bool,
    sorts: bool = True,
) -> Any:  # fmt: skip
    """Return the plan of the distinct elements of the first operand, and of the arrays that `unique` wants.

    Without `sorts` a second operand has the elements in order or, for indices or the inverse, their int64 places.
    """
    n, with_places, launches = math.prod(shape), wanted[0] or wanted[1], []
    memory, scratch, tiles = Pieces(OUTPUT), Pieces(SCRATCH), -(-n // _TILE)
    if sorts:
        found = _Sorted.into(memory, dtype, n, with_places)
        launches = sort_launches(device, dtype, (n,), (found.form, False), FIRST_INPUT,
                                 found.elements or found.places, scratch, found.places)  # fmt: skip
    elif with_places:
        found = _Sorted(_GATHERED, None, SECOND_INPUT)
    else:
        found = _Sorted(_UNORDERED, SECOND_INPUT, None)
    lasts, offsets = memory.take(8 * tiles), memory.take(8 * (tiles + 1))
    of_text = name_of(dtype), found.form, found.wide, equal_nan
    count, write = kernels_of(device, ("gi_unique_count", "gi_unique_write"), unique_text, *of_text)
    read = found.elements, found.places, offsets, lasts

    def launch(kernel: Any, *addresses: Address | None) -> KernelLaunch:
        params = bytes(88) + struct.pack("<2q", n, tiles)
        at = patches(FIRST_INPUT, *addresses)
        return KernelLaunch(kernel, (tiles, 1), _THREADS, params, at)

    launches.append(launch(count, *read, (_core.Slot.BlockCounters, 0, 0)))
    words = offsets[2] // 8 + tiles + 1
    work = _core.make_plan(
        device, launches, scratch.end, [Output(_core.gpuarray_class(), _INT64, (words,))]
    )
    # That memory is the last operand of the second plan.
    held = [a and (a if a[0] == INPUT else (INPUT, 1 if sorts else 2, a[2])) for a in read]
    outputs = [Output(None, dtype_id(dtype), (1,), True)]
    targets: list[Address | None] = [FIRST_OUTPUT]
    others = [((1,), True), (shape, False), ((1,), True)]
    for wants, (shape_of_result, counted) in zip(wanted, others, strict=True):
        targets.append((OUTPUT, len(outputs), 0) if wants else None)
        if wants:
            outputs.append(Output(_core.gpuarray_class(), _INT64, shape_of_result, counted))
    further, scratch = [], Pieces(SCRATCH)
    if wanted[1] and found.form == _BOTH and not found.wide and n >= FAR:
        ranks = scratch.take(4 * n)
        further = inverse_launches(device, n, held[1], ranks, targets[2], scratch)
        targets = [*targets[:2], None, targets[3], ranks]
    launches = [launch(write, *held, None, *targets), *further]
    return _core.make_plan(device, launches, scratch.end, outputs, work)


def unique_text(dtype: str, form: int, wide: bool, equal_nan: bool) -> str:
    """Return the program of the kernels of `unique`; see unique.cuh for `form`."""
    order = "i64" if form == _GATHERED else f"u{8 * place_bytes(wide)}"
    values = {"ORDER": form, "EQUAL_NAN": int(equal_nan)}
    types = f"typedef {STORAGE[dtype]} Stored;\ntypedef {order} Order;"
    files = "last_block.cuh", "index/tiles.cuh", "sorting/unique.cuh"
    return program(values, types, *map(kernel_text, files))

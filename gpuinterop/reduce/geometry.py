"""The operands of a reduction, and its dimensions after merging.

Pure functions of shapes, strides and alignment, used on the host before a launch is planned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinterop import _core

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Operand:
    """Strides in elements over the full shape; `alignment` is a power of two dividing the address."""

    strides: tuple[int, ...]
    itemsize: int
    alignment: int = 16

    @classmethod
    def of(cls, x: Any, strides: Sequence[int] | None = None) -> Operand:
        """Return the planner's description of an array."""
        alignment = min(x.ptr & -x.ptr, 16) or 16
        return cls(tuple(x._strides if strides is None else strides), x.itemsize, alignment)


@dataclass(frozen=True)
class Geometry:
    """Dimensions after dropping, sorting and merging; innermost last; at least one of each kind."""

    kept: tuple[int, ...]
    red: tuple[int, ...]
    kept_strides: tuple[tuple[int, ...], ...]  # [input][dimension], elements
    red_strides: tuple[tuple[int, ...], ...]
    out_strides: tuple[tuple[int, ...], ...]  # [output][dimension]
    in_shifts: tuple[int, ...]  # elements from the array's first one to the first that is read
    out_shifts: tuple[int, ...]
    n_out: int
    n_red: int
    prefers_rows: bool  # the reduced elements are closer together than the results


@dataclass
class _Dim:
    extent: int
    strides: list[int]  # of the inputs, then of the outputs

    def nearness(self, sizes: Sequence[int]) -> int:
        """Return the bytes between neighbours in the densest input with a size above 0.

        In a broadcast dimension neighbours count as far apart.
        """
        steps = zip(self.strides, sizes, strict=False)
        return min((abs(s) * b for s, b in steps if s and b), default=1 << 62)


def _counted(shape: Sequence[int], inputs: Sequence[Operand]) -> list[int]:
    """Return the itemsizes of the inputs that have most of the bytes, and 0 for the others.

    In a matrix times a vector the matrix alone determines the order of reads, because the vector
    stays in the cache.
    """
    weights = []
    for operand in inputs:
        weight = operand.itemsize
        for extent, stride in zip(shape, operand.strides, strict=True):
            weight *= extent if stride else 1
        weights.append(weight)
    most = max(weights)
    return [o.itemsize if w * 4 >= most else 0 for o, w in zip(inputs, weights, strict=True)]


def _merge(dims: list[_Dim]) -> list[_Dim]:
    merged = _core._merge_dimensions([d.extent for d in dims], [d.strides for d in dims])
    return [_Dim(extent, strides) for extent, strides in zip(*merged, strict=True)]


def simplify(
    shape: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Operand],
    outputs: Sequence[Sequence[int]],
    *,
    ordered: bool = False,
) -> Geometry:
    """Merge the dimensions of `shape` into few.

    `outputs` are strides over the full shape; those along reduced axes are ignored. `ordered` keeps
    the reduced elements in C order, for reductions that return positions.
    """
    reduced, sizes, n = set(axes), _counted(shape, inputs), len(inputs)
    operands = [*(operand.strides for operand in inputs), *outputs]
    shifts = [0] * len(operands)
    kept: list[_Dim] = []
    red: list[_Dim] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        is_reduced = axis in reduced
        steps = [0 if is_reduced and i >= n else s[axis] for i, s in enumerate(operands)]
        first = next((s for s in steps[:n] if s), 0)
        if first < 0 and extent > 0 and not (ordered and is_reduced):
            shifts = [at + (extent - 1) * s for at, s in zip(shifts, steps, strict=True)]
            steps = [-s for s in steps]
        (red if is_reduced else kept).append(_Dim(extent, steps))
    n_out, n_red = (math.prod(d.extent for d in dims) for dims in (kept, red))
    kept.sort(key=lambda dim: -dim.nearness(sizes))
    if not ordered:
        red.sort(key=lambda dim: -dim.nearness(sizes))
    kept, red = _merge(kept), _merge(red)
    prefers_rows = n_out == 1 or (
        bool(red)
        and min(d.nearness(sizes) for d in red)
        <= min((d.nearness(sizes) for d in kept), default=1 << 62)
    )
    none = _Dim(1, [0] * len(operands))
    kept, red = kept or [none], red or [none]
    kept_strides, red_strides = (
        [*zip(*(d.strides for d in dims), strict=True)] for dims in (kept, red)
    )
    return Geometry(
        kept=tuple(d.extent for d in kept),
        red=tuple(d.extent for d in red),
        kept_strides=tuple(kept_strides[:n]),
        red_strides=tuple(red_strides[:n]),
        out_strides=tuple(kept_strides[n:]),
        in_shifts=tuple(shifts[:n]),
        out_shifts=tuple(shifts[n:]),
        n_out=n_out,
        n_red=n_red,
        prefers_rows=prefers_rows,
    )

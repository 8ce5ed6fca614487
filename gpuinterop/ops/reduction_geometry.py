"""The operands of a reduction, and its dimensions after merging.

Pure functions of shapes, strides and alignment, used on the host before a launch is planned.
"""

from __future__ import annotations

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
    ins: list[int]
    outs: list[int]

    def nearness(self, sizes: Sequence[int]) -> int:
        """Return the bytes between neighbours in the densest input with a size above 0.

        In a broadcast dimension neighbours count as far apart.
        """
        steps = zip(self.ins, sizes, strict=True)
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
    merged = _core._merge_dimensions([d.extent for d in dims], [d.ins + d.outs for d in dims])
    n = len(dims[0].ins) if dims else 0
    return [_Dim(extent, s[:n], s[n:]) for extent, s in zip(*merged, strict=True)]


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
    reduced = set(axes)
    sizes = _counted(shape, inputs)
    in_shifts = [0] * len(inputs)
    out_shifts = [0] * len(outputs)
    kept: list[_Dim] = []
    red: list[_Dim] = []
    n_out = n_red = 1
    for axis, extent in enumerate(shape):
        is_reduced = axis in reduced
        if is_reduced:
            n_red *= extent
        else:
            n_out *= extent
        if extent == 1:
            continue
        dim = _Dim(
            extent,
            [operand.strides[axis] for operand in inputs],
            [0 if is_reduced else strides[axis] for strides in outputs],
        )
        first = next((s for s in dim.ins if s), 0)
        if first < 0 and extent > 0 and not (ordered and is_reduced):
            for i, stride in enumerate(dim.ins):
                in_shifts[i] += (extent - 1) * stride
            for j, stride in enumerate(dim.outs):
                out_shifts[j] += (extent - 1) * stride
            dim.ins = [-s for s in dim.ins]
            dim.outs = [-s for s in dim.outs]
        (red if is_reduced else kept).append(dim)
    kept.sort(key=lambda dim: -dim.nearness(sizes))
    if not ordered:
        red.sort(key=lambda dim: -dim.nearness(sizes))
    kept, red = _merge(kept), _merge(red)
    prefers_rows = n_out == 1 or (
        bool(red)
        and min(d.nearness(sizes) for d in red)
        <= min((d.nearness(sizes) for d in kept), default=1 << 62)
    )
    none = _Dim(1, [0] * len(inputs), [0] * len(outputs))
    kept, red = kept or [none], red or [none]
    return Geometry(
        kept=tuple(d.extent for d in kept),
        red=tuple(d.extent for d in red),
        kept_strides=tuple(tuple(d.ins[i] for d in kept) for i in range(len(inputs))),
        red_strides=tuple(tuple(d.ins[i] for d in red) for i in range(len(inputs))),
        out_strides=tuple(tuple(d.outs[j] for d in kept) for j in range(len(outputs))),
        in_shifts=tuple(in_shifts),
        out_shifts=tuple(out_shifts),
        n_out=n_out,
        n_red=n_red,
        prefers_rows=prefers_rows,
    )

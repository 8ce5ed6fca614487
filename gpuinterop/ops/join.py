"""Putting arrays together, taking them apart, and filling new ones."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import row_of
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.ops import results
from gpuinterop.ops.reductions import may_overlap
from gpuinterop.ops.runtime import check_only
from gpuinterop.sources import is_index, read_shape
from gpuinterop.views import read_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["alloc", "concatenate", "join", "listed", "split", "stack"]


def listed(arrays: Any, where: str) -> list[Any]:
    """The arrays of a sequence; at least one, on one device."""
    try:
        parts = list(arrays)
    except TypeError:
        raise ArgumentTypeError(
            where=where,
            expected="a sequence of arrays",
            got=f"an object of type {type(arrays).__name__}",
            fix=f"pass a list: {where}([x, y])",
        ) from None
    if not parts:
        raise ShapeError(where=where, expected="at least one array", got="none", fix="pass arrays")
    return results.taken(where, *parts)


def concatenate(arrays: Sequence[Any], axis: int | None = 0, out: Any = None) -> Any:
    """Return the arrays one after the other along `axis`; None flattens them first.

    One strided copy per array, nothing in between. Dtypes are promoted by NumPy's rules; beside a
    CudaNdarray the result is float32, as of every operation.
    """
    given = listed(arrays, "concatenate")
    parts = [results.plain(x) for x in given]
    if axis is None:
        parts, axis = [x.ravel() for x in parts], 0
    first = parts[0]
    if first.ndim == 0:
        raise ShapeError(
            where="concatenate",
            expected="arrays of one axis or more",
            got="a 0-d array",
            fix="use stack",
        )
    along = read_axis(axis, first.ndim, "concatenate")
    for x in parts[1:]:
        same = x.ndim == first.ndim and all(
            a == b for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if i != along
        )
        if not same:
            raise ShapeError(
                where="concatenate",
                expected=f"shapes that differ along axis {along} only",
                got=f"{first.shape} and {x.shape}",
                fix="reshape or slice one of them",
            )
    shape = list(first.shape)
    shape[along] = sum(x.shape[along] for x in parts)
    like = results.leading(given)
    dtype = getattr(type(like), "_only", None)
    if dtype is None:
        dtype = np.result_type(*[x.dtype for x in parts])
    else:
        check_only("concatenate", dtype, tuple(row_of(x.dtype) for x in parts))
    if out is None:
        out = results.new_like(like, tuple(shape), dtype, "concatenate")
    else:
        results.check_out(out, tuple(shape), dtype, like, "concatenate")
        # Writing one part must not change those still to be read.
        parts = [x.copy() if may_overlap(x, out) else x for x in parts]
    at, target = 0, results.plain(out)
    for x in parts:
        n = x.shape[along]
        place = target[(slice(None),) * along + (slice(at, at + n),)]
        _core.copy_into(place, x if x.dtype == dtype else x.astype(dtype), where="concatenate",
                        uncounted=True)  # fmt: skip
        at += n
    return out


def join(axis: int, *arrays: Any) -> Any:
    """Return the arrays one after the other along `axis` (the documents' order of arguments)."""
    return concatenate(arrays, axis)


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None) -> Any:
    """Return the arrays along a new axis."""
    given = listed(arrays, "stack")
    parts = [results.plain(x) for x in given]
    for x in parts[1:]:
        if x.shape != parts[0].shape:
            raise ShapeError(
                where="stack",
                expected="equal shapes",
                got=f"{parts[0].shape} and {x.shape}",
                fix="reshape one",
            )
    along = read_axis(axis, parts[0].ndim + 1, "stack")
    return concatenate(
        [_core.view(type(g), x.expand_dims(along)) for g, x in zip(given, parts, strict=True)],
        along,
        out,
    )


def split(x: Any, sections: Any, axis: int = 0) -> list[Any]:
    """Return views of `x` cut along `axis`: into n equal parts, or at the given indices."""
    (x,) = results.taken("split", x)
    cls, x = type(x), results.plain(x)
    along = read_axis(axis, x.ndim, "split")
    n = x.shape[along]
    try:
        count = operator.index(sections) if is_index(sections) else None
        cuts = [] if count is not None else [operator.index(c) for c in sections]
    except TypeError:
        raise ArgumentTypeError(
            where="split",
            expected="a number of parts, or the indices to cut at",
            got=repr(sections),
            fix="pass an int or a list of ints",
        ) from None
    if count is not None:
        if count < 1 or n % count:
            raise ShapeError(
                where="split", expected=f"a number of parts that divides {n}", got=str(count),
                fix="pass the indices to cut at",
            )  # fmt: skip
        cuts = [n // count * i for i in range(1, count)]
    edges = [0, *cuts, n]
    before = (slice(None),) * along
    pieces = []
    for low, high in pairwise(edges):
        key = (*before, slice(low, high))
        pieces.append(_core.view(cls, x[key]))
    return pieces


def alloc(value: Any, *shape: Any) -> Any:
    """Return a new array of `shape` whose elements are those of `value`, broadcast (GpuAlloc)."""
    results.require_arrays("alloc", value)
    wanted = read_shape(shape[0] if len(shape) == 1 else shape)
    real = results.plain(value)
    if real.ndim > len(wanted):
        raise ShapeError(
            where="alloc",
            expected=f"a value of at most {len(wanted)} axes",
            got=str(real.shape),
            fix="reshape it",
        )
    out = results.new_like(value, tuple(wanted), real.dtype, "alloc")
    _core.copy_into(out, real.broadcast_to(tuple(wanted)), where="alloc", uncounted=True)
    return out

"""Join, split and fill arrays."""

from __future__ import annotations

import operator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.elementwise import results
from gpuinterop.elementwise.functions import cast_into, cast_operands
from gpuinterop.elementwise.operands import as_operand, result_class
from gpuinterop.elementwise.promotion import common_dtype, require_exact_in
from gpuinterop.errors import ArgumentTypeError, ShapeError, short_repr, type_name
from gpuinterop.errors.arguments import is_index, require_casting
from gpuinterop.errors.context import reraise_from

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["concatenate", "join", "as_array_list", "split", "stack"]


def as_array_list(arrays: Any, where: str, axis: Any = 0) -> list[Any]:
    """Return the arrays of a sequence: at least one, on one device. An array as `axis` belongs to the sequence."""
    separate = hasattr(axis, "shape") and not (is_index(axis) or isinstance(axis, np.generic))
    try:
        parts = [] if separate else list(arrays)
    except TypeError:
        separate = True
    if separate:
        raise ArgumentTypeError(
            where=where, expected="one sequence of arrays", fix=f"pass a list: {where}([x, y])",
            got=type_name(arrays) + (f", and {type_name(axis)} as axis" if hasattr(axis, "shape") else ""),
        )  # fmt: skip
    if not parts:
        raise ShapeError(
            where=where, expected="at least one array", got="no arrays", fix="pass arrays"
        )
    return results.as_operands(where, *parts)


@_core.served
def concatenate(
    arrays: Sequence[Any], axis: int | None = 0, out: Any = None, *, dtype: Any = None,
    casting: str = "same_kind",
) -> Any:  # fmt: skip
    """Join the arrays along `axis`; None flattens them first.

    One strided copy per array, without temporaries. Dtypes are promoted by NumPy's rules; with a
    CudaNdarray among the arrays the result is float32, as in every operation. With `dtype` the arrays are
    cast first, as `casting` allows.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.concatenate([[1, 2], [3]]).tolist()
    [1.0, 2.0, 3.0]
    """
    where = "concatenate"
    arrays = as_array_list(arrays, where, axis)
    if dtype is not None or casting != "same_kind":
        arrays = _cast(where, arrays, out, dtype, casting)
    parts = [results.plain(x) for x in arrays]
    shapes = tuple([x.shape for x in parts])
    if axis is None:
        shapes, axis = tuple([(x.size,) for x in parts]), 0
    elif type(axis) is not int:
        axis = _core.read_axis(axis, parts[0].ndim, where)
    leading = result_class([type(x) for x in arrays])
    only = getattr(leading, "_only", None)
    shape, dtype, places = _layout(axis, only, shapes, tuple([x.dtype for x in parts]))
    cls, device = results.class_for(leading, dtype), parts[0].device
    if out is None:
        out = _core.empty(cls, shape, dtype, device.type_code, device.index, where=where)
    else:
        results.check_out(out, shape, dtype, parts[0], where)
        # Writing one part must not change the parts that are read later.
        parts = [x.copy() if _core._may_overlap(x, out) else x for x in parts]
    target = results.plain(out)
    for key, x, shape in zip(places, parts, shapes, strict=True):
        part = target[key] if x.shape == shape else target[key].reshape(x.shape, copy=False)
        if x.dtype == dtype:
            _core.copy_into(part, x, where=where, uncounted=True)
        else:
            cast_into(part, x)
    return out


def _cast(where: str, arrays: list[Any], out: Any, dtype: Any, casting: str) -> list[Any]:
    """Return the arrays in the dtype of the result: `dtype`, that of `out`, or the common one."""
    require_casting(casting, where)
    if dtype is not None and out is not None:
        raise ArgumentTypeError(
            where=where, expected="dtype= or out=", got="both", fix="omit dtype="
        )
    if isinstance(out, _core.Array):
        dtype = out.dtype
    elif dtype is None:
        if getattr(result_class([type(x) for x in arrays]), "_only", None) is not None:
            return arrays  # to float32, as `concatenate` allows
        dtype = common_dtype(tuple(x.dtype for x in arrays), where)
    return cast_operands(where, arrays, dtype, casting)


@lru_cache(maxsize=1024)
def _layout(
    axis: int,
    dtype: np.dtype[Any] | None,
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[np.dtype[Any], ...],
) -> tuple[tuple[int, ...], np.dtype[Any], list[tuple[slice, ...]]]:
    """Return the shape and dtype of the joined array, `dtype` if given, and the slice of each part."""
    first = shapes[0]
    if not first:
        raise ShapeError(
            where="concatenate",
            expected="arrays of one axis or more",
            got="a 0-d array",
            fix="use stack",
        )
    along = _core.read_axis(axis, len(first), "concatenate")
    for other in shapes[1:]:
        if (*other[:along], *other[along + 1 :]) != (*first[:along], *first[along + 1 :]) or len(
            other
        ) != len(first):
            raise ShapeError(
                where="concatenate",
                expected=f"shapes that differ along axis {along} only",
                got=f"{first} and {other}",
                fix="reshape or slice one array",
            )
    ends = [0, *accumulate(shape[along] for shape in shapes)]
    if dtype is None:
        dtype = common_dtype(dtypes, "concatenate")
    else:
        require_exact_in("concatenate", dtype, tuple(dtype_id(one) for one in dtypes))
    before = (slice(None),) * along
    places = [(*before, slice(low, high)) for low, high in pairwise(ends)]
    shape = (*first[:along], ends[-1], *first[along + 1 :])
    return shape, dtype, places


def join(axis: int, *arrays: Any) -> Any:
    """Join the arrays along `axis` (Theano's order of arguments).

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.join(0, [1, 2], [3]).tolist()
    [1.0, 2.0, 3.0]
    """
    with reraise_from("join"):
        return concatenate(arrays, axis)


@_core.served
def stack(
    arrays: Sequence[Any], axis: int = 0, out: Any = None, *, dtype: Any = None,
    casting: str = "same_kind",
) -> Any:  # fmt: skip
    """Join the arrays along a new axis, with the options of `concatenate`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.stack([[1, 2], [3, 4]], axis=1).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    arrays = as_array_list(arrays, "stack", axis)
    parts = [results.plain(x) for x in arrays]
    for x in parts[1:]:
        if x.shape != parts[0].shape:
            raise ShapeError(
                where="stack",
                expected="equal shapes",
                got=f"{parts[0].shape} and {x.shape}",
                fix="reshape one",
            )
    axis = (
        int(axis) if isinstance(axis, bool) else axis
    )  # as numpy.stack, but not numpy.concatenate, takes it
    along = _core.read_axis(axis, parts[0].ndim + 1, "stack")
    views = [_core.view(type(g), x.expand_dims(along)) for g, x in zip(arrays, parts, strict=True)]
    with reraise_from("stack"):
        return concatenate(views, along, out, dtype=dtype, casting=casting)


@_core.served
def split(x: Any, sections: Any, axis: int = 0) -> list[Any]:
    """Split `x` along `axis` into views: n equal parts, or parts at the given indices.

    Examples
    --------
    >>> import gpuinterop
    >>> [part.tolist() for part in gpuinterop.split([1, 2, 3, 4], 2)]
    [[1.0, 2.0], [3.0, 4.0]]
    """
    (x,) = results.as_operands("split", x)
    cls, x = type(x), results.plain(x)
    along = _core.read_axis(axis, x.ndim, "split")
    n = x.shape[along]
    try:
        count = operator.index(sections) if is_index(sections) else None
        cuts = [] if count is not None else [operator.index(c) for c in sections]
    except TypeError:
        raise ArgumentTypeError(
            where="split",
            expected="a number of parts, or the indices at which to split",
            got=short_repr(sections),
            fix="pass an int or a list of ints",
        ) from None
    if count is not None:
        if count < 1 or n % count:
            raise ShapeError(
                where="split", expected=f"a number of parts that divides {n}", got=short_repr(count),
                fix="pass the indices at which to split",
            )  # fmt: skip
        cuts = [n // count * i for i in range(1, count)]
    edges = [0, *cuts, n]
    before = (slice(None),) * along
    pieces = []
    for low, high in pairwise(edges):
        key = (*before, slice(low, high))
        pieces.append(_core.view(cls, x[key]))
    return pieces


# NumPy's functions, whose names their errors get later.


@_core.served
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [np.atleast_2d(x) for x in as_array_list(tup, "numpy.vstack")]
    return concatenate(parts, 0, dtype=dtype, casting=casting)


@_core.served
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [np.atleast_1d(x) for x in as_array_list(tup, "numpy.hstack")]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@_core.served
def dstack(tup: Any) -> Any:
    parts = [np.atleast_3d(x) for x in as_array_list(tup, "numpy.dstack")]
    return concatenate(parts, 2)


@_core.served
def column_stack(tup: Any) -> Any:
    parts = as_array_list(tup, "numpy.column_stack")
    columns = [x if x.ndim > 1 else x.reshape((-1, 1)) for x in parts]
    return concatenate(columns, 1)


@_core.served
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    like = arr if isinstance(arr, _core.Array) else values
    parts = [as_operand(v, like, "numpy.append") for v in (arr, values)]
    return concatenate(parts, axis)

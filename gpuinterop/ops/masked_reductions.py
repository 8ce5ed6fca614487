"""Reductions with NumPy's where= and initial=: the others are set to what changes nothing, the plain
reduction follows, and one more step for the initial value, which joins small floats before they are
rounded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_input_array
from gpuinterop.dtypes import dtype_id
from gpuinterop.errors import ArgumentTypeError, DTypeError, ShapeError
from gpuinterop.host_views import refuse_mask
from gpuinterop.ops import output_arrays
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.ops.dtype_promotion import dtype_kind
from gpuinterop.ops.map_reduce import MapReduce
from gpuinterop.ops.operand_conversion import as_scalar, placed
from gpuinterop.ops.reduction_table import REDUCTIONS, reduced_shape

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["reduce_selected"]

# Floats of up to so many bytes are reduced in a wider type.
_WIDER = {"sum": 2, "prod": 4}


def reduce_selected(
    op: str, x: Any, axis: tuple[int, ...] | None, dtype: Any, keepdims: bool, ddof: float,
    initial: Any, where: Any,
) -> Any:  # fmt: skip
    """Return the reduction of an array of the general class; `dtype` is the one it is computed in."""
    row = REDUCTIONS[op]
    mask = None if where is None else _mask(where, x, op)
    arguments = {"axis": axis, "keepdims": keepdims}
    if row.ufunc is None:
        assert mask is not None  # they take no initial value
        return (
            _mean(x, mask, arguments)
            if op == "mean"
            else _spread(op, x, mask, axis, keepdims, ddof)
        )
    if op in ("sum", "prod"):
        arguments["dtype"] = dtype
    held = row.result(x.dtype) if dtype is None or op in ("min", "max") else dtype
    start = None if initial is None else _number(initial, held, op)
    if mask is not None:
        if row.identity is not None:
            other: Any = row.identity
        elif start is None:
            raise ShapeError(
                where=op, expected="an initial value beside where, because there is no identity",
                got="where alone", fix=f"pass initial=, what the {op} of no elements is",
            )  # fmt: skip
        else:
            other = start
        x = FUNCTIONS["where"](mask, x, bool(other) if x.dtype == np.bool_ else other)
    reduced = range(x.ndim) if axis is None else axis
    if op in ("min", "max") and start is not None and any(x.shape[i] == 0 for i in reduced):
        return _filled(x, tuple(reduced), keepdims, start)
    if start is not None and held.kind in "fV" and held.itemsize <= _WIDER.get(op, 0):
        return _joined_before_rounding(op, x, tuple(reduced), keepdims, start)
    value = getattr(x, op)(**arguments)
    return value if start is None else FUNCTIONS[row.ufunc.__name__](value, start)


def _mask(where: Any, x: Any, op: str) -> Any:
    """The condition on x's device, in x's shape."""
    if isinstance(where, _core.Array):
        mask = output_arrays.plain(where)
    else:
        refuse_mask(where, op)
        host = np.asarray(where)
        mask = placed(as_input_array(host, None, op), x, op, host.ndim == 0)
    if mask.dtype != np.bool_:
        raise DTypeError(
            where=op,
            expected="where of dtype bool",
            got=str(mask.dtype),
            fix="compare: where=x > 0",
        )
    try:
        return mask.broadcast_to(x.shape)
    except ShapeError:
        raise ShapeError(
            where=op, expected=f"where of a shape that broadcasts to {x.shape}", got=str(mask.shape),
            fix="reshape it",
        ) from None  # fmt: skip


def _number(initial: Any, dtype: Any, op: str) -> Any:
    """The initial value as a Python number of the result's kind, or as a 0-d array."""
    if isinstance(initial, _core.Array) and initial.ndim == 0:
        return output_arrays.plain(initial).astype(dtype, copy=False)
    given = None if isinstance(initial, _core.Array) else np.asarray(as_scalar(initial, op))
    if given is None or given.ndim or given.dtype.kind not in "biufc":
        raise ArgumentTypeError(
            where=op, expected="a number as initial", got=f"an object of type {type(initial).__name__}",
            fix="combine an array with the result: gpuinterop.add(x.sum(0), y)",
        )  # fmt: skip
    kinds: dict[str, Callable[[Any], Any]] = {
        "b": bool, "i": int, "u": int, "f": float, "c": complex
    }  # fmt: skip
    kind = dtype_kind(dtype_id(dtype))
    if given.dtype.kind == "c" and kind != "c":
        raise DTypeError(where=op, expected=f"an initial value that {dtype} holds", got=repr(initial),
                         fix="pass its real part, or cast x to a complex dtype")  # fmt: skip
    try:
        return kinds[kind](given.item())
    except (OverflowError, ValueError):
        raise DTypeError(where=op, expected=f"an initial value that {dtype} holds", got=repr(initial),
                         fix="cast x to a float: x.astype('float64')") from None  # fmt: skip


def _filled(x: Any, axes: tuple[int, ...], keepdims: bool, start: Any) -> Any:
    value = output_arrays.new_like(x, reduced_shape(x.shape, axes, keepdims), x.dtype)
    value[...] = start
    return value


def _joined_before_rounding(
    op: str, x: Any, axes: tuple[int, ...], keepdims: bool, start: Any
) -> Any:
    """The sum or product of small floats, `start` included, rounded to their dtype once."""
    first = start
    if not isinstance(start, _core.Array):
        first = output_arrays.new_like(x, (), x.dtype)
        with np.errstate(over="ignore"):
            first[...] = np.asarray(start).astype(x.dtype).item()
    value = _joining(op, axes, x.dtype)(x, extras=(first,))
    return value.reshape(reduced_shape(x.shape, axes, keepdims=True)) if keepdims else value


@lru_cache(maxsize=256)
def _joining(op: str, axes: tuple[int, ...], dtype: Any) -> Any:
    """The reduction as one kernel that its initial value joins."""
    row = REDUCTIONS[op]
    assert row.ufunc is not None
    reduce, join = row.numpy, row.ufunc

    def host(x: Any, e: Any) -> tuple[Any]:
        with np.errstate(all="ignore"):
            return (join(reduce(x[0], axis=axes, dtype=np.float64), e[0], dtype=np.float64),)

    post = "r + e0" if op == "sum" else "r * e0"
    return MapReduce("x0", host, op=op, axis=axes, posts=(post,), dtypes=(dtype,), where=op)


def _count(mask: Any, axis: Any, keepdims: bool) -> Any:
    return mask.sum(axis, keepdims=keepdims)


def _mean(x: Any, mask: Any, arguments: dict[str, Any]) -> Any:
    dtype = REDUCTIONS["mean"].result(x.dtype)
    # Small floats would overflow on the way.
    wide = x.astype(dtype if dtype.itemsize > 2 else np.float32, copy=False)
    total = FUNCTIONS["where"](mask, wide, 0).sum(**arguments)
    return FUNCTIONS["divide"](total, _count(mask, **arguments)).astype(dtype, copy=False)


def _spread(op: str, x: Any, mask: Any, axis: Any, keepdims: bool, ddof: float) -> Any:
    """Variance or standard deviation: squares around the mean, in double precision."""
    dtype = REDUCTIONS[op].result(x.dtype)
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=False)
    away = FUNCTIONS["absolute"](wide - _mean(wide, mask, {"axis": axis, "keepdims": True}))
    squares = FUNCTIONS["where"](mask, away * away, 0).sum(axis, keepdims=keepdims)
    degrees = FUNCTIONS["maximum"](_count(mask, axis, keepdims) - ddof, 0)
    value = FUNCTIONS["divide"](squares, degrees)
    return (FUNCTIONS["sqrt"](value) if op == "std" else value).astype(dtype, copy=False)

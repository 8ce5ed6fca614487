"""Reductions with NumPy's where= and initial=: elements that are left out are set to what changes nothing,
the plain reduction follows, and the initial value joins its result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.ops import output_arrays
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.ops.operand_conversion import as_scalar
from gpuinterop.ops.reduction_table import REDUCTIONS, reduced_shape
from gpuinterop.scalars import scalars_to_array


def reduce_selected(
    op: str, x: Any, axis: tuple[int, ...] | None, dtype: Any, keepdims: bool, ddof: float,
    initial: Any, where: Any,
) -> Any:  # fmt: skip
    """Return the reduction of an array of the general class; `dtype` is the one it is computed in."""
    row = REDUCTIONS[op]
    mask = None if where is None else output_arrays.selected(where, x, op)
    if row.ufunc is None:  # these take no initial value
        if op == "mean":
            return _mean(x, mask, axis, keepdims)
        return _spread(op, x, mask, axis, keepdims, ddof)
    held = row.result(x.dtype) if dtype is None or op in ("min", "max") else dtype
    start = None if initial is None else _number(initial, held, op)
    if mask is not None:
        if row.identity is None and start is None:
            raise ShapeError(
                where=op, expected="an initial value beside where, because there is no identity",
                got="where alone", fix=f"pass initial=, what the {op} of no elements is",
            )  # fmt: skip
        other: Any = start if row.identity is None else row.identity
        x = FUNCTIONS["where"](mask, x, bool(other) if x.dtype == np.bool_ else other)
    reduced = tuple(range(x.ndim)) if axis is None else axis
    if row.needs_elements and start is not None and not all(x.shape[i] for i in reduced):
        value = output_arrays.new_like(x, reduced_shape(x.shape, reduced, keepdims), x.dtype)
        value[...] = start
        return value
    given = {"dtype": dtype} if "dtype" in row.parameters else {}
    value = getattr(x, op)(axis=axis, keepdims=keepdims, **given)
    return value if start is None else FUNCTIONS[row.ufunc.__name__](value, start)


def _number(initial: Any, dtype: Any, op: str) -> Any:
    """The initial value as a Python number of the result's kind, or as a 0-d array."""
    if isinstance(initial, _core.Array) and initial.ndim == 0:
        return output_arrays.plain(initial).astype(dtype, copy=False)
    number = as_scalar(initial, op)
    if not isinstance(number, (bool, int, float, complex, np.generic)):
        raise ArgumentTypeError(
            where=op, expected="a number as initial", got=f"an object of type {type(initial).__name__}",
            fix="combine an array with the result: gpuinterop.add(x.sum(0), y)",
        )  # fmt: skip
    return scalars_to_array(number, dtype, f"{op}, initial").item()


def _mean(x: Any, mask: Any, axis: Any, keepdims: bool) -> Any:
    dtype = REDUCTIONS["mean"].result(x.dtype)
    # Small floats would overflow on the way.
    wide = x.astype(dtype if dtype.itemsize > 2 else np.float32, copy=False)
    total = FUNCTIONS["where"](mask, wide, 0).sum(axis, keepdims=keepdims)
    return FUNCTIONS["divide"](total, mask.sum(axis, keepdims=keepdims)).astype(dtype, copy=False)


def _spread(op: str, x: Any, mask: Any, axis: Any, keepdims: bool, ddof: float) -> Any:
    """Variance or standard deviation: squares around the mean, in double precision."""
    dtype = REDUCTIONS[op].result(x.dtype)
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=False)
    away = FUNCTIONS["absolute"](wide - _mean(wide, mask, axis, True))
    squares = FUNCTIONS["where"](mask, away * away, 0).sum(axis, keepdims=keepdims)
    degrees = FUNCTIONS["maximum"](mask.sum(axis, keepdims=keepdims) - ddof, 0)
    value = FUNCTIONS["divide"](squares, degrees)
    return (FUNCTIONS["sqrt"](value) if op == "std" else value).astype(dtype, copy=False)

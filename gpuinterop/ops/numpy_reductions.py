"""Reductions, products and joining as functions, under NumPy's names; and what NumPy's own
functions dispatch to (`__array_function__`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.ops import blas, concat_split, norms
from gpuinterop.ops.numpy_tables import NUMPY_FUNCTIONS, UFUNC_METHODS
from gpuinterop.ops.reduction_dispatch import FUNCTIONS_OF_AXES
from gpuinterop.ops.reduction_table import REDUCTIONS, Reduction
from gpuinterop.views import read_reduced_axes

_ROWS = [row for row in REDUCTIONS.values() if row.doc]
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: FUNCTIONS_OF_AXES[row.name] for row in _ROWS for name in (row.name, *row.aliases)
}
globals().update(_FUNCTIONS)

__all__ = [
    "concatenate", "dot", "inner", "join", "matmul", "split", "stack", "vdot", *sorted(_FUNCTIONS),
]  # fmt: skip

dot = blas.dot
matmul = blas.matmul
inner = blas.inner
vdot = blas.vdot
concatenate = concat_split.concatenate
split = concat_split.split
stack = concat_split.stack
join = concat_split.join


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were really given: NumPy has a value of its own for the others."""
    return {
        # Reductions refuse a where that is None; any other None is the default.
        k: v
        for k, v in options.items()
        if v is not np._NoValue and (v is not None or k == "where")
    }


def _numpy_reduction(row: Reduction) -> Callable[..., Any]:
    """NumPy's function: its parameters are those of the method, in the same order."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        given = _given(options)
        if "correction" in given and "ddof" in row.parameters:  # the array API's name
            if "ddof" in given:
                raise ArgumentTypeError(where=f"numpy.{row.name}", expected="ddof or correction",
                                        got="both", fix="pass one of them")  # fmt: skip
            given["ddof"] = given.pop("correction")
        return FUNCTIONS_OF_AXES[row.name](x, *args, **given)

    return call


def _numpy_norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Two axes are a matrix to NumPy: of its norms only Frobenius' is here."""
    if ord is None and axis is None:
        return norms.norm(x, None, None, keepdims)
    axes = read_reduced_axes(axis, x.ndim, "numpy.linalg.norm")
    if len(axes) not in (1, 2):
        raise ShapeError(
            where="numpy.linalg.norm", expected="one axis or two", got=f"{len(axes)} of shape {x.shape}",
            fix="gpuinterop.norm for the norm of the elements, or name the axes",
        )  # fmt: skip
    frobenius = isinstance(ord, str) and ord == "fro"
    if len(axes) == 2 and ord is not None and not frobenius:
        raise ShapeError(
            where="numpy.linalg.norm", expected="ord None or 'fro' for the norm of a matrix",
            got=f"ord={ord!r} over two axes",
            fix="gpuinterop.norm for the norm of the elements, numpy.linalg.norm(x.get(), ...) for the matrix's",
        )  # fmt: skip
    if len(axes) == 1 and frobenius:
        raise ShapeError(where="numpy.linalg.norm", expected="a number as ord, for the norm of a vector",
                         got="ord='fro'", fix="leave ord out")  # fmt: skip
    return norms.norm(x, ord, axes, keepdims)


NUMPY_FUNCTIONS.update({
    getattr(np, name): _numpy_reduction(row)
    for row in _ROWS for name in (row.name, *row.aliases) if hasattr(np, name)
})  # fmt: skip
NUMPY_FUNCTIONS.update({
    np.dot: blas.dot,
    np.vdot: blas.vdot,
    np.inner: blas.inner,
    np.matmul: blas.matmul,
    np.linalg.norm: _numpy_norm,
})  # fmt: skip


def _ufunc_reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
             **options: Any) -> Any:  # fmt: skip
        left = _given(options)
        if out is not None:
            left["out"] = out
        # Those without a dtype refuse it themselves.
        if dtype is not None:
            left["dtype"] = dtype
        return function(x, axis, keepdims=keepdims, **left)

    return call


# numpy.add.reduce reduces axis 0 unless an axis is given.
UFUNC_METHODS.update({
    (row.ufunc, "reduce"): _ufunc_reduce(FUNCTIONS_OF_AXES[row.name])
    for row in _ROWS
    if row.ufunc is not None
})  # fmt: skip

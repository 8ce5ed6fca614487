"""Reductions, products and joining as functions, under NumPy's names; and what NumPy's own
functions dispatch to (`__array_function__`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.ops import blas, concat_split, norms
from gpuinterop.ops.methods import NUMPY_FUNCTIONS, UFUNC_METHODS
from gpuinterop.ops.reduction_dispatch import normalized_axes

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin",
    "concatenate", "dot", "inner", "join", "matmul", "max", "mean", "min", "prod", "split",
    "stack", "std", "sum", "vdot", "var",
]  # fmt: skip

dot = blas.dot
matmul = blas.matmul
inner = blas.inner
vdot = blas.vdot
concatenate = concat_split.concatenate
split = concat_split.split
stack = concat_split.stack
join = concat_split.join


def _reducer(name: str) -> Callable[..., Any]:
    found: Any = _core._reducer(name)
    return found  # type: ignore[no-any-return]


# The core's own, so that a warm call has no Python in it; their docstrings are there as well.
sum: Callable[..., Any] = _reducer("sum")
prod: Callable[..., Any] = _reducer("prod")
mean: Callable[..., Any] = _reducer("mean")
min: Callable[..., Any] = _reducer("min")
max: Callable[..., Any] = _reducer("max")
amin, amax = min, max
argmin: Callable[..., Any] = _reducer("argmin")
argmax: Callable[..., Any] = _reducer("argmax")
any: Callable[..., Any] = _reducer("any")
all: Callable[..., Any] = _reducer("all")
var: Callable[..., Any] = _reducer("var")
std: Callable[..., Any] = _reducer("std")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were really given: NumPy has a value of its own for the others."""
    return {
        # Reductions refuse a where that is None; any other None is the default.
        k: v
        for k, v in options.items()
        if v is not np._NoValue and (v is not None or k == "where")
    }


def _numpy_reduction(
    function: Callable[..., Any], positional: tuple[str, ...]
) -> Callable[..., Any]:
    """NumPy's order of arguments."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        name = function.__name__
        if len(args) > len(positional):
            raise ArgumentTypeError(
                where=f"numpy.{name}", expected=f"at most {', '.join(positional)} after the array",
                got=f"{len(args)} arguments", fix="name the arguments",
            )  # fmt: skip
        given = _given(dict(zip(positional, args, strict=False)) | options)
        if "correction" in given and "ddof" in positional:  # the array API's name
            if "ddof" in given:
                raise ArgumentTypeError(where=f"numpy.{name}", expected="ddof or correction",
                                        got="both", fix="pass one of them")  # fmt: skip
            given["ddof"] = given.pop("correction")
        return function(x, **given)

    return call


def _numpy_norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Two axes are a matrix to NumPy: of its norms only Frobenius' is here."""
    if ord is None and axis is None:
        return norms.norm(x, None, None, keepdims)
    axes = normalized_axes(axis, x.ndim, "numpy.linalg.norm")
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


_ORDER = ("axis", "dtype", "out", "keepdims")
_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: _numpy_reduction(sum, _ORDER),
    np.prod: _numpy_reduction(prod, _ORDER),
    np.mean: _numpy_reduction(mean, _ORDER),
    np.amin: _numpy_reduction(min, ("axis", "out", "keepdims")),
    np.amax: _numpy_reduction(max, ("axis", "out", "keepdims")),
    np.min: _numpy_reduction(min, ("axis", "out", "keepdims")),
    np.max: _numpy_reduction(max, ("axis", "out", "keepdims")),
    np.argmin: _numpy_reduction(argmin, ("axis", "out")),
    np.argmax: _numpy_reduction(argmax, ("axis", "out")),
    np.any: _numpy_reduction(any, ("axis", "out", "keepdims")),
    np.all: _numpy_reduction(all, ("axis", "out", "keepdims")),
    np.var: _numpy_reduction(var, ("axis", "dtype", "out", "ddof", "keepdims")),
    np.std: _numpy_reduction(std, ("axis", "dtype", "out", "ddof", "keepdims")),
    np.dot: blas.dot,
    np.vdot: blas.vdot,
    np.inner: blas.inner,
    np.matmul: blas.matmul,
    np.linalg.norm: _numpy_norm,
}


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


# numpy.add.reduce reduces axis 0 unless told otherwise.
_REDUCES: dict[tuple[np.ufunc, str], Callable[..., Any]] = {
    (np.add, "reduce"): _ufunc_reduce(sum),
    (np.multiply, "reduce"): _ufunc_reduce(prod),
    (np.minimum, "reduce"): _ufunc_reduce(min),
    (np.maximum, "reduce"): _ufunc_reduce(max),
    (np.logical_or, "reduce"): _ufunc_reduce(any),
    (np.logical_and, "reduce"): _ufunc_reduce(all),
}

NUMPY_FUNCTIONS.update(_FUNCTIONS)
UFUNC_METHODS.update(_REDUCES)

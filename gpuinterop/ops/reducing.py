"""Reductions, products and joining as functions, under NumPy's names; and what NumPy's own
functions dispatch to (`__array_function__`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop.ops import blas, join, reductions, results
from gpuinterop.ops.methods import NUMPY_FUNCTIONS, UFUNC_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin",
    "concatenate", "dot", "inner", "join", "matmul", "max", "mean", "min", "prod", "split",
    "stack", "std", "sum", "vdot", "var",
]  # fmt: skip

dot = blas.dot
matmul = blas.matmul
inner = blas.inner
vdot = blas.vdot
concatenate = join.concatenate
split = join.split
stack = join.stack
join = join.join  # type: ignore[assignment]


def _reducing(name: str, doc: str) -> Callable[..., Any]:
    def function(x: Any, axis: Any = None, **options: Any) -> Any:
        results.require_arrays(name, x)
        return getattr(x, name)(axis, **{k: v for k, v in options.items() if v is not np._NoValue})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


sum = _reducing("sum", "Return the sum over `axis`; see the array's method.")
prod = _reducing("prod", "Return the product over `axis`.")
mean = _reducing("mean", "Return the mean over `axis`.")
min = amin = _reducing("min", "Return the minimum over `axis`; a NaN wins.")
max = amax = _reducing("max", "Return the maximum over `axis`; a NaN wins.")
argmin = _reducing("argmin", "Return where the first minimum is.")
argmax = _reducing("argmax", "Return where the first maximum is.")
any = _reducing("any", "Return whether any element is not zero.")
all = _reducing("all", "Return whether all elements are not zero.")
var = _reducing("var", "Return the variance over `axis`.")
std = _reducing("std", "Return the standard deviation over `axis`.")


def _numpy_reduction(
    function: Callable[..., Any], positional: tuple[str, ...]
) -> Callable[..., Any]:
    """NumPy's order of arguments, of which `where` and `initial` have no counterpart here."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        given = dict(zip(positional, args, strict=False)) | options
        left = {k: v for k, v in given.items() if v is not np._NoValue}
        axis = left.pop("axis", None)
        out = left.pop("out", None)
        if out is not None:
            left["out"] = out
        return function(x, axis, **left)

    return call


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
    np.outer: lambda a, b, out=None: blas.ger(a.ravel(), b.ravel(), out=out),
    np.matmul: blas.matmul,
    np.linalg.norm: reductions.norm,
    np.concatenate: concatenate,
    np.stack: stack,
    np.split: lambda x, sections, axis=0: split(x, sections, axis),
    np.vstack: lambda parts: concatenate(
        [p if p.ndim > 1 else p.reshape((1, -1)) for p in parts], 0
    ),
    np.hstack: lambda parts: concatenate(list(parts), 0 if parts[0].ndim == 1 else 1),
    np.transpose: lambda x, axes=None: x.transpose(axes) if axes is not None else x.T,
    np.reshape: lambda x, shape, order="C": x.reshape(shape, order=order),
    np.ravel: lambda x, order="C": x.ravel(order),
    np.squeeze: lambda x, axis=None: x.squeeze(axis),
    np.expand_dims: lambda x, axis: x.expand_dims(axis),
    np.swapaxes: lambda x, axis1, axis2: x.swapaxes(axis1, axis2),
    np.broadcast_to: lambda x, shape: x.broadcast_to(shape),
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.copy: lambda x, order="C", subok=False: x.copy(),
}


def _ufunc_reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        return function(x, axis, out=out, keepdims=keepdims, **options)

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

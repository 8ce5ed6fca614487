"""Functions of theano.tensor that PyTensor has in another form, or no longer."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytensor.gradient
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor import variable

__all__ = ["Lop", "Rop", "TensorVariable", "abs_", "addbroadcast", "all", "allclose", "any",
           "as_tensor_variable", "batched_dot", "batched_tensordot", "ceil", "conj", "constant", "eq",
           "flatten", "floor", "ge", "grad", "gt", "hessian", "imag", "inc_subtensor", "inv", "iround",
           "isclose", "isinf", "isnan", "jacobian", "le", "lt", "mean", "min", "neg", "neq",
           "patternbroadcast", "ptp", "real", "round", "solve_lower_triangular",
           "solve_upper_triangular", "split", "stack", "std", "tile", "triu", "trunc", "unbroadcast",
           "var", "verify_grad"]  # fmt: skip

abs_ = pt.abs
inv = pt.reciprocal
addbroadcast = pt.specify_broadcastable
grad, jacobian, hessian = (
    getattr(pytensor.gradient, name) for name in ("grad", "jacobian", "hessian")
)
Lop = pytensor.gradient.Lop
solve_lower_triangular = partial(pt.linalg.solve_triangular, lower=True)
solve_upper_triangular = partial(pt.linalg.solve_triangular, lower=False)


def _of_truths(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose results are int8, as Theano had no bool: they can be added and subtracted."""

    @functools.wraps(function, updated=())
    def of_int8(*arguments: Any, **options: Any) -> Any:
        return pt.cast(function(*arguments, **options), "int8")

    return of_int8


eq, neq, lt, le, gt, ge, isnan, isinf, isclose, allclose, any, all = map(
    _of_truths,
    (pt.eq, pt.neq, pt.lt, pt.le, pt.gt, pt.ge, pt.isnan, pt.isinf, pt.isclose, pt.allclose, pt.any, pt.all),
)  # fmt: skip


def _of_complex(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns real numbers as they are.

    PyTensor's own returns NumPy's view of them, into which a later operation in place would write: the caller's array.
    """

    @functools.wraps(function, updated=())
    def of_parts(x: Any) -> Any:
        x = pt.as_tensor_variable(x)
        return function(x) if np.dtype(x.dtype).kind == "c" else x

    return of_parts


real, conj = _of_complex(pt.real), _of_complex(pt.conj)


def imag(x: Any) -> Any:
    """Return the imaginary part, which is 0 for real numbers."""
    x = pt.as_tensor_variable(x)
    return pt.imag(x) if np.dtype(x.dtype).kind == "c" else pt.zeros_like(x)


def Rop(f: Any, wrt: Any, eval_points: Any) -> Any:
    """Return Jacobians times `eval_points`. They depend on `wrt`, which may be an input of the compiled function."""
    found = pytensor.gradient.Rop(f, wrt, eval_points)
    wrt = wrt if isinstance(wrt, list | tuple) else [wrt]
    zero = pt.add(0, *(pt.zeros_like(x).sum() for x in wrt))

    def dependent(x: Any) -> Any:
        return pt.second(pt.cast(zero, x.dtype), x)

    return (
        type(found)(map(dependent, found)) if isinstance(found, list | tuple) else dependent(found)
    )


def neg(x: Any) -> Any:
    """Return -x. Integers wrap; rewrites move the sign of PyTensor's own to where they are of a wider dtype."""
    x = pt.as_tensor_variable(x)
    if np.dtype(x.dtype).kind not in "iu":
        return pt.neg(x)
    return pt.invert(x - pt.constant(1, dtype=x.dtype))


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the smallest elements. PyTensor's -max(-x) is wrong for the lowest integer, whose negative is itself."""
    x = pt.as_tensor_variable(x)
    if np.dtype(x.dtype).kind not in "iu":
        return pt.min(x, axis, keepdims)
    return pt.invert(pt.max(pt.invert(x), axis, keepdims))


def ptp(x: Any, axis: Any = None) -> Any:
    """Return the differences between the largest and the smallest elements."""
    return pt.max(x, axis) - min(x, axis)


def triu(m: Any, k: int = 0) -> Any:
    """Return a matrix with zeros below a diagonal, of unsigned integers in a signed dtype."""
    m = pt.as_tensor_variable(m)
    return m * (1 - pt.tri(m.shape[0], m.shape[1], k=k - 1, dtype=m.dtype))


def mean(x: Any, axis: Any = None, dtype: Any = None, op: bool = False, keepdims: bool = False,
         acc_dtype: Any = None) -> Any:  # fmt: skip
    """Return means along axes, of integers in float64. Over no axes they are sums, and stay integers."""
    x = pt.as_tensor_variable(x)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    function = pt.mean if len(axes) else pt.sum
    return function(x, axis, dtype, keepdims=keepdims, acc_dtype=acc_dtype)


def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return variances along axes."""
    x = pt.as_tensor_variable(x)
    return mean((x - mean(x, axis, keepdims=True)) ** 2, axis, keepdims=keepdims)


def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return standard deviations along axes."""
    return pt.sqrt(var(x, axis, keepdims))


def inc_subtensor(x: Any, y: Any, *rest: Any, **options: Any) -> Any:
    """Return an array with a part of which `x` is the view increased by y, of integers in the dtype of x."""
    y = pt.as_tensor_variable(y)
    if np.dtype(x.dtype).kind in "iu" and np.dtype(y.dtype).kind in "iu":
        y = pt.cast(y, x.dtype)
    return pt.inc_subtensor(x, y, *rest, **options)


def _of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that rounds, which returns integers as they are."""

    @functools.wraps(function, updated=())
    def rounded(x: Any, *options: Any, **named: Any) -> Any:
        x = pt.as_tensor_variable(x)
        return x if np.dtype(x.dtype).kind in "biu" else function(x, *options, **named)

    return rounded


ceil, floor, trunc = map(_of_floats, (pt.ceil, pt.floor, pt.trunc))


@_of_floats
def round(x: Any, mode: str | None = None) -> Any:
    """Return the nearest integers. Halves are rounded away from zero, or to even integers if `mode` says so."""
    if mode not in (None, "half_away_from_zero"):
        return pt.round(x, mode)
    whole = pt.trunc(x)
    return whole + pt.sign(x) * pt.ge(pt.abs(x - whole), 0.5)


def iround(x: Any, mode: str | None = None) -> Any:
    """Return `round` in int64."""
    return pt.cast(round(x, mode), "int64")


def constant(x: Any, name: str | None = None, ndim: int | None = None, dtype: Any = None) -> Any:
    """Return a constant. An array of bool becomes uint8."""
    return pt.constant(_without_bool(x), name, ndim, dtype)


def as_tensor_variable(x: Any, name: str | None = None, ndim: int | None = None) -> Any:
    """Return a variable, or a constant of a value. An array of bool becomes uint8."""
    return pt.as_tensor_variable(_without_bool(x), name, ndim)


def _without_bool(x: Any) -> Any:
    return x.astype("uint8") if isinstance(x, np.ndarray | np.bool_) and x.dtype == bool else x


class _Variables(type(variable.TensorVariable)):  # type: ignore[misc]  # the type of a class
    """The type of `TensorVariable`: PyTensor's constants and shared variables are subclasses, Theano's were not."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, variable.TensorVariable) and not isinstance(
            x, Constant | SharedVariable
        )


class TensorVariable(variable.TensorVariable, metaclass=_Variables):
    """Symbolic arrays that are neither constants nor shared variables."""


def batched_dot(a: Any, b: Any) -> Any:
    """Return the products of the matrices, vectors or numbers a[i] and b[i]."""
    a, b = pt.as_tensor_variable(a), pt.as_tensor_variable(b)
    if 1 in (a.ndim, b.ndim):
        return pt.shape_padright(a, max(b.ndim - a.ndim, 0)) * pt.shape_padright(
            b, max(a.ndim - b.ndim, 0)
        )
    product = pt.matmul(a if a.ndim > 2 else a[:, None, :], b if b.ndim > 2 else b[:, :, None])
    if b.ndim == 2:
        product = product[..., 0]
    return product if a.ndim > 2 else product[:, 0]


def batched_tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """Sum products of the arrays x[i] and y[i] over pairs of axes, or over the last ones of x and the first of y."""
    x, y = pt.as_tensor_variable(x), pt.as_tensor_variable(y)
    if isinstance(axes, int):
        axes = range(x.ndim - axes, x.ndim), range(1, axes + 1)
    over = [[a] if isinstance(a, int) else list(a) for a in axes]
    left, right = list(string.ascii_lowercase[: x.ndim]), list(string.ascii_uppercase[: y.ndim])
    right[0] = left[0]
    for i, j in zip(*over, strict=True):
        right[j] = left[i]
    kept = left[:1] + [a for a in left + right if (a in left) != (a in right)]
    return pt.einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", x, y)


def flatten(x: Any, ndim: int | None = None, outdim: int | None = None) -> Any:
    """Return a view whose last axis takes up all axes from ``ndim - 1`` on. Theano called it ``outdim`` first."""
    return pt.flatten(x, ndim or outdim or 1)


def patternbroadcast(x: Any, broadcastable: Any) -> Any:
    """Declare that the axes where `broadcastable` is true have length 1."""
    return pt.specify_broadcastable(x, *(i for i, one in enumerate(broadcastable) if one))


def unbroadcast(x: Any, *axes: int) -> Any:
    """Return the variable itself: PyTensor accepts axes of length 1 where a type does not declare them."""
    return pt.as_tensor_variable(x)


def split(x: Any, splits_size: Any, n_splits: int, axis: int = 0) -> Any:
    """Return the parts of an array of the given lengths along an axis."""
    return pt.split(x, splits_size, n_splits=n_splits, axis=axis)


def stack(*tensors: Any, axis: int = 0) -> Any:
    """Join arrays along a new axis: a list and an axis, or the arrays themselves."""
    if isinstance(tensors[0], (list, tuple)):
        return pt.stack(*tensors, axis=axis) if len(tensors) == 1 else pt.stack(*tensors)
    return pt.stack(tensors, axis=axis)


def tile(x: Any, reps: Any, ndim: int | None = None) -> Any:
    """Repeat an array `reps` times along its axes; `ndim` is the number of axes of the result."""
    reps = reps if isinstance(reps, list | tuple) else (reps,)
    return pt.tile(x, (1,) * ((ndim or 0) - len(reps)) + tuple(reps))


def verify_grad(fun: Any, pt: Any, n_tests: int = 2, rng: Any = None, **options: Any) -> None:
    """Compare the gradient of a function with finite differences."""
    rng = np.random.default_rng(666) if rng is None else rng
    pytensor.gradient.verify_grad(fun, pt, n_tests=n_tests, rng=rng, **options)

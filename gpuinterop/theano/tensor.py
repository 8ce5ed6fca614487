"""Functions of theano.tensor that PyTensor has in another form, or no longer."""

from __future__ import annotations

import string
from functools import partial
from typing import Any

import numpy as np
import pytensor.gradient
import pytensor.tensor as pt

__all__ = ["Lop", "Rop", "abs_", "addbroadcast", "batched_dot", "batched_tensordot", "flatten", "grad", "hessian",
           "inv", "jacobian", "patternbroadcast", "solve_lower_triangular", "solve_upper_triangular", "split", "stack",
           "unbroadcast", "verify_grad"]  # fmt: skip

abs_ = pt.abs
inv = pt.reciprocal
addbroadcast = pt.specify_broadcastable
grad, jacobian, hessian = (
    getattr(pytensor.gradient, name) for name in ("grad", "jacobian", "hessian")
)
Rop, Lop = pytensor.gradient.Rop, pytensor.gradient.Lop
solve_lower_triangular = partial(pt.linalg.solve_triangular, lower=True)
solve_upper_triangular = partial(pt.linalg.solve_triangular, lower=False)


def batched_dot(a: Any, b: Any) -> Any:
    """Return the products of the matrices, or vectors, a[i] and b[i]."""
    a, b = pt.as_tensor_variable(a), pt.as_tensor_variable(b)
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


def verify_grad(fun: Any, pt: Any, n_tests: int = 2, rng: Any = None, **options: Any) -> None:
    """Compare the gradient of a function with finite differences."""
    rng = np.random.default_rng(666) if rng is None else rng
    pytensor.gradient.verify_grad(fun, pt, n_tests=n_tests, rng=rng, **options)

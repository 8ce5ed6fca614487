"""theano.tensor.nnet: activations and costs, in the operations that PyTensor has."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor import special

__all__ = [
    "binary_crossentropy", "categorical_crossentropy", "elu", "hard_sigmoid", "log_softmax", "logsoftmax", "relu",
    "sigmoid", "softmax", "softplus", "ultra_fast_sigmoid",
]  # fmt: skip

sigmoid = ultra_fast_sigmoid = pt.sigmoid
softplus = pt.softplus


def _rows(function: Any) -> Any:
    """Return the function of the last axis, as Theano defined it. A vector becomes a matrix of one row."""

    def of_rows(c: Any) -> Any:
        c = pt.as_tensor_variable(c)
        return function(pt.atleast_2d(c), axis=-1)

    return of_rows


softmax = _rows(special.softmax)
log_softmax = logsoftmax = _rows(special.log_softmax)


def hard_sigmoid(x: Any) -> Any:
    """Return a piecewise linear approximation of the sigmoid."""
    return pt.clip(0.2 * x + 0.5, 0, 1)


def relu(x: Any, alpha: Any = 0) -> Any:
    """Return the larger of x and alpha * x."""
    return pt.maximum(x, 0) if alpha == 0 else pt.switch(x > 0, x, alpha * x)


def elu(x: Any, alpha: Any = 1) -> Any:
    """Return x where it is positive, and alpha * (exp(x) - 1) elsewhere."""
    return pt.switch(x > 0, x, alpha * pt.expm1(x))


def binary_crossentropy(output: Any, target: Any) -> Any:
    """Return the cross-entropy of probabilities and targets of two classes, element by element."""
    return -(target * pt.log(output) + (1 - target) * pt.log1p(-output))


def categorical_crossentropy(coding: Any, true: Any) -> Any:
    """Return the cross-entropy of rows of probabilities and rows of targets, or a vector of classes."""
    if true.ndim == coding.ndim:
        return -pt.sum(true * pt.log(coding), axis=coding.ndim - 1)
    return -pt.log(coding[pt.arange(true.shape[0]), true])

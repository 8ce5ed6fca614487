"""theano.tensor.nnet: activations and costs, in the operations that PyTensor has."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor import special

__all__ = [
    "batch_normalization", "binary_crossentropy", "categorical_crossentropy", "crossentropy_categorical_1hot",
    "crossentropy_softmax_1hot", "crossentropy_softmax_1hot_with_bias",
    "crossentropy_softmax_argmax_1hot_with_bias", "elu", "hard_sigmoid", "log_softmax", "logsoftmax", "relu",
    "selu", "sigmoid", "sigmoid_binary_crossentropy", "softmax", "softmax_with_bias", "softplus", "softsign",
    "ultra_fast_sigmoid",
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


def selu(x: Any) -> Any:
    """Return elu, scaled so that mean 0 and variance 1 are preserved."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def softsign(x: Any) -> Any:
    """Return x / (1 + abs(x))."""
    return x / (1 + pt.abs(x))


def batch_normalization(
    inputs: Any, gamma: Any, beta: Any, mean: Any, std: Any, mode: str = "low_mem"
) -> Any:
    """Return the inputs with another mean and standard deviation; `mode` chose between two ways to compute them."""
    return (inputs - mean) * (gamma / std) + beta


def softmax_with_bias(x: Any, b: Any) -> Any:
    """Return the softmax of the rows of x + b."""
    return softmax(x + b)


def sigmoid_binary_crossentropy(output: Any, target: Any) -> Any:
    """Return the cross-entropy of sigmoid(output) and targets."""
    return softplus(-pt.abs(output)) + pt.maximum(output, 0) - output * target


def binary_crossentropy(output: Any, target: Any) -> Any:
    """Return the cross-entropy of probabilities and targets of two classes, element by element."""
    return -(target * pt.log(output) + (1 - target) * pt.log1p(-output))


def categorical_crossentropy(coding: Any, true: Any) -> Any:
    """Return the cross-entropy of rows of probabilities and rows of targets, or a vector of classes."""
    if true.ndim == coding.ndim:
        return -pt.sum(true * pt.log(coding), axis=coding.ndim - 1)
    return -pt.log(coding[pt.arange(true.shape[0]), true])


crossentropy_categorical_1hot = categorical_crossentropy


def crossentropy_softmax_1hot(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the cross-entropy of the softmax of the rows of x and classes, and the softmax."""
    p = softmax(x)
    return categorical_crossentropy(p, pt.as_tensor_variable(y)), p


def crossentropy_softmax_1hot_with_bias(x: Any, b: Any, y: Any) -> tuple[Any, Any]:
    """Return the same of x + b."""
    return crossentropy_softmax_1hot(x + b, y)


def crossentropy_softmax_argmax_1hot_with_bias(x: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return the same of x + b, and the most probable classes."""
    return *crossentropy_softmax_1hot(x + b, y), pt.argmax(x + b, axis=-1)

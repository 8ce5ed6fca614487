"""theano.tensor.nnet: activations and costs, in the operations that PyTensor has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import special

__all__ = [
    "batch_normalization", "binary_crossentropy", "categorical_crossentropy", "crossentropy_categorical_1hot",
    "crossentropy_softmax_1hot", "crossentropy_softmax_1hot_with_bias",
    "crossentropy_softmax_argmax_1hot_with_bias", "crossentropy_softmax_max_and_argmax_1hot",
    "crossentropy_softmax_max_and_argmax_1hot_with_bias", "elu", "hard_sigmoid", "log_softmax", "logsoftmax",
    "prepend_0_to_each_row", "prepend_1_to_each_row", "prepend_scalar_to_each_row", "relu", "selu", "sigmoid",
    "sigmoid_binary_crossentropy", "softmax", "softmax_graph", "softmax_with_bias", "softplus", "softsign",
    "ultra_fast_sigmoid",
]  # fmt: skip

sigmoid = pt.sigmoid
softplus = pt.softplus


def _rows(function: Any) -> Any:
    """Return the function of the last axis, as Theano defined it. A vector becomes a matrix of one row."""

    def of_rows(c: Any) -> Any:
        c = pt.as_tensor_variable(c)
        return function(pt.atleast_2d(c), axis=-1)

    return of_rows


softmax = softmax_graph = _rows(special.softmax)
log_softmax = logsoftmax = _rows(special.log_softmax)


def _of_floats(x: Any, *numbers: float) -> list[Any]:
    """Return a variable, in a dtype of floats, and numbers in this dtype."""
    x = pt.as_tensor_variable(x)
    dtype = np.result_type(x.dtype, "float32")
    return [pt.cast(x, dtype), *(pt.constant(number, dtype=dtype) for number in numbers)]


def hard_sigmoid(x: Any) -> Any:
    """Return a piecewise linear approximation of the sigmoid."""
    x, slope, shift = _of_floats(x, 0.2, 0.5)
    return pt.clip(x * slope + shift, 0, 1)


def ultra_fast_sigmoid(x: Any) -> Any:
    """Return a sigmoid that is wrong by up to 0.03: a rational function, a line and a constant."""
    x, half, slope, shift, most = _of_floats(
        x, 0.5, 0.0458812946797165, 0.857410869647581, 0.99505475368673
    )
    size = pt.abs(half * x)
    fraction = pt.cast(1.5, x.dtype) * size / (1 + size)
    tanh = pt.switch(size < 1.7, fraction, pt.switch(size < 3, slope * size + shift, most))
    return half * (pt.sign(x) * tanh + 1)


def relu(x: Any, alpha: Any = 0) -> Any:
    """Return the larger of x and alpha * x. The gradient at 0 is the mean of 1 and alpha."""
    x = pt.as_tensor_variable(x)
    if isinstance(alpha, int | float) and alpha == 0:
        return 0.5 * (x + pt.abs(x))
    return 0.5 * (1 + alpha) * x + 0.5 * (1 - alpha) * pt.abs(x)


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
    y = pt.as_tensor_variable(y)
    return *crossentropy_softmax_1hot(x + b, y), pt.cast(pt.argmax(x + b, axis=-1), y.dtype)


def crossentropy_softmax_max_and_argmax_1hot(x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Return the cross-entropy, the softmax, and the largest probability of each row and its class."""
    cost, p = crossentropy_softmax_1hot(x, y)
    return cost, p, *pt.max_and_argmax(p, axis=-1)


def crossentropy_softmax_max_and_argmax_1hot_with_bias(
    x: Any, b: Any, y: Any
) -> tuple[Any, Any, Any, Any]:
    """Return the same of x + b."""
    return crossentropy_softmax_max_and_argmax_1hot(x + b, y)


def prepend_scalar_to_each_row(value: Any, x: Any) -> Any:
    """Return a matrix with one more column, the first, of a value."""
    x = pt.as_tensor_variable(x)
    return pt.concatenate([pt.alloc(pt.cast(value, x.dtype), x.shape[0], 1), x], axis=1)


def prepend_0_to_each_row(x: Any) -> Any:
    """Return a matrix with a first column of zeros."""
    return prepend_scalar_to_each_row(0, x)


def prepend_1_to_each_row(x: Any) -> Any:
    """Return a matrix with a first column of ones."""
    return prepend_scalar_to_each_row(1, x)

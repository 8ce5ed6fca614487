"""Functions that NumPy lacks, for arrays in host memory: right to a few last bits, not fast.

Each works in float64 whatever comes in; the caller rounds. lgamma and digamma are sums, and near their
roots as exact as the largest term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    loop = np.frompyfunc(function, 1, 1)

    def run(x: Any) -> Any:
        return np.asarray(loop(np.asarray(x, np.float64)), np.float64)

    return run


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:  # a pole, or minus infinity
        return math.nan


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (OverflowError, ValueError):  # too large, or a pole
        return math.inf


erf = _each(math.erf)
erfc = _each(math.erfc)
gamma = _each(_gamma)
lgamma = _each(_lgamma)


def erfinv(x: Any) -> Any:
    """The inverse of erf, by Newton's method from a logarithmic first guess."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        inside = np.abs(x) < 1
        p = np.where(inside, x, 0.0)
        # Winitzki's approximation is good to 2e-3 everywhere; the error squares with each step.
        log = np.log1p(-p * p)
        b = 2 / (math.pi * 0.147) + log / 2
        y = np.copysign(np.sqrt(np.sqrt(b * b - log / 0.147) - b), p)
        for _ in range(4):
            # Near 1 the complement keeps the digits that erf(y) - p would lose.
            tail = np.abs(p) > 0.5
            error = np.where(tail, np.sign(p) * ((1 - np.abs(p)) - erfc(np.abs(y))), erf(y) - p)
            slope = error / (2 / math.sqrt(math.pi) * np.exp(-y * y))
            y = y - slope / (1 + y * slope)
        edge = np.where(np.abs(x) == 1, np.copysign(np.inf, x), np.nan)
        return np.where(inside, np.where(p == 0, x, y), edge)


def digamma(x: Any) -> Any:
    """The logarithmic derivative of gamma.

    From 10 on the asymptotic series; below, the recurrence up to there; reflection below zero.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        negative = x < 0
        reflected = np.where(negative, -math.pi / np.tan(math.pi * (x - np.rint(x))), 0.0)
        y = np.where(negative, 1 - x, x)
        steps = np.zeros_like(y)
        for _ in range(10):
            below = y < 10
            steps += np.where(below, 1 / y, 0.0)
            y = np.where(below, y + 1, y)
        s = 1 / (y * y)
        series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (
            691 / 32760 - s / 12))))))  # fmt: skip
        result = np.log(y) - 0.5 / y - series - steps + reflected
        result = np.where(negative & (np.floor(x) == x), np.nan, result)
        return np.where(x == 0, np.copysign(np.inf, -x), result)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        t = np.exp(-np.abs(x))
        return np.where(x >= 0, 1.0, t) / (1 + t)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def reciprocal_sqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    with np.errstate(all="ignore"):
        return 1 / np.sqrt(np.asarray(x, np.float64))

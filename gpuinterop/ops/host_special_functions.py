"""Functions that NumPy lacks, for arrays in host memory: accurate to the last few bits, but slow.

Each computes in float64; the caller rounds. Below zero digamma is a sum of two terms, and near its roots
there it is only as exact as the larger term.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        x = np.asarray(x, np.float64)
        elements = memoryview(x.reshape(-1))  # yields Python floats
        return np.fromiter(map(function, elements), np.float64, x.size).reshape(x.shape)

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


erf = _each(math.erf)
erfc = _each(math.erfc)
gamma = _each(_gamma)
# The C library's, because math.lgamma has no relative accuracy near its roots, 1 and 2.
_libm_lgamma: Any = ctypes.CDLL(None).lgamma
_libm_lgamma.argtypes, _libm_lgamma.restype = [ctypes.c_double], ctypes.c_double
lgamma = _each(_libm_lgamma)


def erfinv(x: Any) -> Any:
    """Return the inverse of erf, by Newton's method from a logarithmic first guess."""
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


# digamma(x) / (x - root) from 1 to 2 as a quotient of polynomials in x - 1.5, to 2e-20.
_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
_DIGAMMA = (
    (0.9510558760318328, 1.1679111579426005, 0.5154094731197817, 0.10042401805503895, 0.008381474146487187,
     0.00023002912707404408, 4.33333468878948e-07),
    (1.0, 1.673443821055568, 1.0344120721454126, 0.2991411261841631, 0.041684601834226634, 0.0025322414569281947,
     4.747614405463347e-05),
)  # fmt: skip


def digamma(x: Any) -> Any:
    """Return the logarithmic derivative of gamma.

    From 10 on by the asymptotic series; below 10 by the recurrence from its value between 1 and 2, where its root
    is a factor; below zero by reflection.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        negative = x < 0
        reflected = np.where(negative, -math.pi / np.tan(math.pi * (x - np.rint(x))), 0.0)
        y = np.where(negative, 1 - x, x)
        s = 1 / (y * y)
        series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (
            691 / 32760 - s / 12))))))  # fmt: skip
        large = np.log(y) - 0.5 / y - series
        far, z, steps = ~(y < 10), np.where(y < 10, y, 1.0), np.zeros_like(y)
        for _ in range(8):
            down = z > 2
            z = np.where(down, z - 1, z)
            steps += np.where(down, 1 / z, 0.0)
        up = z < 1
        steps -= np.where(up, 1 / z, 0.0)
        z = np.where(up, z + 1, z)
        # With tensor=True polyval adds an axis to the array's, of which it may have 64.
        above, below = (
            np.polynomial.polynomial.polyval(z - 1.5, part, tensor=False) for part in _DIGAMMA
        )
        near = (z - _DIGAMMA_ROOT[0] - _DIGAMMA_ROOT[1]) * (above / below) + steps
        result = np.where(far, large, near) + reflected
        result = np.where(negative & (np.floor(x) == x), np.nan, result)
        return np.where(x == 0, np.copysign(np.inf, -x), result)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        t = np.exp(-np.abs(x))
        above = np.where(x >= 0, 1.0, t)
        t += 1
        above /= t
        return above


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), without overflow."""
    with np.errstate(all="ignore"):
        return np.logaddexp(np.asarray(x, np.float64), 0)


def reciprocal_sqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    with np.errstate(all="ignore"):
        return 1 / np.sqrt(np.asarray(x, np.float64))

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
    """Return the inverse of erf, by Newton's method from a logarithmic first guess; with few arrays in between."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        p = np.abs(x)
        inside, edge = p < 1, p == 1
        p[~inside] = 0
        # Winitzki's approximation is good to 2e-3 everywhere; the error squares with each step.
        log = np.log1p(-p * p)
        b = 2 / (math.pi * 0.147) + log / 2
        y = b * b
        y -= log / 0.147
        np.sqrt(y, out=y)
        y -= b
        np.sqrt(y, out=y)
        del log, b
        # Near 1 the complement keeps the digits that erf(y) - p would lose.
        tail = p > 0.5
        center = ~tail
        error = np.empty_like(p)
        for _ in range(4):
            complement = erfc(y[tail])
            rest = p[tail]
            np.subtract(1, rest, out=rest)
            rest -= complement
            error[tail] = rest
            del complement, rest
            error[center] = erf(y[center]) - p[center]
            error /= 2 / math.sqrt(math.pi) * np.exp(-y * y)
            error /= 1 + y * error
            y -= error
        y[p == 0] = 0
        y[~inside] = np.nan
        y[edge] = np.inf
        return np.copysign(y, x, out=y)


# digamma(x) / (x - root) from 1 to 2 as a quotient of polynomials in x - 1.5, to 2e-20.
_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
_DIGAMMA = (
    (0.9510558760318328, 1.1679111579426005, 0.5154094731197817, 0.10042401805503895, 0.008381474146487187,
     0.00023002912707404408, 4.33333468878948e-07),
    (1.0, 1.673443821055568, 1.0344120721454126, 0.2991411261841631, 0.041684601834226634, 0.0025322414569281947,
     4.747614405463347e-05),
)  # fmt: skip


def digamma(x: Any) -> Any:
    """Return the logarithmic derivative of gamma; with few arrays in between.

    From 10 on by the asymptotic series; below 10 by the recurrence from its value between 1 and 2, where its root
    is a factor; below zero by reflection.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        negative = x < 0
        z = np.where(negative, 1 - x, x)
        far = ~(z < 10)
        z[far] = 1
        result = _digamma_below_10(z)
        del z
        y = np.where(negative, 1 - x, x)
        s = 1 / (y * y)
        series = s / 12
        for number in (691 / 32760, 1 / 132, 1 / 240, 1 / 252, 1 / 120, 1 / 12):
            np.subtract(number, series, out=series)
            series *= s
        np.divide(0.5, y, out=s)
        np.log(y, out=y)
        y -= s
        y -= series
        np.copyto(result, y, where=far)
        del s, series
        below = x[negative]
        whole = np.rint(below)
        below -= whole
        poles = below == 0
        below *= math.pi
        np.tan(below, out=below)
        np.divide(-math.pi, below, out=below)
        below[poles] = np.nan
        result[negative] += below
        zero = x == 0
        result[zero] = np.copysign(np.inf, -x[zero])
        return result


def _digamma_below_10(z: Any) -> Any:
    """Return the digamma of z from 0 to 10; overwrite z."""
    steps = _steps_to_2(z)
    z -= 1.5
    quotient = _polynomial(z, _DIGAMMA[0])
    quotient /= _polynomial(z, _DIGAMMA[1])
    z += 1.5  # without rounding
    for part in _DIGAMMA_ROOT:
        z -= part
    quotient *= z
    quotient += steps
    return quotient


def _steps_to_2(z: Any) -> Any:
    """Move z to the range from 1 to 2, and return how the digamma changes by that."""
    steps = np.zeros_like(z)
    while (above := z > 2).any():
        down = above.astype(np.float64)
        z -= down
        down /= z
        steps += down
    up = (z < 1).astype(np.float64)
    steps -= up / z
    z += up
    return steps


def _polynomial(z: Any, numbers: tuple[float, ...]) -> Any:
    value = np.full_like(z, numbers[-1])
    for number in numbers[-2::-1]:
        value *= z
        value += number
    return value


# Elements at once, because these functions make many arrays.
erfinv.longest, digamma.longest = 768, 1024  # type: ignore[attr-defined]


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

"""Transforms of all points on "cpu" by the loops of NumPy's functions, whose Python takes longer than few points do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Not public: a NumPy without it carries out all calls.
_loops: Any = getattr(np.fft, "_pocketfft_umath", None)
# NumPy multiplies by the int 1, with which it computes in double precision, or by a float of the array's precision.
_ONE = {"F": np.ones((), "f4"), "D": np.ones((), "f8")}
_COMPLEX = {"f": "F", "d": "D"}


def _usual(name: str) -> Any:
    function = getattr(np.fft, name)
    return getattr(function, "_implementation", function)


_fft, _ifft, _rfft, _fft2 = map(_usual, ("fft", "ifft", "rfft", "fft2"))


def fft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    """Return numpy.fft.fft."""
    if a.dtype.char not in _ONE or n is not None or norm is not None or axis != -1:
        return _fft(a, n, axis, norm)
    return _loops.fft(a, 1, np.empty_like(a))


def ifft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    """Return numpy.fft.ifft."""
    one = _ONE.get(a.dtype.char)
    if one is None or n is not None or norm is not None or axis != -1:
        return _ifft(a, n, axis, norm)
    return _loops.ifft(a, one / a.shape[-1], np.empty_like(a))


def rfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    """Return numpy.fft.rfft."""
    code = _COMPLEX.get(a.dtype.char)
    if code is None or n is not None or norm is not None or axis != -1:
        return _rfft(a, n, axis, norm)
    *others, points = a.shape
    loop = _loops.rfft_n_odd if points % 2 else _loops.rfft_n_even
    return loop(a, 1, np.empty((*others, points // 2 + 1), code))


def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Any:
    """Return numpy.fft.fft2."""
    if (
        a.dtype.char not in _ONE
        or s is not None
        or norm is not None
        or axes != (-2, -1)
        or a.ndim < 2
    ):
        return _fft2(a, s, axes, norm)
    rows = _loops.fft(a, 1, np.empty_like(a))
    return _loops.fft(rows, 1, rows, axes=[(-2,), (), (-2,)])


FASTER: dict[str, Callable[..., Any]] = (
    {} if _loops is None else {f.__name__: f for f in (fft, ifft, rfft, fft2)}
)

"""NumPy's functions of polynomials that CuPy computes otherwise: convolve by a transform, roots of few polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import linalg
from gpuinterop.arrays.dtypes import name_of
from gpuinterop.borrowed.borrow import borrow
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.elementwise.results import new_like

from .contractions import _arrays

# From this number of products on CuPy's transform is faster than the sums of all of them.
_PRODUCTS = 1 << 22


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Return numpy.convolve. On CUDA short vectors have exact products, as in NumPy, and no error of a transform."""
    x, y = _arrays("numpy.convolve", a, v)
    n, m = sorted((x.size, y.size), reverse=True)
    short = x.ndim <= 1 >= y.ndim and 0 < m * (n + m) <= _PRODUCTS
    if x.device.type == "cpu" or not short or mode not in ("full", "same", "valid"):
        return borrow("numpy.convolve", np.convolve, x, (x, y, mode), {})
    dtype = common_dtype((x.dtype, y.dtype), "numpy.convolve")
    x, y = x.reshape(-1), y.reshape(-1)
    x, y = (x, y) if x.size == n else (y, x)
    # Each row of products begins one place further right than the row above it.
    exact = np.dtype("float32") if name_of(dtype) in ("float16", "bfloat16") else dtype
    rows = new_like(x, (m, n + m), exact, "numpy.convolve")
    rows.fill(0)
    rows[:, :n] = y[:, None].astype(exact) * x
    full = rows.reshape(-1)[: m * (n + m - 1)].reshape(m, n + m - 1).sum(0).astype(dtype)
    first, count = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[
        mode
    ]
    return full[first : first + count]


def roots(p: Any) -> Any:
    """Return numpy.roots, the eigenvalues of the companion matrix. On CUDA it waits for the device."""
    if p.device.type == "cpu" or p.ndim != 1:
        return borrow("numpy.roots", np.roots, p, (p,), {})
    places = p.nonzero()[0]
    if not places.size:
        return new_like(p, (0,), np.dtype("float64"), "numpy.roots")
    first, last = int(places[0]), int(places[-1])
    zeros, n = p.size - 1 - last, last - first
    dtype = p.dtype if n and p.dtype.kind in "fc" else np.dtype("float64")
    p = p[first : last + 1].astype(dtype)
    matrix = new_like(p, (n, n), dtype, "numpy.roots")
    matrix.fill(0)
    if n:
        matrix.reshape(-1)[n :: n + 1] = 1
        matrix[0] = -p[1:] / p[0]
    found = linalg.eigvals(matrix)
    made = new_like(found, (n + zeros,), found.dtype, "numpy.roots")
    made.fill(0)
    made[:n] = found
    return made

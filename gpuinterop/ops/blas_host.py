"""Products in host memory, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.host_views import as_numpy_view
from gpuinterop.ops import output_arrays

__all__ = ["compute", "sum_of_products"]


def sum_of_products(a: Any, b: Any, axis: int = -1) -> Any:
    """Sum of a * b over one axis, floats of 16 and 32 bits through the next wider ones."""
    if a.dtype == np.bool_ and b.dtype == np.bool_:
        return np.any(a & b, axis=axis)
    common = np.result_type(a, b)
    wide = {2: np.float32, 4: np.float64}.get(common.itemsize) if common.kind in "fV" else None
    total = np.sum(np.multiply(a, b, dtype=wide), axis=axis)
    return total.astype(common)


def compute(kind: str, result: Any, a: Any, b: Any, c: Any, alpha: complex, beta: complex) -> None:
    """Fill `result` with ``alpha * a @ b + beta * c``: now, or at each replay of a capture.

    Shapes, dtypes and `result` have been checked. As in BLAS, what is multiplied by an alpha or
    beta of 0 is not read.
    """
    sink, left, right = as_numpy_view(result, written=True), as_numpy_view(a), as_numpy_view(b)
    added = None if c is None or beta == 0 else as_numpy_view(c)
    small = result.dtype.kind in "fV" and result.dtype.itemsize == 2
    # What alpha or beta brings back into the range of a small float has not left it before. An addend
    # decides, where it is the widest, also if nothing of it is read.
    dtype: Any = np.dtype(np.float32) if small and (alpha != 1 or c is not None) else result.dtype
    floating = dtype.kind in "fc"
    scale: Any = dtype.type(alpha) if floating else alpha
    scale_added: Any = dtype.type(beta) if floating else beta

    def product() -> Any:
        # Each replay reads these anew.
        x, y = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
        if kind == "gemm":
            return np.matmul(x, y)
        return sum_of_products(x, y if y.ndim == 1 else y.swapaxes(-1, -2))

    def work() -> None:
        with np.errstate(all="ignore"):
            if alpha == 0:
                sink[...] = 0 if added is None else added * scale_added
                return
            value = product()
            if alpha != 1:
                value = value * scale
            if added is not None:
                value = value + (added if beta == 1 else added * scale_added)
            sink[...] = value

    output_arrays.record_or_run(work)

"""Vector norms: reductions of magnitudes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.errors import ShapeError
from gpuinterop.ops import output_arrays
from gpuinterop.ops.reduction_dispatch import FUNCTIONS_OF_AXES

__all__ = ["norm"]


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the vector norm over `axis` (all axes by default): ord 2, 1, inf or -inf.

    A matrix is taken as the vector of its elements, whatever `ord` is. For the norm of a matrix call
    numpy.linalg.norm: on these arrays it computes Frobenius' norm, which is its default. Squares are
    summed in float64, so float32 values up to 1e38 do not overflow on the way.
    """
    (x,) = output_arrays.taken("norm", x)
    if ord is None or (isinstance(ord, str) and ord == "fro"):
        op = "norm2"
    elif isinstance(ord, (int, float, np.number)) and ord in (2, 1, np.inf, -np.inf):
        op = {2: "norm2", 1: "norm1", np.inf: "norm_max", -np.inf: "norm_min"}[float(ord)]
    else:
        raise ShapeError(
            where="norm", expected="ord 2, 1, inf or -inf", got=repr(ord),
            fix="numpy.linalg.norm on the host",
        )  # fmt: skip
    return FUNCTIONS_OF_AXES[op](x, axis, keepdims)

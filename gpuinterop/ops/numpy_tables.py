"""NumPy's functions and ufunc methods that gpuinterop arrays answer, filled by the modules that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["NUMPY_FUNCTIONS", "UFUNC_METHODS"]

# numpy.where -> the function for gpuinterop arrays.
NUMPY_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
# (numpy.add, "reduce") -> the function for gpuinterop arrays.
UFUNC_METHODS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {}

"""The array API standard's linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.elementwise.results import plain

from .of_numpy import look_up

__all__ = """
    cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power matrix_rank
    matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()


def __getattr__(name: str) -> Any:
    return look_up(globals(), np.linalg, name)


def eig(x: Any, /) -> Any:
    """Return eigenvalues and eigenvectors of a general matrix, which are complex."""
    return np.linalg.eig(_as_complex(x))


def eigvals(x: Any, /) -> Any:
    """Return eigenvalues of a general matrix, which are complex."""
    return np.linalg.eigvals(_as_complex(x))


def _as_complex(x: Any) -> Any:
    return plain(x).astype(np.result_type(x.dtype, np.complex64), copy=False)


def __dir__() -> list[str]:
    return __all__

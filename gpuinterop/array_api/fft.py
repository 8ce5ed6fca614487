"""The array API standard's Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import creation
from gpuinterop.elementwise.results import plain
from gpuinterop.fft import frequencies

from .of_numpy import look_up

_OF_NUMPY = "fft fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftn".split()
__all__ = [*_OF_NUMPY, "fftfreq", "rfftfreq"]


def __getattr__(name: str) -> Any:
    return look_up(globals(), np.fft, name)


def __dir__() -> list[str]:
    return __all__


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of a transform's values."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of a real transform's values."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def _frequencies(name: str, n: int, d: float, dtype: Any, device: Any) -> Any:
    return plain(
        creation.array(
            frequencies(name, n, d), "float64" if dtype is None else dtype, device=device
        )
    )

"""What kernels are planned and compiled for."""

from __future__ import annotations

from functools import cache

from gpuinterop import _core

__all__ = ["capability", "multiprocessors"]


@cache
def capability(device: int) -> int:
    """Compute capability times ten: 90 for 9.0."""
    known = _core.cuda_device_properties(device)
    return int(known["major"]) * 10 + int(known["minor"])


@cache
def multiprocessors(device: int) -> int:
    """How many multiprocessors the device has."""
    return int(_core.cuda_device_properties(device)["multiProcessorCount"])

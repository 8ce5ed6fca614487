"""What kernels are planned for."""

from __future__ import annotations

from functools import cache

from gpuinterop import _core

__all__ = ["multiprocessors"]


@cache
def multiprocessors(device: int) -> int:
    """How many multiprocessors the device has."""
    return int(_core.cuda_device_properties(device)["multiProcessorCount"])

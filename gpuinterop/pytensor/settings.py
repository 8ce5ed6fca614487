"""The device and the array type that `use` chose."""

from __future__ import annotations

from typing import Any

import gpuinterop as gi

__all__ = ["any_dtype", "choose", "device"]

_device: Any = None
_any_dtype = False


def choose(device: Any, every_dtype: bool = False) -> None:
    """Set the device of transfers and shared variables; `every_dtype`: GpuArrays, not CudaNdarrays alone."""
    global _device, _any_dtype
    _device, _any_dtype = device, every_dtype


def device() -> Any:
    """Return the device of transfers and shared variables."""
    return gi.default_device() if _device is None else _device


def any_dtype() -> bool:
    """Whether arrays of any dtype are on the device, or float32 only."""
    return _any_dtype

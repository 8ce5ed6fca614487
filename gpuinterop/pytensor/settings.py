"""The device and the array type that `use` chose."""

from __future__ import annotations

from typing import Any

import gpuinterop as gi

__all__ = ["array_type", "choose", "device"]

_device: Any = None
_any_dtype = False


def choose(device: Any, any_dtype: bool = False) -> None:
    """Set the device of transfers and shared variables; `any_dtype`: GpuArrays instead of CudaNdarrays."""
    global _device, _any_dtype
    _device, _any_dtype = device, any_dtype


def device() -> Any:
    """Return the device of transfers and shared variables."""
    return gi.default_device() if _device is None else _device


def array_type() -> Any:
    """Return the class of types: `CudaNdarrayType`, or `GpuArrayType` for any dtype."""
    from .types import CudaNdarrayType, GpuArrayType

    return GpuArrayType if _any_dtype else CudaNdarrayType

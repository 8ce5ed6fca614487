"""The device and the array type that `use` chose."""

from __future__ import annotations

from typing import Any

import gpuinterop as gi

_device: Any = None
_any_dtype = False
_capture = True


def choose(device: Any, every_dtype: bool = False, capture: bool = True) -> None:
    """Set the device of transfers and shared variables; `every_dtype`: GpuArrays, not only CudaNdarrays."""
    global _device, _any_dtype, _capture
    _device, _any_dtype, _capture = device, every_dtype, capture


def device() -> Any:
    """Return the device of transfers and shared variables."""
    return gi.default_device() if _device is None else _device


def any_dtype() -> bool:
    """Return whether arrays of every dtype are on the device, or only float32."""
    return _any_dtype


def captures() -> bool:
    """Return whether functions replay captured graphs. On the host a graph would save nothing."""
    return _capture and bool(device().type == "cuda")

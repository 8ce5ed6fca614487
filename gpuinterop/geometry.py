"""The geometry that an array really has, whatever its class shows."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core

__all__ = ["real"]


def real(x: Any) -> _core.Array:
    """Return a view of `x` that shows the core's own geometry: a subclass may override attributes.

    BoundsError when the geometry is in the making (_set_stride and friends) and reaches outside.
    """
    return _core.view(_core.Array, x)

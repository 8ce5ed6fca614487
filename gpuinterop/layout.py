"""The geometry that an array really has, whatever its class shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuinterop import _core
from gpuinterop.error_messages import shapes_do_not_broadcast

__all__ = ["broadcast_shapes", "c_strides", "is_array", "core_view"]


def is_array(x: Any) -> bool:
    """Whether `x` is an array of ours itself: a weak proxy or a mock shows another object's class."""
    return issubclass(type(x), _core.Array)


def core_view(x: Any) -> _core.Array:
    """Return a view of `x` that shows the core's own geometry: a subclass may override attributes.

    BoundsError when the geometry is in the making (_set_stride and friends) and reaches outside.
    """
    return _core.view(_core.Array, x)


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a dense array in C order; with an itemsize of 1, those in elements."""
    strides: list[int] = []
    step = itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def broadcast_shapes(shapes: Sequence[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """Return the shape that all of `shapes` broadcast to. NumPy's own function stops at 32 axes."""
    found: list[int] = []
    for shape in shapes:
        found[:0] = [1] * (len(shape) - len(found))
        for axis, extent in enumerate(shape, len(found) - len(shape)):
            if found[axis] == 1:
                found[axis] = extent
            elif extent not in (1, found[axis]):
                raise shapes_do_not_broadcast(where, *shapes)
    return tuple(found)

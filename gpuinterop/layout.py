"""The core's shape and strides of an array, whatever a subclass overrides; C strides, broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuinterop import _core
from gpuinterop.error_messages import shapes_do_not_broadcast


def is_array(x: Any) -> bool:
    """Return whether `x` itself is a gpuinterop array; a weak proxy or a mock only reports such a class."""
    return issubclass(type(x), _core.Array)


def core_view(x: Any) -> _core.Array:
    """Return a view of `x` as the core's class, because a subclass may override attributes.

    Raises BoundsError if the layout is incomplete (_set_stride and similar) and leaves the memory.
    """
    return _core.view(_core.Array, x)


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a C-contiguous array; with itemsize 1, strides in elements."""
    strides: list[int] = []
    step = itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)  # as the core has it, also without elements
    return tuple(reversed(strides))


def broadcast_shapes(shapes: Sequence[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """Return the shape that all of `shapes` broadcast to; NumPy's function allows 32 axes only."""
    found: list[int] = []
    for shape in shapes:
        found[:0] = [1] * (len(shape) - len(found))
        for axis, extent in enumerate(shape, len(found) - len(shape)):
            if found[axis] == 1:
                found[axis] = extent
            elif extent not in (1, found[axis]):
                raise shapes_do_not_broadcast(where, *shapes)
    return tuple(found)

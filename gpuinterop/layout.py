"""The core's shape and strides of an array, whatever a subclass overrides; C strides, addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuinterop import _core


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


def byte_range(
    ptr: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """Return the address of the first byte and the one after the last; ``(0, 0)`` when empty. Strides in bytes."""
    if 0 in shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return ptr + sum(s for s in steps if s < 0), ptr + sum(s for s in steps if s > 0) + itemsize

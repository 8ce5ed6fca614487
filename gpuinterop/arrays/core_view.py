"""The core's shape and strides of an array, whatever a subclass overrides; C strides, addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuinterop import _core


def core_view(x: Any) -> _core.Array:
    """Return a view of `x` as the core's class, because a subclass may override attributes.

    Raises BoundsError if the layout is incomplete (_set_stride and similar) and leaves the memory.
    """
    return _core.view(_core.Array, x)


c_strides = _core.c_strides


def byte_range(
    ptr: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """Return the address of the first byte and the one after the last; ``(0, 0)`` when empty. Strides in bytes."""
    if 0 in shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return ptr + sum(s for s in steps if s < 0), ptr + sum(s for s in steps if s > 0) + itemsize


def class_for(dtype: Any) -> Any:
    """Return the class of an array of a dtype, where the caller names no class; imports follow the same rule."""
    return _core.result_types()[dtype != np.float32]

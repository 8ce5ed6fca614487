"""Decide whether two strided arrays have a byte in common. NumPy answers exactly; it reads no memory for that."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.errors import BoundsError

Reach = tuple[
    int, tuple[int, ...], tuple[int, ...], int
]  # address, shape, strides in bytes, itemsize


def byte_range(
    ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, int]:
    """Return the address of the first byte and the one after the last; ``(0, 0)`` when empty. Strides in bytes."""
    if 0 in shape:
        return 0, 0
    low = high = ptr
    for n, s in zip(shape, strides, strict=True):
        reach = (n - 1) * s
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high + itemsize


class _Window:
    """Memory at an address on any device, for NumPy to describe and not to read."""

    def __init__(
        self, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> None:
        # Elements are texts of bytes: NumPy 2.1 crashes if void elements have no "descr".
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": shape, "strides": strides, "typestr": f"|S{itemsize}", "data": (ptr, False),
        }  # fmt: skip


def share_bytes(a: Reach, b: Reach, budget: int) -> bool:
    """Return whether two arrays have a byte in common; with a budget of 0, whether their address ranges have.

    Raises
    ------
    BoundsError
        More than `budget` steps would be needed to be certain.
    """
    first, second = (np.asarray(_Window(*reach)) for reach in (a, b))
    if not budget:
        return np.may_share_memory(first, second)
    steps: Any = min(budget, 1 << 62)  # the stubs of NumPy 2.4 accept no other number than -1 and 0
    try:
        return np.shares_memory(first, second, max_work=steps)
    except (np.exceptions.TooHardError, OverflowError):
        raise BoundsError(
            where="shares_memory",
            expected=f"strides whose overlap is decided within {budget} steps",
            got=f"shapes {a[1]} and {b[1]} with strides {a[2]} and {b[2]} (bytes)",
            fix="pass a larger budget, or call may_share_memory(a, b), which compares address ranges",
        ) from None

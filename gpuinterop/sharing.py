"""Do two arrays, of any libraries, share memory?"""

from __future__ import annotations

from typing import Any

from gpuinterop.converters.describing import describe
from gpuinterop.converters.overlap import extent, meet

__all__ = ["may_share_memory", "shares_memory"]


def shares_memory(a: Any, b: Any, *, budget: int = 1_000_000) -> bool:
    """True exactly when some byte belongs to an element of `a` and to one of `b`.

    Both may be arrays of any known library, with any strides: two interleaved slices of one array do
    not share memory, though their address ranges overlap. Nothing is converted or copied. Addresses
    of host and GPU memory never coincide, so arrays on different devices share nothing.

    Raises
    ------
    BoundsError
        The strides are so involved that certainty would take more than `budget` steps.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros(8, "float32"))
    >>> gpuinterop.shares_memory(x[::2], x[1::2]), gpuinterop.shares_memory(x[::2], x[::3])
    (False, True)
    """
    return meet(_reach(a), _reach(b), budget)


def may_share_memory(a: Any, b: Any) -> bool:
    """True when the address ranges of `a` and `b` overlap: quick, and sometimes True without need."""
    a_low, a_high = extent(*_reach(a))
    b_low, b_high = extent(*_reach(b))
    return a_low < b_high and b_low < a_high and a_low != a_high and b_low != b_high


def _reach(x: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    facts = describe(x)
    return facts.ptr, facts.shape, facts.strides, facts.itemsize

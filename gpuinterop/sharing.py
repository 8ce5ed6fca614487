"""Tests whether two arrays, of any libraries, share memory."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop.converters import engine, registry
from gpuinterop.converters.functions import reader
from gpuinterop.converters.plan import ArrayInfo
from gpuinterop.overlap import share_bytes

__all__ = ["may_share_memory", "shares_memory"]


def shares_memory(a: Any, b: Any, *, budget: int = 1_000_000) -> bool:
    """Return whether some byte belongs to an element of `a` and to an element of `b`.

    Both may be arrays of any supported library, with any strides: two interleaved slices of one array
    do not share memory, although their address ranges overlap. Nothing is converted or copied. Arrays
    on different devices never share memory, because host and GPU addresses differ.

    Raises
    ------
    BoundsError
        The exact answer needs more than `budget` steps.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros(8, "float32"))
    >>> gpuinterop.shares_memory(x[::2], x[1::2]), gpuinterop.shares_memory(x[::2], x[::3])
    (False, True)
    """
    return _share(a, b, max(budget, 1), "shares_memory")


def may_share_memory(a: Any, b: Any) -> bool:
    """Return whether the address ranges of `a` and `b` overlap.

    Fast, but may report an overlap that does not exist; `shares_memory` is exact.
    """
    return _share(a, b, 0, "may_share_memory")


def _share(a: Any, b: Any, budget: int, where: str) -> bool:
    a_reach, a_kept = _reach(a, where)
    b_reach, b_kept = _reach(b, where)
    shared = share_bytes(a_reach, b_reach, budget)
    del a_kept, b_kept  # kept until now, because a freed address could be reused
    return shared


def _reach(x: Any, where: str) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...], int], Any]:
    info, kept = _describe(x, where)
    if not info.ptr:  # without memory: a meta tensor, a scalar
        return (0, (0,), (info.itemsize,), info.itemsize), kept
    return (info.ptr, info.shape, info.strides, info.itemsize), kept


def _describe(obj: Any, where: str) -> tuple[ArrayInfo, Any]:
    """Return the description of any array, and the object that keeps its memory alive."""
    entry = None if issubclass(type(obj), _core.Array) else registry.find_backend(obj)
    planned = entry is not None and reader(entry) is None
    if entry is not None and planned and hasattr(entry.module, "describe"):
        try:  # an object that cannot be shared may still have memory
            return engine.describe(obj, entry, {}), obj
        except Exception:  # the plan gives the reason: sparse, deleted, symbolic, ...
            pass
    incoming = engine.plan_in(obj, True, {}, where)
    if incoming.plan.refused:
        raise incoming.plan.exception()
    return incoming.info, obj if incoming.array is None else incoming.array

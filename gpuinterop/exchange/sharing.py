"""Predicts conversions, and tests whether two arrays, of any libraries, share memory."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays import copy_tracking
from gpuinterop.errors import BoundsError
from gpuinterop.errors.arguments import require_bool

from . import engine, registry
from .library_functions import read_target
from .plan import ArrayInfo, Plan, plan_from_error

__all__ = ["explain", "may_share_memory", "shares_memory"]


# What is no library: the module whose `plan` predicts it.
PLANS = {"process": "gpuinterop.processes.handles"}


def explain(x: Any, library: str = "gpuinterop", copyif: bool = False, **options: Any) -> Plan:
    """Report what converting `x` would do: share, copy or raise, why, and a fix.

    The result is the plan that the converter itself carries out, with ``.shared``, ``.copied``, ``.refused``,
    ``.reason``, ``.axis``, ``.bytes`` and ``.fix``. Printing it shows all of them. Nothing is converted, and a
    DLPack capsule is not consumed.

    `x` may be a gpuinterop array or an array of another library. `library` is a name as for `to`,
    "gpuinterop" or "cudandarray" for a gpuinterop array, or "process" for `share`. The library is imported,
    to check that this works. Inside `no_copies` a copy is refused.

    A converter of another package without ``plan_to`` gives ``.unknown``. One without ``plan_from`` is tried.
    Only the conversion itself raises CaptureError on a GPU, because it finds out there which streams may wait
    inside a capture.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 6), "float32"))
    >>> gpuinterop.explain(x[:, ::-1], "numpy").shared
    True
    """
    copyif = copyif if type(copyif) is bool else require_bool(copyif, "copyif", "explain")  # type: ignore[redundant-expr]
    plan: Plan
    entry, dtype = None, None
    if library not in PLANS:
        entry, dtype, options = read_target(x, library, options, "explain")
    if library in PLANS:
        plan = import_module(PLANS[library]).plan(x, copyif, **options)
    elif entry is None:
        plan = engine.plan_own(x, copyif, options, dtype=dtype)[0]
    else:
        plan = engine.plan_conversion(x, entry, copyif, options).plan
    if plan.outcome == "copied" and plan.bytes:
        forbidden = copy_tracking.forbidden_copy_error(plan.crosses, plan.bytes, plan.where)
        if forbidden is not None:
            return plan_from_error(forbidden, plan.library, plan.where)
    return plan


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

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros(4, device="cpu")
    >>> gpuinterop.may_share_memory(x[:2], x[1:])
    True
    """
    return _share(a, b, 0, "may_share_memory")


class _Window:
    """The memory of an array on any device, for NumPy to describe and not to read."""

    def __init__(self, info: ArrayInfo) -> None:
        # Without memory, as in a meta tensor or a scalar, it is empty.
        shape, strides = (info.shape, info.strides) if info.ptr else ((0,), (info.itemsize,))
        # Elements are texts of bytes: NumPy 2.1 crashes if void elements have no "descr".
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": shape, "strides": strides, "typestr": f"|S{info.itemsize}",
            "data": (info.ptr, False),
        }  # fmt: skip


def _share(a: Any, b: Any, budget: int, where: str) -> bool:
    """Return whether the arrays have a byte in common; with a budget of 0, whether their address ranges have."""
    # The owners are kept until the answer, because a freed address could be reused.
    described = [describe(x, where) for x in (a, b)]
    one, other = (info for info, _ in described)
    first, second = (np.asarray(_Window(info)) for info in (one, other))
    if not budget:
        return np.may_share_memory(first, second)
    steps: Any = min(budget, 1 << 62)  # the stubs of NumPy 2.4 accept no other number than -1 and 0
    try:
        return np.shares_memory(first, second, max_work=steps)
    except (np.exceptions.TooHardError, OverflowError):
        raise BoundsError(
            where=where,
            expected=f"strides whose overlap is decided within {budget} steps",
            got=f"shapes {one.shape} and {other.shape} with strides {one.strides} and {other.strides} (bytes)",
            fix="pass a larger budget, or call may_share_memory(a, b), which compares address ranges",
        ) from None


def describe(obj: Any, where: str) -> tuple[ArrayInfo, Any]:
    """Return the description of any array, and the object that keeps its memory alive."""
    entry = None if _core.is_array(obj) else registry.find_backend(obj)
    planned = entry is not None and entry.reader is None
    if entry is not None and planned and hasattr(entry.module, "describe"):
        try:  # an object that cannot be shared may still have memory
            return engine.describe(obj, entry, {}), obj
        except Exception:  # the plan gives the reason: sparse, deleted, symbolic, ...
            pass
    incoming = engine.plan_in(obj, True, {}, where)
    if incoming.plan.refused:
        raise incoming.plan.exception()
    return incoming.info, obj if incoming.array is None else incoming.array

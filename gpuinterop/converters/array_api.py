"""Any library with an array-API namespace and DLPack (dpnp, array-api-strict, dask's chunks, ...)."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import Facts, Plan, Rules, mend_by_copy, refuse, refused_by, share
from gpuinterop.geometry import real

__all__ = ["describe", "from_array_api", "plan_from", "plan_to", "to_array_api"]

_COMPACT = "make x.copy() once and reuse it"

# What a namespace says when it cannot take an array: the standard names BufferError, libraries differ.
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, AttributeError)


def plan_to(x: Any, copyif: bool = False, xp: Any = None) -> Plan:
    """Plan `to_array_api`: only the namespace itself knows what it takes, so it is asked.

    Sharing leaves nothing behind; whether a copy would be taken is asked with an empty one.
    """
    return _attempt(x, copyif, xp)[0]


def _attempt(x: Any, copyif: bool, xp: Any) -> tuple[Plan, Any]:
    where = "to_array_api"
    if xp is None:
        return refuse(
            "array_api",
            where,
            errors.ArgumentTypeError,
            "the namespace to convert to, because many libraries share this converter",
            "xp=None",
            "pass it: to_array_api(x, xp=array_api_strict)",
        ), None
    try:
        facts = checks.facts_of(x)
    except errors.GpuInteropError as e:
        return refused_by(e, "array_api", where), None
    x = real(x)
    try:
        return share("array_api", where), xp.from_dlpack(x)
    except _REFUSALS as e:
        refusal = str(e)
    compact = _core.empty(type(x), (0,) * x.ndim, x.dtype, x.device.type_code, x.device.index or 0)
    try:
        xp.from_dlpack(compact)
        mends = True
    except _REFUSALS:
        mends = False
    got = f"{facts.text()}; it said: {refusal}"
    reason = f"an array that {xp.__name__}.from_dlpack takes"
    if not mends:
        fix = "convert the dtype, or move the array, to what the library has"
        return refuse("array_api", where, errors.ExportError, reason, got, fix), None
    rules = Rules("array_api", where)
    return mend_by_copy(rules, facts, copyif, errors.ExportError, reason, got, _COMPACT), None


def to_array_api(x: Any, copyif: bool = False, *, xp: Any = None) -> Any:
    """Return an array of the array-API namespace `xp` over the memory of `x`.

    Shares by ``xp.from_dlpack``; what `xp` cannot take it refuses, in its own words, and with
    ``copyif=True`` it is then offered a compact, writable copy on the same device.
    """
    checks.require_array(x, "to_array_api")
    plan, made = _attempt(x, copyif, xp)
    if plan.refused:
        raise plan.exception()
    return made if plan.shared else xp.from_dlpack(checks.copied(x, "to_array_api"))


def describe(a: Any) -> Facts:
    """Read through the protocol: this converter knows nothing of the class."""
    return checks.facts_of(_core.import_any(None, a))


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_array_api`: what explain() shows and the converter carries out."""
    try:
        return checks.plan_own(describe(a), "from_array_api", copyif)
    except errors.GpuInteropError as e:
        return refused_by(e, "gpuinterop", "from_array_api")


def from_array_api(a: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of `a`, by DLPack. Shares; keeps the memory alive."""
    return checks.imported(a)

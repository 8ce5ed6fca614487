"""Any library with an array-API namespace and DLPack (dpnp, array-api-strict, dask's chunks, ...)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import checks, registry, ways_out
from gpuinterop.converters.options import accepted_options
from gpuinterop.converters.overlap import extent
from gpuinterop.converters.plan import (
    ArrayInfo,
    Plan,
    Rules,
    copy_or_refuse,
    plan_from_error,
    refuse,
    share,
)
from gpuinterop.converters.remedies import remedy_cast, remedy_copy
from gpuinterop.layout import core_view
from gpuinterop.option_values import require_bool

__all__ = ["describe", "from_array_api", "plan_from", "plan_to", "to_array_api"]

# What a namespace says when it cannot take an array: the standard names BufferError, libraries differ.
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, AttributeError)

_EVERYWHERE = frozenset({"float32", "complex64"})  # the dtypes to cast to that any library may have

# Namespaces of libraries with a converter of their own, which knows what their from_dlpack does not say.
_OWN = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jax.numpy": "jax"}


def own_converter(xp: Any) -> str:
    """The library with a converter of its own whose namespace, or array-api-compat's of it, `xp` is."""
    name = getattr(xp, "__name__", None)
    if not isinstance(name, str) or sys.modules.get(name) is not xp:
        return ""
    return _OWN.get(name.rpartition("array_api_compat.")[2], "")


def plan_to(
    x: Any,
    copyif: bool = False,
    allow_readonly: bool = False,
    xp: Any = None,
    library: str = "gpuinterop",
) -> Plan:
    """Plan `to_array_api`: only the namespace itself knows what it takes, so it is asked.

    Sharing leaves nothing behind; whether a copy would be taken is asked with one of zeros.
    `library` is the one that `x` came from, for the words of a fix.
    """
    name = own_converter(xp)
    if name:
        own = registry.backend(name).module.plan_to
        plan: Plan = own(x, copyif, **accepted_options(own, {"allow_readonly": allow_readonly}))
        return plan
    return _attempt(x, copyif, allow_readonly, xp, library)[0]


def _no_namespace(xp: Any) -> Plan | None:
    if callable(getattr(xp, "from_dlpack", None)):
        return None
    named = isinstance(xp, str) and xp.isidentifier()
    return refuse(
        "array_api", "to_array_api", errors.ArgumentTypeError,
        "as xp the namespace to convert to, because many libraries share this converter: a module "
        "with from_dlpack",
        f"xp={errors.short_repr(xp)}",
        f"import {xp}, and pass the module: xp={xp}" if named
        else "pass it: to_array_api(x, xp=array_api_strict)",
    )  # fmt: skip


def _attempt(
    x: Any, copyif: bool, allow_readonly: bool, xp: Any, library: str = "gpuinterop"
) -> tuple[Plan, Any]:
    """What `xp` does with `x`, and the array that it made, where that can be the result."""
    where = "to_array_api"
    copyif = require_bool(copyif, "copyif", where)
    allow_readonly = require_bool(allow_readonly, "allow_readonly", where)
    fault = _no_namespace(xp)
    if fault is not None:
        return fault, None
    try:
        facts = replace(checks.describe_array(x), library=library)
    except errors.GpuInteropError as e:
        return plan_from_error(e, "array_api", where), None
    x = core_view(x)
    try:
        made = xp.from_dlpack(x)
    except errors.CaptureError as e:
        return plan_from_error(e, "array_api", where), None
    except _REFUSALS as e:
        refusal = str(e)
    else:
        plan = _compared(facts, made, copyif, allow_readonly, _name_of(xp))
        return plan, None if plan.code == errors.ReadOnlyError.reason else made
    got = f"{facts.text()}; it said: {refusal}"
    reason = f"an array that {_name_of(xp)}.from_dlpack takes"
    compact = checks.stand_in(facts)
    try:
        made = xp.from_dlpack(compact)
    except _REFUSALS:
        cast = ways_out.cast(facts, _EVERYWHERE - {facts.dtype})
        fix = f"{cast}, or move the array to a device that the library has"
        return refuse("array_api", where, errors.ExportError, reason, got, fix), None
    again = _compared(checks.describe_array(compact), made, True, False, _name_of(xp))
    if again.refused:
        return again, None
    fix = f"make {remedy_copy(facts)} once and reuse it"
    plan = copy_or_refuse(
        Rules("array_api", where), facts, copyif, errors.ExportError, reason, got, fix
    )
    return replace(plan, bytes=plan.bytes + again.bytes) if copyif else plan, None


def _name_of(xp: Any) -> str:
    return str(getattr(xp, "__name__", type(xp).__name__))


def _compared(facts: ArrayInfo, made: Any, copyif: bool, allow_readonly: bool, name: str) -> Plan:
    """Whether what a namespace made is what it was given: some copy, or narrow, without a word."""
    rules = Rules("array_api", "to_array_api")
    if made is None:
        return refuse(
            rules.library, rules.where, errors.ExportError, f"an array from {name}.from_dlpack",
            "None", "pass as xp a namespace whose from_dlpack returns what it makes",
        )  # fmt: skip
    try:
        seen = checks.describe_array(_core.import_any(None, made))
    except errors.GpuInteropError as e:
        return copy_or_refuse(
            rules, facts, copyif, errors.ExportError,
            f"an array that can be looked at, to know that {name} shares its memory", e.got, "",
        )  # fmt: skip
    if seen.shape != facts.shape:
        return refuse(
            rules.library, rules.where, errors.ShapeError,
            f"a shape that {name} keeps; it makes {seen.shape} of {facts.shape}", facts.text(),
            "pass as xp a namespace whose from_dlpack leaves the axes as they are",
        )  # fmt: skip
    if seen.dtype != facts.dtype:
        return refuse(
            rules.library, rules.where, errors.DTypeError,
            f"a dtype that {name} keeps; it would make {seen.dtype} of {facts.dtype} silently",
            facts.text(), f"convert the values yourself first: {remedy_cast(facts, seen.dtype)}",
        )  # fmt: skip
    extents = zip(facts.shape, facts.strides, seen.strides, strict=True)
    moved = (seen.ptr, seen.where) != (facts.ptr, facts.where)
    if facts.size and (moved or any(n > 1 and s != t for n, s, t in extents)):
        if seen.where == facts.where and _overlap(facts, seen):
            return refuse(
                rules.library, rules.where, errors.ExportError,
                f"elements that {name}.from_dlpack leaves in their places", facts.text(),
                "pass as xp a namespace whose from_dlpack gives the array as it lies",
            )  # fmt: skip
        return copy_or_refuse(
            rules, facts, copyif, errors.ExportError, f"an array that {name}.from_dlpack shares",
            f"{facts.text()}, of which it makes a copy", "",
        )  # fmt: skip
    if facts.size and facts.readonly and not seen.readonly and not allow_readonly:
        return copy_or_refuse(
            rules, facts, copyif, errors.ReadOnlyError,
            f"writable memory, because {name} drops the read-only mark and could write to it",
            f"read-only {facts.text()}", "give allow_readonly=True if nothing writes to it there",
        )  # fmt: skip
    return share(rules.library, rules.where)


def _overlap(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Whether the address ranges of two arrays meet: one is then no copy of the other."""
    a_low, a_high = extent(a.ptr, a.shape, a.strides, a.itemsize)
    b_low, b_high = extent(b.ptr, b.shape, b.strides, b.itemsize)
    return a_low < b_high and b_low < a_high


def to_array_api(
    x: Any, copyif: bool = False, *, xp: Any = None, allow_readonly: bool = False
) -> Any:
    """Return an array of the array-API namespace `xp` over the memory of `x`.

    Shares by ``xp.from_dlpack``, and looks whether it did: what `xp` cannot take, or would copy, narrow
    or make writable, is refused. With ``copyif=True`` its copy is taken, or it is offered a compact,
    writable one on the same device; nothing is ever narrowed. NumPy, torch, CuPy and ``jax.numpy`` go
    to the converters of these libraries.
    """
    checks.require_array(x, "to_array_api")
    name = own_converter(xp)
    if name:
        own = registry.backend(name).to
        return own(x, copyif, **accepted_options(own, {"allow_readonly": allow_readonly}))
    plan, made = _attempt(x, copyif, allow_readonly, xp)
    if plan.refused:
        raise plan.exception()
    if made is None:
        x = checks.copied(x, "to_array_api")
        made = xp.from_dlpack(x)
        plan = _compared(checks.describe_array(x), made, True, False, _name_of(xp))
        if plan.refused:
            raise plan.exception()
    if plan.copied:  # by the namespace itself, which made it to be asked
        copy_tracking.report_copy(plan.crosses, plan.bytes, plan.where)
    return made


def describe(a: Any) -> ArrayInfo:
    """Read through the protocol: this converter knows nothing of the class."""
    return checks.describe_array(_core.import_any(None, a, where="from_array_api", realign=None))


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_array_api`: what explain() shows and the converter carries out."""
    try:
        return checks.plan_own(describe(a), "from_array_api", copyif)
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", "from_array_api")


def from_array_api(a: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of `a`, by DLPack. Shares; keeps the memory alive.

    Copies, with ``copyif=True``, elements off their alignment.
    """
    copyif = require_bool(copyif, "copyif", "from_array_api")
    try:
        return _core.import_any(None, a, where="from_array_api", realign=copyif)
    except errors.ContiguityError:
        plan = plan_from(a, copyif)
        if plan.refused:
            raise plan.exception() from None
        raise

"""What a conversion would do, from any array to any library: asked by `explain`, and by `to` itself.

A conversion of a foreign array has two steps, into an array of ours and out of it. Where the first must
copy, the second is planned before anything is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import captured, checks, protocols, registry
from gpuinterop.converters.incoming import from_any
from gpuinterop.converters.likeness import lookalike_error
from gpuinterop.converters.options import accepted_options, check_options, drop_common_option
from gpuinterop.converters.plan import ArrayInfo, Plan, c_strides, plan_from_error, refuse
from gpuinterop.converters.rows import promised
from gpuinterop.host_views import wrap_numpy
from gpuinterop.layout import is_array
from gpuinterop.ndarray import CudaNdarray

__all__ = ["to_gpuinterop_array", "plan_conversion", "reader_of"]


def plan_conversion(
    x: Any, to: Any, copyif: bool, options: dict[str, Any], where: str = "to"
) -> Plan:
    """The plan of ``to(x, to, copyif, **options)``, asked for by `where`."""
    plan = _plan(x, to, copyif, options, where)
    if plan.refused and not copyif and "copyif=True" in plan.fix:
        instead = _plan(x, to, True, options, where)
        if instead.refused and instead.where != plan.where:  # a copy would be made in vain
            return instead
    if plan.copied and plan.bytes:
        banned = copy_tracking.forbidden_copy_error(plan.crosses, plan.bytes, plan.where)
        if banned is not None:
            return plan_from_error(banned, plan.library, plan.where)
    return plan


def to_gpuinterop_array(x: Any, to: str, copyif: bool, options: dict[str, Any]) -> Any:
    """`x` as an array of ours, copied only when the conversion to the library `to` then succeeds."""
    if type(x).__name__ != "PyCapsule":  # a failed try would use that up
        try:
            return from_any(x)
        except errors.GpuInteropError:
            pass
    plan = plan_conversion(x, to, copyif, options)
    if plan.refused:
        raise plan.exception()
    return from_any(x, copyif)


def _plan(x: Any, to: Any, copyif: bool, options: dict[str, Any], where: str) -> Plan:
    label = f"{where}(x, {to!r})"
    own = registry.own_name(to)
    if own is not None:
        reader = None if registry.OURS[own] else reader_of(x)
        options = drop_common_option(reader, options, label)
        check_options(reader, options, label)
        if issubclass(type(x), CudaNdarray if registry.OURS[own] else _core.Array):
            # It comes back as it is, whatever state its geometry is in.
            return Plan("gpuinterop", "shared", where=_where_of(own))
        return _into_ours(x, copyif, own, options)[0]
    row = registry.backend(to, f"gpuinterop.{where}")
    module, target = row.module, f"to_{row.name}"
    if row.name == "array_api" and "xp" not in options:
        try:
            xp = registry.namespace(to, target)
        except errors.MissingLibraryError as e:
            return plan_from_error(e, row.name, target)
        options = options if xp is None else {**options, "xp": xp}
    options = drop_common_option(row.to, options, label)
    check_options(row.to, options, label)
    if row.name == "array_api":
        named = module.own_converter(options.get("xp"))
        if named:
            further = accepted_options(registry.backend(named).to, options)
            return _plan(x, named, copyif, further, where)
    first, facts, ours = _into_ours(x, copyif, "any", {})
    if first.refused or facts is None:
        return first
    try:
        if is_array(x):
            checks.require_array(x, target)
        elif facts.device == "cpu":  # an array of ours on the host, made of any other
            checks.require_array(wrap_numpy(numpy.empty(0)), target)
    except errors.CaptureError as e:
        return plan_from_error(e, row.name, target)
    plan_to = getattr(module, "plan_to", None)
    if plan_to is None:
        told = refuse(
            row.name, target, errors.ConversionTypeError,
            "a converter that can plan", f"{module.__name__}, which has no plan_to",
            "convert and see, or add plan_to(facts, copyif) to the converter",
        )  # fmt: skip
        return replace(told, outcome="unknown")
    described: Any = facts
    if row.name == "array_api":  # its plan asks the namespace, which wants an array
        try:
            if ours is None:
                ours = from_any(x) if first.shared else checks.stand_in(facts)
            described = ours
        except errors.OutOfMemoryError as e:
            return plan_from_error(e, row.name, target)
        options = {**options, "library": facts.library}
    second: Plan = promised(
        plan_to(described, copyif, **accepted_options(plan_to, options)), Plan, row.name, "plan_to"
    )
    if options.get("module") is None:
        package_for = getattr(module, "package_for", None)
        package = package_for(facts.device) if package_for is not None else ""
        second = checks.with_need(second, row.name, package)
        if not second.refused and row.package:
            try:
                needed = package or getattr(module, "IMPORTS", row.package)
                registry.load(row.name, second.where, needed)
            except errors.MissingLibraryError as e:
                return plan_from_error(e, row.name, second.where)
    known_here = x if is_array(x) else None
    second = captured.leaving(second, facts, known_here, module, options)
    if second.shared and first.copied:
        return replace(first, library=second.library)
    if second.copied and first.copied:
        return replace(second, bytes=first.bytes + second.bytes)
    return second


def reader_of(x: Any) -> Callable[..., Any] | None:
    """The function that reads `x`, if it is of a library that is known."""
    row = None if is_array(x) else registry.find_backend(x)
    return None if row is None else row.from_


def _where_of(own: str) -> str:
    return "to_cudandarray" if registry.OURS[own] else "from_any"


def _into_ours(
    x: Any, copyif: bool, own: str, options: dict[str, Any]
) -> tuple[Plan, ArrayInfo | None, Any]:
    """The plan to make `x` an array of ours; that array's description, and itself where it shares."""
    dtype = registry.OURS[own]
    where = _where_of(own)
    try:
        plan, facts, ours = _read(x, copyif, where, options)
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", where), None, None
    if plan.refused:
        return plan, None, None
    if dtype is not None and facts.dtype != dtype:
        return refuse(
            "gpuinterop", where, errors.DTypeError, f"{dtype}, the only dtype of CudaNdarray",
            f"dtype {facts.dtype}",
            "cast first, or take a GpuArray with gpuinterop.from_any",
        ), None, None  # fmt: skip
    if plan.copied:
        return plan, compact(facts), None
    return plan, facts, ours


def _read(x: Any, copyif: bool, where: str, options: dict[str, Any]) -> tuple[Plan, ArrayInfo, Any]:
    if is_array(x):
        return Plan("gpuinterop", "shared", where=where), checks.describe_array(x), x
    row = registry.find_backend(x)
    if row is None:
        # Sharing is the one way to know, and leaves nothing behind; a capsule would be used up.
        seen = _core._look_into(x, where, copyif)
        with copy_tracking.isolated_copy_count() as made:
            ours = protocols.share_unknown(x, where, copyif) if seen is None else seen
        facts = replace(checks.describe_array(ours), library="unknown")
        copied = made.bytes if seen is None else checks.plan_own(facts, where, copyif).bytes
        return _seen(x, facts, where, copied, "memory of aligned elements"), facts, ours
    plan_from = getattr(row.module, "plan_from", None)
    read = getattr(row.module, "describe", None)
    if plan_from is None:
        return _tried(x, copyif, row, where, options)
    try:
        made = plan_from(x, copyif, **accepted_options(plan_from, options))
        plan = promised(made, Plan, row.name, "plan_from")
        if plan.refused:
            if where == "to_cudandarray" and row.name == "pycuda":  # which carries it out by itself
                plan = replace(plan, where=where)
            return plan, NOTHING, None
        if read is None:
            return plan, *_tried(x, plan.copied, row, where, options)[1:]
        seen = read(x, **accepted_options(read, options))
        facts = _held(promised(seen, ArrayInfo, row.name, "describe"))
    except (AttributeError, KeyError, TypeError) as e:
        if isinstance(e, errors.GpuInteropError):
            raise
        raise lookalike_error(x, where, e) from e
    if facts.library == "gpuinterop":
        facts = replace(facts, library=row.name)
    # Only an array-API namespace is shown the array itself; it is made when that asks.
    return captured.entering(plan, facts, x, row.module, options), facts, None


def _tried(
    x: Any, copyif: bool, row: registry.Backend, where: str, options: dict[str, Any]
) -> tuple[Plan, ArrayInfo, Any]:
    """What converting does, by doing it: of converters that have no word of their own."""
    with copy_tracking.isolated_copy_count() as made:
        ours = row.take(x, copyif, **options)
    facts = replace(checks.describe_array(ours), library=row.name)
    return _seen(x, facts, where, made.bytes, "memory that the converter can share"), facts, ours


def _seen(x: Any, facts: ArrayInfo, where: str, copied: int, needs: str) -> Plan:
    """The plan of what was done a moment ago, in which so many bytes were copied."""
    if not copied:
        return Plan("gpuinterop", "shared", where=where)
    return Plan(
        "gpuinterop", "copied", needs, "", None, copied, "see what the converter shares", where,
        f"{type(x).__module__}.{type(x).__qualname__}",
        crosses="host" if facts.device == "cpu" else "copy",
    )  # fmt: skip


NOTHING = ArrayInfo((), (), "", 0, "cpu")  # stands for an array that will not be


def _held(facts: ArrayInfo) -> ArrayInfo:
    """The description of the array of ours: along axes of one element its strides are dense ones."""
    if facts.size == 0:
        extents = tuple(max(n, 1) for n in facts.shape)
        return replace(facts, strides=c_strides(extents, facts.itemsize))
    strides, step = list(facts.strides), facts.itemsize
    for axis in reversed(range(len(strides))):
        if facts.shape[axis] == 1:
            strides[axis] = step
        step = max(abs(strides[axis]) * facts.shape[axis], facts.itemsize)
    return replace(facts, strides=tuple(strides))


def compact(facts: ArrayInfo) -> ArrayInfo:
    """What a fresh copy of an array looks like."""
    return replace(facts, strides=c_strides(facts.shape, facts.itemsize), ptr=0, readonly=False)

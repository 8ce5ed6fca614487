"""Ask before acting: ``gpuinterop.explain(x, "torch")`` says what a conversion would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuinterop import _core, copies, errors
from gpuinterop.converters import OURS, checks, from_any, protocols, registry
from gpuinterop.converters.likeness import disguised
from gpuinterop.converters.options import check_options, taken_by
from gpuinterop.converters.plan import Facts, Plan, c_strides, refuse, refused_by
from gpuinterop.dtypes import known
from gpuinterop.ndarray import CudaNdarray
from gpuinterop.switches import as_switch

__all__ = ["explain"]


def explain(x: Any, to: str = "gpuinterop", copyif: bool = False, **options: Any) -> Plan:
    """Say what converting `x` would do: share, copy or refuse, why, and how to mend it.

    Nothing is converted, and a DLPack capsule stays unused. The answer is the plan that the converter
    itself carries out, with ``.shared``, ``.copied``, ``.refused``, ``.reason``, ``.axis``, ``.bytes``
    and ``.fix``; printing it shows all of them. `x` may be one of our arrays or any other; `to` is a
    library's name, or "gpuinterop" and "cudandarray" for an array of ours. The library is imported,
    as the conversion would, to see that this works. Inside `no_copies` a copy is a refusal. Of
    converters of other packages, one without ``plan_to`` gives ``.unknown``, and one without
    ``plan_from`` is tried.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 6), "float32"))
    >>> gpuinterop.explain(x[:, ::-1], to="numpy").shared
    True
    """
    copyif = as_switch(copyif, "copyif", "explain")
    plan = _plan(x, to, copyif, options)
    if plan.copied and plan.bytes:
        banned = copies.ban(plan.crosses, plan.bytes, plan.where)
        if banned is not None:
            return refused_by(banned, plan.library, plan.where)
    return plan


def _plan(x: Any, to: Any, copyif: bool, options: dict[str, Any]) -> Plan:
    if isinstance(to, str) and to in OURS:  # `to` may be anything, also what has no hash
        if isinstance(x, CudaNdarray if OURS[to] else _core.Array):
            # It comes back as it is, whatever state its geometry is in.
            check_options(None, options, f"explain(x, {to!r})")
            return Plan("gpuinterop", "shared", where="to_cudandarray" if OURS[to] else "from_any")
        return _into_ours(x, copyif, to, options)[0]
    row = registry.backend(to, "gpuinterop.explain")
    plan_to = getattr(row.module, "plan_to", None)
    where = f"to_{row.name}"
    if row.name == "array_api" and "xp" not in options:
        try:
            xp = registry.namespace(to, where)
        except errors.MissingLibraryError as e:
            return refused_by(e, row.name, where)
        options = options if xp is None else {**options, "xp": xp}
    if options:
        check_options(row.to, options, f"explain(x, {to!r})")
    if row.name == "array_api":
        own = row.module.own_converter(options.get("xp"))
        if own:
            return _plan(x, own, copyif, taken_by(registry.backend(own).to, options))
    first, facts = _into_ours(x, copyif, "any", {})
    if first.refused or facts is None:
        return first
    if isinstance(x, _core.Array):
        try:
            checks.require_array(x, where)
        except errors.CaptureError as e:
            return refused_by(e, row.name, where)
    if plan_to is None:
        told = refuse(
            row.name, where, errors.ConversionTypeError,
            "a converter that can plan", f"{row.module.__name__}, which has no plan_to",
            "convert and see, or add plan_to(x, copyif) to the converter",
        )  # fmt: skip
        return replace(told, outcome="unknown")
    described: Any = facts
    if row.name == "array_api":
        # Its plan asks the namespace, which wants an array; sharing one leaves nothing behind. For a
        # copy, and for a capsule, which can be shared only once, an empty one stands.
        lasting = first.shared and _core._look_into(x) is None
        described = from_any(x) if lasting else _empty(facts)
    second: Plan = plan_to(described, copyif, **taken_by(plan_to, options))
    if options.get("module") is None:
        package_for = getattr(row.module, "package_for", None)
        package = package_for(facts.device) if package_for is not None else ""
        second = checks.with_need(second, row.name, package)
        if not second.refused and row.package:
            try:
                module = package or getattr(row.module, "IMPORTS", row.package)
                registry.load(row.name, second.where, module)
            except errors.MissingLibraryError as e:
                return refused_by(e, row.name, second.where)
    if second.shared and first.copied:
        return replace(first, library=second.library)
    if second.copied and first.copied:
        return replace(second, bytes=first.bytes + second.bytes)
    return second


def _into_ours(x: Any, copyif: bool, to: str, options: dict[str, Any]) -> tuple[Plan, Facts | None]:
    """The plan to make `x` an array of ours, and the description of that array."""
    dtype = OURS[to]
    where = "to_cudandarray" if dtype else "from_any"
    try:
        plan, facts = _read(x, copyif, where, to, options)
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return refused_by(e, "gpuinterop", where), None
    if plan.refused:
        return plan, None
    if dtype is not None and facts.dtype != dtype:
        return refuse(
            "gpuinterop", where, errors.DTypeError, f"{dtype}, the only dtype of CudaNdarray",
            f"dtype {facts.dtype}", "cast first, or take a GpuArray with gpuinterop.from_any",
        ), None  # fmt: skip
    if plan.copied:
        facts = compact(facts)
    return plan, facts


def _read(x: Any, copyif: bool, where: str, to: str, options: dict[str, Any]) -> tuple[Plan, Facts]:
    if isinstance(x, _core.Array):
        check_options(None, options, f"explain(x, {to!r})")
        return Plan("gpuinterop", "shared", where=where), checks.facts_of(x)
    row = registry.recognise(x)
    plan_from = getattr(row.module, "plan_from", None) if row is not None else None
    if row is None:
        check_options(None, options, f"explain(x, {to!r})")
        # Sharing is the one way to know, and leaves nothing behind; a capsule would be used up.
        seen = _core._look_into(x)
        with copies.aside() as made:
            ours = protocols.share_unknown(x, where, copyif) if seen is None else seen
        return _seen(x, where, made.bytes, "memory of aligned elements"), checks.facts_of(ours)
    if plan_from is None:
        check_options(row.from_, options, f"explain(x, {to!r})")
        with copies.aside() as made:
            ours = row.take(x, copyif, **options)
        needs = "memory that the converter can share"
        return _seen(x, where, made.bytes, needs), checks.facts_of(ours)
    check_options(row.from_, options, f"explain(x, {to!r})")
    try:
        plan = plan_from(x, copyif, **taken_by(plan_from, options))
        if plan.refused:
            return plan, NOTHING
        read = row.module.describe
        return plan, _held(read(x, **taken_by(read, options)))
    except (AttributeError, KeyError, TypeError) as e:
        if isinstance(e, errors.GpuInteropError):
            raise
        raise disguised(x, where, e) from e


def _seen(x: Any, where: str, copied: int, needs: str) -> Plan:
    """The plan of what was done a moment ago, in which so many bytes were copied."""
    if not copied:
        return Plan("gpuinterop", "shared", where=where)
    return Plan(
        "gpuinterop", "copied", needs, "", None, copied, "see what the converter shares", where,
        f"{type(x).__module__}.{type(x).__qualname__}",
    )  # fmt: skip


NOTHING = Facts((), (), "", 0, "cpu")  # stands for an array that will not be


def _held(facts: Facts) -> Facts:
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


def _empty(facts: Facts) -> Any:
    """An array like the one described, in C order, of no elements."""
    dtype, code = known(facts.dtype), checks.TYPE_CODES[facts.device]
    return _core.empty(checks.class_for(dtype), (0,) * len(facts.shape), dtype, code, facts.index)


def compact(facts: Facts) -> Facts:
    """What a fresh copy of an array looks like."""
    return replace(facts, strides=c_strides(facts.shape, facts.itemsize), ptr=0, readonly=False)

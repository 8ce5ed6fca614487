"""Ask before acting: what a conversion would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import checks, from_any, registry
from gpuinterop.converters.plan import Facts, Plan, c_strides, refuse

__all__ = ["explain"]

# Names for "an array of ours".
_OURS = {"gpuinterop": None, "any": None, "cudandarray": "float32", "CudaNdarray": "float32"}


def explain(x: Any, to: str = "gpuinterop", copyif: bool = False, **options: Any) -> Plan:
    """Say what converting `x` would do: share, copy or refuse, why, and how to mend it.

    Nothing is converted. The answer is the plan that the converter itself carries out, with
    ``.shared``, ``.copied``, ``.refused``, ``.reason``, ``.axis``, ``.bytes`` and ``.fix``; printing
    it shows all of them. `x` may be one of our arrays or any other; `to` is a library's name, or
    "gpuinterop" and "cudandarray" for an array of ours.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 6), "float32"))
    >>> gpuinterop.explain(x[:, ::-1], to="numpy").shared
    True
    """
    if to in _OURS:
        return _into_ours(x, copyif, _OURS[to])[0]
    row = registry.backend(to)
    first, facts = _into_ours(x, copyif, None)
    if first.refused or facts is None:
        return first
    absent = _absent(row, facts, options)
    if absent is not None:
        return absent
    plan_to = getattr(row.module, "plan_to", None)
    if plan_to is None:
        return refuse(
            row.name, f"to_{row.name}", errors.ConversionTypeError,
            "a converter that can plan", f"{row.module.__name__}, which has no plan_to",
            "convert and see, or add plan_to(x, copyif) to the converter",
        )  # fmt: skip
    described: Any = facts
    if row.name == "array_api":
        # Its plan asks the namespace, which wants an array; sharing one leaves nothing behind.
        described = from_any(x, copyif)
    second: Plan = plan_to(described, copyif, **options)
    if second.shared and first.copied:
        return replace(first, library=second.library)
    if second.copied and first.copied:
        return replace(second, bytes=first.bytes + second.bytes)
    return second


def _absent(row: registry.Backend, facts: Facts, options: dict[str, Any]) -> Plan | None:
    if options.get("module") is not None or options.get("xp") is not None:
        return None
    package = row.package
    if row.name == "cudamat" and facts.device == "cpu":
        package = "npmat"
    if not package or replace(row, package=package).installed():
        return None
    return refuse(
        row.name, f"to_{row.name}", errors.MissingLibraryError,
        f"the package {package}", "it is not installed", f"pip install {row.install or package}",
    )  # fmt: skip


def _into_ours(x: Any, copyif: bool, dtype: str | None) -> tuple[Plan, Facts | None]:
    """The plan to make `x` an array of ours, and the description of that array."""
    where = "to_cudandarray" if dtype else "from_any"
    if isinstance(x, _core.Array):
        plan, facts = Plan("gpuinterop", "shared", where=where), checks.facts_of(x)
    else:
        row = registry.recognise(x)
        plan_from = getattr(row.module, "plan_from", None) if row is not None else None
        if row is not None and plan_from is not None:
            plan = plan_from(x, copyif)
            if plan.refused:
                return plan, None
            facts = row.module.describe(x)
        else:
            # Protocols only: sharing is the one way to know, and leaves nothing behind.
            try:
                facts = checks.facts_of(_core.import_any(None, x))
            except errors.GpuInteropError as e:
                return refuse(
                    "gpuinterop", where, type(e), e.expected, e.got, e.fix, code=e.reason
                ), None
            plan = Plan("gpuinterop", "shared", where=where)
    if dtype is not None and facts.dtype != dtype:
        return refuse(
            "gpuinterop", where, errors.DTypeError, f"{dtype}, the only dtype of CudaNdarray",
            f"dtype {facts.dtype}", "cast first, or take a GpuArray with gpuinterop.from_any",
        ), None  # fmt: skip
    if plan.copied:
        facts = compact(facts)
    return plan, facts


def compact(facts: Facts) -> Facts:
    """What a fresh copy of an array looks like."""
    return replace(facts, strides=c_strides(facts.shape, facts.itemsize), ptr=0, readonly=False)

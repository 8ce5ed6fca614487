"""Predict a conversion: ``gpuinterop.explain(x, "torch")`` reports whether it would share, copy or fail."""

from __future__ import annotations

from typing import Any

from gpuinterop import copy_tracking
from gpuinterop.converters import engine, read_target
from gpuinterop.converters.plan import Plan, plan_from_error
from gpuinterop.option_values import require_bool

__all__ = ["explain"]


def explain(x: Any, to: str = "gpuinterop", copyif: bool = False, **options: Any) -> Plan:
    """Report what converting `x` would do: share, copy or raise, why, and a fix.

    Nothing is converted, and a DLPack capsule is not consumed. The result is the plan that the converter
    itself carries out, with ``.shared``, ``.copied``, ``.refused``, ``.reason``, ``.axis``, ``.bytes``
    and ``.fix``; printing it shows all of them. `x` may be a gpuinterop array or an array of another
    library; `to` is a library's name, or "gpuinterop" and "cudandarray" for a gpuinterop array. The library
    is imported, as by the conversion, to check that this works. Inside `no_copies` a copy is refused. Of
    other packages' converters, one without ``plan_to`` gives ``.unknown``, and one without ``plan_from``
    is tried. Which streams may wait inside a capture is known when the conversion makes them wait, so
    it alone raises CaptureError on a GPU.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 6), "float32"))
    >>> gpuinterop.explain(x[:, ::-1], to="numpy").shared
    True
    """
    copyif = copyif if type(copyif) is bool else require_bool(copyif, "copyif", "explain")  # type: ignore[redundant-expr]
    entry, dtype, options = read_target(x, to, options, "explain")
    if entry is None:
        plan = engine.plan_own(x, copyif, options, dtype=dtype)[0]
    else:
        plan = engine.plan_conversion(x, entry, copyif, options).plan
    if plan.outcome == "copied" and plan.bytes:
        forbidden = copy_tracking.forbidden_copy_error(plan.crosses, plan.bytes, plan.where)
        if forbidden is not None:
            return plan_from_error(forbidden, plan.library, plan.where)
    return plan

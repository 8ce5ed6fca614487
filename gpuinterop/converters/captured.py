"""What a capture on a GPU forbids of a conversion, asked by the core's own rules without converting."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters.options import accepted_options
from gpuinterop.converters.plan import ArrayInfo, Plan, plan_from_error

__all__ = ["entering", "leaving"]


def entering(plan: Plan, facts: ArrayInfo, x: Any, module: Any, options: dict[str, Any]) -> Plan:
    """`plan`, or its refusal, where our current stream has to wait for the library that `x` is of."""
    stream_used_by = getattr(module, "stream_used_by", None)
    if plan.refused or stream_used_by is None or facts.device != "cuda" or not facts.size:
        return plan
    index = facts.index
    try:
        stream = stream_used_by(index, x, **accepted_options(stream_used_by, options))
        if stream is not None:
            _core.require_wait(index, _core.current_stream_handle(index), stream, plan.where)
        if plan.copied:
            _core.require_copies(index, False, plan.where)
    except errors.CaptureError as e:
        return plan_from_error(e, plan.library, plan.where)
    return plan


def leaving(plan: Plan, facts: ArrayInfo, x: Any, module: Any, options: dict[str, Any]) -> Plan:
    """`plan`, or its refusal, where a library has to wait for our array or gets a copy.

    `x` is the array; None stands for one that is still to be made, on our current stream.
    """
    stream_used_by = getattr(module, "stream_used_by", None)
    if plan.refused or facts.device != "cuda" or not facts.size:
        return plan
    index = facts.index
    current = _core.current_stream_handle(index)
    try:
        if plan.copied:
            if x is not None:
                _core.require_hand_over(x, current, plan.where)
            _core.require_copies(index, plan.crosses == "device_to_host", plan.where)
            x = None
        if stream_used_by is not None and plan.crosses != "device_to_host":
            consumer = stream_used_by(index, **accepted_options(stream_used_by, options))
            if x is not None:
                _core.require_hand_over(x, consumer, plan.where)
            else:
                _core.require_wait(index, consumer, current, plan.where)
    except errors.CaptureError as e:
        return plan_from_error(e, plan.library, plan.where)
    return plan

"""NVIDIA Warp: any layout of 1 to 4 dimensions is shared."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks, registry
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, c_strides, plan_layout, refuse
from gpuinterop.layout import core_view

__all__ = ["describe", "from_warp", "plan_from", "plan_to", "to_warp", "stream_used_by"]

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)
_TO = Rules("warp", "to_warp", _DTYPES, min_ndim=1, max_ndim=4)


def plan_to(x: Any, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan `to_warp`: what explain() shows and the converter carries out."""
    return plan_layout(checks.describe_array(x), _TO, copyif, allow_readonly)


def _stream(warp: Any, device: Any) -> int:
    return int(warp.get_stream(device).cuda_stream or checks.LEGACY)


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    warp = registry.load("warp", "to_warp")
    return _stream(warp, warp.get_device(f"cuda:{index}"))


def to_warp(x: Any, copyif: bool = False, *, allow_readonly: bool = False) -> Any:
    """Return a warp array over the memory of `x`.

    Shares memory, strides included (negative ones too), and keeps it alive; Warp's current stream
    waits for what is queued on it. Warp has 1 to 4 dimensions and no read-only arrays.
    """
    checks.require_array(x, "to_warp")
    plan = plan_to(x, copyif, allow_readonly)
    warp = checks.library_for(plan, "warp")
    x = checks.execute_export(x, plan)
    seen = core_view(x)
    device = warp.get_device(str(seen.device))
    if seen.device.type == "cuda":
        _core.hand_over(x, _stream(warp, device), "to_warp")
    held = [x]
    return warp.array(
        ptr=seen.ptr,
        dtype=getattr(warp, seen.dtype.name),
        shape=seen.shape,
        strides=seen.strides,
        device=device,
        # Warp calls this once, when the last view of the array goes.
        deleter=lambda _ptr, _size: held.clear(),
    )


def describe(a: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    device = a.device
    interface = a.__cuda_array_interface__ if device.is_cuda else a.__array_interface__
    dtype = numpy.dtype(interface["typestr"])
    name = dtype.name if dtype.kind != "V" else a.dtype.__name__
    shape = tuple(interface["shape"])
    strides = tuple(interface.get("strides") or c_strides(shape, dtype.itemsize))
    ptr = int(interface["data"][0] or 0) if 0 not in shape else 0
    where = ("cuda", int(device.ordinal)) if device.is_cuda else ("cpu", 0)
    return ArrayInfo(shape, strides, name, dtype.itemsize, *where, ptr, library="warp")


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_warp`: what explain() shows and the converter carries out."""
    if "indexedarray" in type(a).__name__:
        return refuse(
            "gpuinterop", "from_warp", errors.ConversionTypeError,
            "a warp.array; an indexed one has no strides", f"a warp.{type(a).__name__}",
            "pass a.contiguous()",
        )  # fmt: skip
    return checks.plan_own(describe(a), "from_warp", copyif)


def from_warp(a: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of the warp array `a`; vectors and matrices as further axes.

    Shares every layout; ``result.base`` is `a`. What Warp's current stream has queued is visible
    here. No gradient is made or kept.
    """
    checks.require_foreign(a, "warp", "from_warp", "a warp.array")
    plan = plan_from(a, copyif)
    if plan.refused:
        raise plan.exception()
    facts = describe(a)
    stream = checks.LEGACY
    if facts.device == "cuda":
        stream = _stream(registry.load("warp", "from_warp"), a.device)
    return checks.execute_import(plan, facts, a, stream=stream)

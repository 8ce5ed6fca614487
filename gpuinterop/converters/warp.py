"""NVIDIA Warp: any layout of 1 to 4 dimensions is shared."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import registry
from gpuinterop.converters.foreign_layout import LEGACY
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, c_strides, refuse
from gpuinterop.layout import core_view

__all__ = ["RULES", "describe", "export", "judge", "stream_used_by"]

ARRAY = "a warp.array"
STREAM = "Warp's current stream"
FROM_NOTE = "Vectors and matrices become further axes. No gradient is made or kept."

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)
RULES = Rules("warp", "to_warp", _DTYPES, min_ndim=1, max_ndim=4)


def stream_used_by(index: int, obj: Any = None) -> int:
    """Return the handle of the stream on which the library uses memory."""
    warp = registry.load("warp", "to_warp")
    device = warp.get_device(f"cuda:{index}") if obj is None else obj.device
    return int(warp.get_stream(device).cuda_stream or LEGACY)


def export(x: Any, warp: Any) -> Any:
    """Return a warp array over the memory of `x`."""
    seen = core_view(x)
    if seen.device.type == "cuda":
        _core.hand_over(x, stream_used_by(seen.device.index), "to_warp")
    held = [x]
    return warp.array(
        ptr=seen.ptr,
        dtype=getattr(warp, seen.dtype.name),
        shape=seen.shape,
        strides=seen.strides,
        device=warp.get_device(str(seen.device)),
        # Warp calls this once, when the last view of the array is destroyed.
        deleter=lambda _ptr, _size: held.clear(),
    )


def judge(a: Any) -> Plan | None:
    """Refuse an indexed array, which has no strides."""
    if "indexedarray" not in type(a).__name__:
        return None
    return refuse(
        "gpuinterop", "from_warp", errors.ConversionTypeError,
        "a warp.array; an indexed one has no strides", f"a warp.{type(a).__name__}",
        "pass a.contiguous()",
    )  # fmt: skip


def describe(a: Any) -> ArrayInfo:
    """Describe a warp array."""
    device = a.device
    interface = a.__cuda_array_interface__ if device.is_cuda else a.__array_interface__
    dtype = numpy.dtype(interface["typestr"])
    name = dtype.name if dtype.kind != "V" else a.dtype.__name__
    shape = tuple(interface["shape"])
    strides = tuple(interface.get("strides") or c_strides(shape, dtype.itemsize))
    ptr = int(interface["data"][0] or 0) if 0 not in shape else 0
    where = ("cuda", int(device.ordinal)) if device.is_cuda else ("cpu", 0)
    return ArrayInfo(shape, strides, name, dtype.itemsize, *where, ptr, library="warp")

"""NVIDIA Warp: any layout of 1 to 4 dimensions is shared."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop.exchange import registry
from gpuinterop.exchange.foreign_memory import LEGACY
from gpuinterop.exchange.plan import Rules

ARRAY = "a warp.array"
STREAM = "Warp's current stream"
FROM_NOTE = "Vectors and matrices become further axes. Gradients are neither created nor kept."

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)
RULES = Rules("warp", "to_warp", _DTYPES, min_ndim=1, max_ndim=4)


def export(x: Any, warp: Any) -> Any:
    """Return a warp array over the memory of `x`."""
    warp.init()  # from_dlpack needs it and does not call it
    return warp.from_dlpack(_core.writable_alias(x) if x.readonly else x)


def stream_used_by(index: int, obj: Any = None) -> int:
    """Return the handle of the stream on which the library uses memory."""
    warp = registry.load("warp", "to_warp")
    device = warp.get_device(f"cuda:{index}") if obj is None else obj.device
    return int(warp.get_stream(device).cuda_stream or LEGACY)

"""tvm-ffi: every layout is shared, in and out."""

from __future__ import annotations

from typing import Any

from gpuinterop.arrays.dtypes import NAMES, SUB_BYTE_NAMES
from gpuinterop.exchange import registry
from gpuinterop.exchange.foreign_memory import LEGACY
from gpuinterop.exchange.plan import Rules

ARRAY = "a tvm_ffi.Tensor"
STREAM = "the stream that tvm-ffi calls current"
FROM_DLPACK = "from_dlpack"

# A tensor of complex numbers can be made, but its dtype cannot be read; the legacy DLPack struct that
# tvm-ffi requests cannot express that the elements of a sub-byte dtype are padded.
RULES = Rules(
    "tvm_ffi",
    "to_tvm_ffi",
    frozenset(n for n in NAMES if not n.startswith("complex") and n not in SUB_BYTE_NAMES),
)


def stream_used_by(index: int, obj: Any = None) -> int:
    """Return the handle of the stream on which the library uses memory."""
    tvm_ffi = registry.load("tvm_ffi", "to_tvm_ffi")
    return int(tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", index)) or LEGACY)

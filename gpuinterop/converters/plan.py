"""The names of which a converter outside of this package is written: see docs/how-to/write-a-converter.md."""

from gpuinterop.exchange.plan import (
    TYPE_CODES,
    ArrayInfo,
    Incoming,
    Plan,
    Rules,
    c_strides,
    copy_needed,
    plan_from_error,
    plan_layout,
    refuse,
    share,
)

__all__ = [
    "TYPE_CODES",
    "ArrayInfo",
    "Incoming",
    "Plan",
    "Rules",
    "c_strides",
    "copy_needed",
    "plan_from_error",
    "plan_layout",
    "refuse",
    "share",
]

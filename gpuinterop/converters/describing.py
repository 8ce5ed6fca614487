"""Reading any known array: shape, strides, dtype, address and device, without converting it."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import checks, protocols, registry
from gpuinterop.converters.likeness import lookalike_error
from gpuinterop.converters.plan import ArrayInfo
from gpuinterop.converters.rows import promised
from gpuinterop.layout import is_array

__all__ = ["describe"]


def describe(x: Any) -> tuple[ArrayInfo, Any]:
    """Shape, strides, dtype, address and device of any known array; nothing is converted.

    Beside it, what keeps the memory at that address: some objects make new memory at every look.
    """
    if is_array(x):
        return checks.describe_array(x), x
    row = registry.find_backend(x)
    reader = getattr(row.module, "describe", None) if row is not None else None
    if row is None:
        seen = _core._look_into(x, "describe", True)
        if seen is not None:
            return checks.describe_array(seen), x
    if row is None or reader is None:
        # Sharing the memory for a moment tells as much, and leaves nothing behind.
        ours = protocols.share_unknown(x, copyif=None) if row is None else row.take(x)
        return checks.describe_array(ours), ours
    try:
        return promised(reader(x), ArrayInfo, row.name, "describe"), x
    except errors.GpuInteropError:
        raise
    except Exception as e:  # the foreign library's own refusal: sparse, deleted, symbolic, ...
        try:
            plan = row.module.plan_from(x)
        except (AttributeError, KeyError) as again:
            raise lookalike_error(x, "describe", again) from e
        if plan.refused:
            raise plan.exception() from e
        raise

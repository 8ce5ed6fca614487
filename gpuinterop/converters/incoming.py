"""Arrays of any known library, and of any that speaks a protocol."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop.converters import protocols, registry
from gpuinterop.converters.likeness import lookalike_error
from gpuinterop.converters.options import check_options
from gpuinterop.errors import GpuInteropError
from gpuinterop.layout import is_array
from gpuinterop.option_values import require_bool

__all__ = ["from_any"]


@_core.imports()
def from_any(obj: Any, copyif: bool = False, **options: Any) -> Any:
    """Return an array over the memory of any array that is known, or that speaks a protocol.

    A float32 array becomes a `CudaNdarray`, another dtype a `GpuArray`. Shares memory, or raises;
    with ``copyif=True`` it copies what cannot be shared. An array of ours comes back as it is.

    Raises
    ------
    ConversionTypeError
        `obj` is no array: the message lists what is recognised.
    """
    copyif = require_bool(copyif, "copyif", "from_any")
    if is_array(obj):
        check_options(None, options, "from_any", common=False)
        return obj
    row = registry.find_backend(obj)
    if options:
        check_options(row.from_ if row else None, options, "from_any", common=False)
    if row is None:
        return protocols.share_unknown(obj, "from_any", copyif)
    try:
        return row.take(obj, copyif, **options)
    except (AttributeError, KeyError) as e:
        if isinstance(e, GpuInteropError):
            raise
        raise lookalike_error(obj, "from_any", e) from e

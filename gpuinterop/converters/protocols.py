"""Arrays from any object that speaks an exchange protocol, without knowing its library.

The protocols themselves are in the core, which tries them in this order: DLPack's C exchange API,
``__dlpack__``, ``__cuda_array_interface__``, ``__array_interface__``, the buffer protocol.
"""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core
from gpuinterop.converters import registry
from gpuinterop.error_context import resolve_device
from gpuinterop.errors import ConversionTypeError
from gpuinterop.foreign_handles import protocols_of
from gpuinterop.ndarray import CudaNdarray, GpuArray
from gpuinterop.option_values import require_optional_bool, takes_copy_keyword

__all__ = ["from_dlpack", "protocols_of", "share_unknown"]


@takes_copy_keyword("copy")
def from_dlpack(
    x: Any,
    /,
    *,
    device: Any = None,
    copy: bool | None = None,
    cls: type[CudaNdarray | GpuArray] | None = None,
) -> Any:
    """Return an array that shares the memory of `x`, keeps it alive, and is ready on the current stream.

    `x` is any object with DLPack's methods, a DLPack capsule (which it uses up), or an object with
    one of the older protocols. Float32 gives a `CudaNdarray`, any other dtype a `GpuArray`, unless
    `cls` says which; read-only memory stays read-only. Nothing is copied unless ``copy=True``, or
    `device` names another device than the one of `x`.

    Raises
    ------
    ConversionTypeError
        `x` speaks no protocol, or its memory does not hold its values (meta tensors, tracers), or it
        is a NumPy scalar, which can only be copied.
    ExchangeError
        What the protocol says is malformed, used up, or not possible here; the message tells which
        protocols were tried and what each of them said.
    CopyForbiddenError
        ``copy=False`` and `device` is another device.
    DTypeError
        `cls` is `CudaNdarray` and the dtype is not float32.

    Examples
    --------
    >>> import numpy
    >>> import gpuinterop as gi
    >>> n = numpy.arange(6, dtype="float32").reshape(2, 3)
    >>> x = gi.from_dlpack(n.T)
    >>> x.shape, x.strides, x.ptr == n.ctypes.data
    ((3, 2), (4, 12), True)
    """
    if copy is not None:
        copy = require_optional_bool(copy, "copy", "from_dlpack")
    place = None if device is None else resolve_device(device, "from_dlpack")
    copied = copy or (copy is None and place is not None and place.type == "cuda")
    if copied and isinstance(x, numpy.generic):
        x = numpy.asarray(x)  # a scalar has no memory to share, but its value can be copied
    pair = None if place is None else (place.type_code, place.index or 0)
    return _core.import_any(cls, x, pair, copy)


def share_unknown(obj: Any, where: str = "from_dlpack", copyif: bool | None = False) -> Any:
    """An array over an object of no known library, by the protocols that it speaks.

    With `copyif` None also where its elements are off their alignment: for looking at alone.
    """
    try:
        return _core.import_any(None, obj, where=where, realign=copyif)
    except ConversionTypeError:
        if protocols_of(obj):
            raise
        kind = type(obj)
    known = [name for name in registry.names() if name not in ("buffer", "array_api")]
    raise ConversionTypeError(
        where=where,
        expected=f"an array of {', '.join(known)}, or an object that speaks DLPack, "
        "__cuda_array_interface__, __array_interface__ or the buffer protocol",
        got=f"{kind.__module__}.{kind.__qualname__}, which is none of these",
        fix="pass an array (gpuinterop.asarray makes one of numbers and lists), or tell of its "
        "library: gpuinterop.converters.register",
    )

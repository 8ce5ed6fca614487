"""cuda.core: every layout is shared, into a StridedMemoryView and out of one."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.exchange.foreign_memory import device_of_address, stream_number
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, c_strides, plan_layout

ARRAY = "a cuda.core StridedMemoryView or Buffer"
STREAM = "`stream`"
IMPORTS = "cuda.core.utils"
FROM_OPTIONS = {"stream": None}
TO_NOTE = """cuda.core has no current stream, so `stream` is the stream that will use the view (any stream object or
a handle), by default the legacy default stream."""
FROM_NOTE = "A Buffer becomes an array of int8. `stream` is by default the legacy default stream."

# The view accepts any struct, and raises later, when its dtype is read, for types that it does not know.
RULES = Rules("cuda_core", "to_cuda_core", frozenset({*NUMPY_NAMES, "bfloat16"}), readonly=True)


def plan_to(info: ArrayInfo, copyif: bool = False, stream: Any = None) -> Plan:
    """Plan a conversion to cuda.core, which needs a usable stream."""
    stream_number(stream)
    return plan_layout(info, RULES)


def export(x: Any, utils: Any, stream: Any = None) -> Any:
    """Return a StridedMemoryView over the memory of `x`."""
    handle = stream_number(stream)
    if core_view(x).device.type == "cpu":
        handle = -1  # "no stream" for this class
    return utils.StridedMemoryView.from_dlpack(x, stream_ptr=handle)


def stream_used_by(index: int, obj: Any = None, stream: Any = None) -> int:
    """Return the handle of the stream that the caller names."""
    return stream_number(stream)


def describe(v: Any) -> ArrayInfo:
    """Describe a StridedMemoryView or a Buffer."""
    if not hasattr(v, "ptr"):  # a Buffer: bytes in one dimension
        ptr, index = int(v.handle or 0), int(v.device_id)
        where = ("cuda", index) if v.is_device_accessible else ("cpu", 0)
        if v.is_device_accessible and index < 0:  # pinned memory, which belongs to no device
            where = device_of_address(ptr)
        return ArrayInfo((v.size,), (1,), "int8", 1, *where, ptr, library="cuda_core")
    try:
        named = "object" if v.dtype is None else v.dtype
    except TypeError:  # the view accepts any struct, and reads the dtype only on request
        named = "object"
    dtype = numpy.dtype(named)
    shape = tuple(v.shape)
    if v.strides is None:
        strides = c_strides(shape, dtype.itemsize)
    else:
        strides = tuple(s * dtype.itemsize for s in v.strides)
    where = ("cuda", int(v.device_id)) if v.device_id >= 0 else ("cpu", 0)
    return ArrayInfo(
        shape, strides, dtype.name, dtype.itemsize, *where,
        int(v.ptr) if 0 not in shape else 0, bool(v.readonly), "cuda_core",
    )  # fmt: skip

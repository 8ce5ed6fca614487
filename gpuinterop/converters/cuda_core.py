"""cuda.core: every layout goes into a StridedMemoryView and comes out of one."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks
from gpuinterop.converters.cudamat_struct import device_of
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, c_strides, plan_layout, refuse
from gpuinterop.dtypes import NUMPY_NAMES
from gpuinterop.layout import core_view

__all__ = ["describe", "from_cuda_core", "plan_from", "plan_to", "to_cuda_core", "stream_used_by"]

IMPORTS = "cuda.core.utils"  # what a conversion imports

# The view takes any struct, and fails later, on its dtype, for the types that it does not know.
_DTYPES = frozenset({*NUMPY_NAMES, "bfloat16"})
_TO = Rules("cuda_core", "to_cuda_core", _DTYPES, readonly=True)


def plan_to(x: Any, copyif: bool = False) -> Plan:
    """Plan `to_cuda_core`: what explain() shows and the converter carries out."""
    return plan_layout(checks.describe_array(x), _TO, copyif)


def to_cuda_core(x: Any, copyif: bool = False, *, stream: Any = None) -> Any:
    """Return a cuda.core StridedMemoryView of `x`.

    Shares every layout, keeps the read-only mark and the memory. cuda.core has no current stream, so
    name the one that will use the view (any stream object or a handle); the legacy stream otherwise.
    That stream waits for what is queued on `x`.
    """
    checks.require_array(x, "to_cuda_core")
    handle = checks.stream_number(stream)
    plan = plan_to(x, copyif)
    utils = checks.library_for(plan, "cuda_core", IMPORTS)
    x = checks.execute_export(x, plan)
    _core.require_hand_over(x, handle, "to_cuda_core")
    if core_view(x).device.type == "cpu":
        handle = -1  # the class's word for "no stream"
    return utils.StridedMemoryView.from_dlpack(x, stream_ptr=handle)


def stream_used_by(index: int, array: Any = None, stream: Any = None) -> int:
    """The stream on which the library uses memory, by its handle: the one that a caller names."""
    return checks.stream_number(stream)


def describe(v: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    if not hasattr(v, "ptr"):  # a Buffer: bytes in one dimension
        ptr, index = int(v.handle or 0), int(v.device_id)
        where = ("cuda", index) if v.is_device_accessible else ("cpu", 0)
        if v.is_device_accessible and index < 0:  # pinned memory, which belongs to no device
            where = device_of(ptr)
        return ArrayInfo((v.size,), (1,), "int8", 1, *where, ptr, library="cuda_core")
    dtype = numpy.dtype(v.dtype)
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


def plan_from(v: Any, copyif: bool = False) -> Plan:
    """Plan `from_cuda_core`: what explain() shows and the converter carries out."""
    if hasattr(v, "ptr"):
        try:
            why = "a StridedMemoryView without one" if v.dtype is None else ""
        except TypeError as e:  # it takes any struct, and looks at the dtype when asked for it
            why = f"a StridedMemoryView that cannot tell: {e}"
        if why:
            return refuse(
                "gpuinterop", "from_cuda_core", errors.DTypeError, "a view with a dtype", why,
                "pass the array that it was made from, v.exporting_obj, or dtype= to from_buffer",
            )  # fmt: skip
    return checks.plan_own(describe(v), "from_cuda_core", copyif)


def from_cuda_core(v: Any, copyif: bool = False, *, stream: Any = None) -> Any:
    """Return an array over the memory of a StridedMemoryView, or of a Buffer as int8.

    Shares every layout and keeps the read-only mark; ``result.base`` is `v`. The work queued on
    `stream` (the legacy stream when not given) is visible here.
    """
    checks.require_foreign(
        v, "cuda_core", "from_cuda_core", "a cuda.core StridedMemoryView or Buffer"
    )
    handle = checks.stream_number(stream)
    plan = plan_from(v, copyif)
    if plan.refused:
        raise plan.exception()
    return checks.execute_import(plan, describe(v), v, stream=handle)

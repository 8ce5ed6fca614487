"""What every converter checks, and how it carries its plan out."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters.plan import Facts, Plan, Rules, plan_layout
from gpuinterop.dtypes import NAMES
from gpuinterop.ndarray import CudaNdarray, GpuArray

__all__ = [
    "Hold",
    "borrowed",
    "carry_out",
    "class_for",
    "copied",
    "facts_of",
    "imported",
    "plan_own",
    "require_array",
]

_TYPE_CODES = {"cpu": 1, "cuda": 2}  # DLPack's numbers, which the core uses
_DTYPES = frozenset(NAMES)
CUDA = _TYPE_CODES["cuda"]
ANY_DEVICE = -1  # the driver knows where an address lies
LEGACY = 1  # CU_STREAM_LEGACY: where libraries without a notion of streams work


def require_array(x: Any, where: str) -> Any:
    """`x` when it is one of our arrays; the documents' ValueError otherwise."""
    if isinstance(x, _core.Array):
        return x
    raise errors.ConversionTypeError(
        where=where,
        expected="a CudaNdarray or GpuArray",
        got=f"{type(x).__module__}.{type(x).__qualname__}",
        fix="make one first with gpuinterop.from_any(x), or use gpuinterop.to(x, library)",
    )


def facts_of(x: Any) -> Facts:
    """One of our arrays, described. A description is returned as it is."""
    if isinstance(x, Facts):
        return x
    device = x.device
    dtype = x.dtype
    return Facts(
        x.shape,
        tuple(x.strides),
        dtype.name,
        dtype.itemsize,
        device.type,
        device.index or 0,
        x.ptr,
        bool(x.readonly),
    )


def class_for(dtype: Any) -> type:
    """CudaNdarray for float32, the documents' only dtype; GpuArray for the others."""
    return CudaNdarray if numpy.dtype(dtype) == numpy.float32 else GpuArray


def plan_own(facts: Facts, where: str, copyif: bool) -> Plan:
    """The part of every ``from_<lib>`` plan that depends on layout and dtype alone.

    An array of ours holds every layout, on both devices, and keeps the read-only flag.
    """
    plan = plan_layout(facts, Rules("gpuinterop", where, _DTYPES, readonly=True), copyif)
    if not plan.shared or facts.size == 0:
        return plan
    fault: tuple[int | None, str] | None = None
    for axis, (n, s) in enumerate(zip(facts.shape, facts.strides, strict=True)):
        if n > 1 and s % facts.itemsize:
            fault = (axis, f"stride {s} bytes on axis {axis}")
    if fault is None and facts.ptr % alignment_of(facts):
        fault = (None, f"address {facts.ptr:#x}")
    if fault is None:
        return plan
    where_axis, got = fault
    return Plan(
        "gpuinterop",
        "copied" if copyif else "refused",
        f"strides and address in whole elements of {facts.itemsize} bytes",
        "alignment",
        where_axis,
        facts.nbytes if copyif else 0,
        "pass copyif=True for an aligned copy",
        where,
        got,
        errors.ContiguityError,
    )


def alignment_of(facts: Facts) -> int:
    # NumPy aligns complex numbers to their parts; device code loads the whole number at once.
    parts = facts.device == "cpu" and facts.dtype.startswith("complex")
    return facts.itemsize // 2 if parts else facts.itemsize


def carry_out(x: Any, plan: Plan) -> Any:
    """`x` itself when the plan shares, a C-contiguous copy when it copies; raises when it refuses."""
    if plan.outcome == "shared":
        return x
    if plan.outcome == "refused":
        raise plan.exception()
    return copied(x, plan.where)


def copied(x: Any, where: str, order: str = "C") -> Any:
    """A compact copy on the same device. The core tells the watchers, in the name of `where`."""
    device = x.device
    fresh = _core.empty(type(x), x.shape, x.dtype, device.type_code, device.index or 0, order)
    _core.copy_into(fresh, x, where=where)
    return fresh


def borrowed(
    facts: Facts, base: Any, where: str, *, dtype: Any = None, stream: int = LEGACY
) -> Any:
    """An array over foreign memory that `base` keeps alive.

    The library is taken to work on `stream`: what it has queued there is visible to us, and it waits
    for our last use before the memory goes back to it.
    """
    dtype = numpy.dtype(facts.dtype if dtype is None else dtype)
    return _core.borrow(
        class_for(dtype),
        facts.ptr,
        facts.shape,
        facts.strides,
        dtype,
        _TYPE_CODES[facts.device],
        facts.index,
        base,
        facts.readonly,
        stream,
        where,
    )


def imported(obj: Any) -> Any:
    """`obj` by the best protocol it speaks, as CudaNdarray or GpuArray; shares memory."""
    return _core.import_any(None, obj)


class Hold:
    """Keeps several foreign objects alive as the owner of one memory; shows the first one's names."""

    __slots__ = ("__weakref__", "also", "owner")

    def __init__(self, owner: Any, *also: Any) -> None:
        self.owner = owner
        self.also = also

    def __getattr__(self, name: str) -> Any:
        return getattr(self.owner, name)

    def __repr__(self) -> str:
        return f"<memory of {self.owner!r}>"

"""Read what an object of another library reports about itself, and make arrays over its memory."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters.plan import (
    TYPE_CODES,
    ArrayInfo,
    Plan,
    Rules,
    c_strides,
    copy_needed,
    plan_from_error,
    plan_layout,
    refuse,
)
from gpuinterop.dtypes import NAMES, as_supported_dtype
from gpuinterop.foreign_handles import CUDA
from gpuinterop.ndarray import class_for
from gpuinterop.streams import as_stream

__all__ = [
    "LEGACY",
    "OwnerGroup",
    "describe_memory",
    "device_of_address",
    "dtype_name",
    "import_memory",
    "legacy_stream",
    "new_copy",
    "plan_import",
    "read_layout",
    "read_shape",
    "refuse_unknown_memory",
    "stream_number",
]

_BYTE = numpy.dtype(numpy.uint8)
LEGACY = 1  # CU_STREAM_LEGACY: where libraries without current streams work


def read_shape(value: Any, itemsize: int, where: str) -> tuple[int, ...]:
    """Read a shape whose lengths are not negative; the core checks the size against the memory."""
    shape = tuple(map(operator.index, value))
    if min(shape, default=0) < 0:
        raise errors.ExchangeError(
            where=where,
            expected="extents of at least 0",
            got=f"shape {errors.short_repr(shape)}",
            fix="reshape the array by its own method: reshape(shape)",
        )
    return shape


def read_layout(
    shape: Any, strides: Any, itemsize: int, where: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read shape and byte strides. None, and the strides of an empty array, mean C-contiguous ones."""
    lengths = read_shape(shape, itemsize, where)
    if strides is None or 0 in lengths:
        return lengths, c_strides(tuple(max(n, 1) for n in lengths), itemsize)
    return lengths, tuple(map(operator.index, strides))


def dtype_name(dtype: Any) -> str:
    """Return NumPy's name of a dtype; with its byte order, ">f4", if that is not the machine's."""
    return dtype.name if dtype.isnative else dtype.str  # type: ignore[no-any-return]


def stream_number(stream: Any) -> int:
    """Return the driver's handle of a stream object or of a handle; None is the legacy stream."""
    if stream is None:
        return LEGACY
    plain = type(stream) is int and 0 <= stream < 1 << 64  # without a call of the driver each time
    return (stream if plain else as_stream(stream).handle) or LEGACY


def legacy_stream(index: int, obj: Any = None) -> int:
    """Return the stream of a library that works on the legacy default stream, as its `stream_used_by`."""
    return LEGACY


def device_of_address(ptr: int) -> tuple[str, int]:
    """Return the device of an address on a GPU, by the driver; GPU 0 for an unknown one."""
    found = _core.pointer_info(ptr) if ptr else None
    return ("cuda", int(found[1])) if found is not None else ("cuda", 0)


def describe_memory(parts: tuple[Any, ...], library: str) -> ArrayInfo:
    """Describe what the function `memory` of a converter returns."""
    lengths, steps, element, ptr, index, _ = parts
    dtype = numpy.dtype(element)
    shape, strides = read_layout(lengths, steps, dtype.itemsize, f"from_{library}")
    device, index = device_of_address(ptr) if index < 0 else ("cuda", index)
    return ArrayInfo(
        shape, strides, dtype_name(dtype), dtype.itemsize, device, index,
        0 if 0 in shape else ptr, library=library,
    )  # fmt: skip


# ---- memory -------------------------------------------------------------------------------------


_DTYPES = frozenset(NAMES)


def plan_import(info: ArrayInfo, where: str) -> Plan:
    """Plan the conversion of described memory to a gpuinterop array.

    A gpuinterop array holds every layout, on both devices, and keeps the read-only flag.
    """
    if info.dtype[:1] in ("<", ">"):
        return refuse(
            "gpuinterop", where, errors.DTypeError, "native byte order", f"dtype {info.dtype}",
            f"convert the values in their own library first: a.astype('{info.dtype[1:]}')",
        )  # fmt: skip
    plan = plan_layout(info, Rules("gpuinterop", where, _DTYPES, readonly=True))
    if not plan.shared or info.size == 0:
        return plan
    axis, got = None, ""
    for at, (n, s) in enumerate(zip(info.shape, info.strides, strict=True)):
        if n > 1 and s % info.itemsize:
            axis, got = at, f"stride {s} bytes on axis {at}"
    if not got and info.ptr % _core.alignment_of(
        as_supported_dtype(info.dtype), TYPE_CODES[info.device]
    ):
        got = f"address {info.ptr:#x}"
    if not got:
        return plan
    return copy_needed(
        "gpuinterop", where, info, errors.ContiguityError,
        f"strides and address in whole elements of {info.itemsize} bytes", got,
        code="alignment", axis=axis,
    )  # fmt: skip


def refusal_of(
    obj: Any,
    where: str,
    rows: tuple[tuple[Callable[[Any], Any], type[errors.GpuInteropError], str, str, str, str], ...],
) -> Plan | None:
    """Return the refusal of the first row whose condition holds for `obj`, None if none does.

    A row is (condition, error, code, expected, got, fix). The code "" is that of the error class, and `got` may
    name attributes of the object: "{0.dtype}".
    """
    for condition, error, code, expected, got, fix in rows:
        if condition(obj):
            return refuse("gpuinterop", where, error, expected, got.format(obj), fix, code=code)
    return None


def refuse_unknown_memory(plan: Plan, info: ArrayInfo) -> Plan:
    """Return `plan`, or a refusal if the driver does not know the memory that `info` describes.

    For libraries whose arrays report their address by attributes, which nothing has checked yet.
    """
    if plan.refused or info.device != "cuda" or not info.size:
        return plan
    found = _core.pointer_info(info.ptr)
    if found is not None and not found[2]:
        made = "pycuda.autoinit" in sys.modules
        return refuse(
            plan.library, plan.where, errors.ContextError,
            f"memory of the primary context of cuda:{info.index}, where all libraries share it",
            "memory of another context" + (": pycuda.autoinit makes one of its own" if made else ""),
            "import pycuda.autoprimaryctx instead of pycuda.autoinit, at the top of the program",
        )  # fmt: skip
    shape, strides, dtype = _as_bytes(info) if plan.copied else _as_elements(info)
    try:
        _core.check_borrowed(info.ptr, shape, strides, dtype, CUDA, info.index, plan.where)
    except errors.GpuInteropError as e:
        return plan_from_error(e, plan.library, plan.where)
    return plan


def _as_elements(info: ArrayInfo) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    return info.shape, info.strides, as_supported_dtype(info.dtype)


def _as_bytes(info: ArrayInfo) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    # Strides or an address between elements: an axis for the bytes of an element.
    return (*info.shape, info.itemsize), (*info.strides, 1), _BYTE


def import_memory(obj: Any, info: ArrayInfo, plan: Plan, stream: int | None = None) -> Any:
    """Return an array over the memory of `obj`, or a copy of it, as the plan says.

    What the library has queued on `stream` is visible to the array, and the library gets the memory back
    after the array's last use.
    """
    owner = obj if info.owner is None else info.owner
    code, stream = TYPE_CODES[info.device], LEGACY if stream is None else stream
    shape, strides, dtype = _as_bytes(info) if plan.copied else _as_elements(info)
    source: Any = _core.from_pointer(
        class_for(dtype), info.ptr, shape, strides, dtype, code, info.index, owner,
        info.readonly or plan.copied, stream, plan.where,
    )  # fmt: skip
    if plan.shared:
        return source
    fresh: Any = new_copy(source, plan.where)
    shape, strides, dtype = _as_elements(info.copied())
    return _core.from_pointer(
        class_for(dtype), fresh.ptr, shape, strides, dtype, code, info.index, fresh, False,
        fresh._stream or LEGACY, plan.where,
    )  # fmt: skip


def new_copy(x: Any, where: str, order: str = "C") -> Any:
    """Return a contiguous copy of a gpuinterop array on the same device."""
    view = _core.view(_core.Array, x)
    place = view.device
    fresh = _core.empty(type(x), view.shape, view.dtype, place.type_code, place.index or 0, order)
    _core.copy_into(fresh, x, where=where)
    return fresh


class OwnerGroup:
    """Keeps several objects alive as the owner of one memory; has the attributes of the first."""

    __slots__ = ("__weakref__", "also", "owner")

    def __init__(self, owner: Any, *also: Any) -> None:
        self.owner = owner
        self.also = also

    def __getattr__(self, name: str) -> Any:
        return getattr(self.owner, name)

    def __repr__(self) -> str:
        return f"<memory of {self.owner!r}>"

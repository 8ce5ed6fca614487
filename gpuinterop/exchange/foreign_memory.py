"""Read what an object of another library reports about itself, and make arrays over its memory."""

from __future__ import annotations

import operator
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import class_for
from gpuinterop.arrays.dtypes import NAMES, as_supported_dtype, name_of
from gpuinterop.devices.streams import as_stream
from gpuinterop.errors.messages import foreign_byte_order

from .plan import (
    TYPE_CODES,
    ArrayInfo,
    Plan,
    Rules,
    c_strides,
    copy_needed,
    plan_from_error,
    plan_layout,
)

_BYTE = numpy.dtype(numpy.uint8)
LEGACY = 1  # CU_STREAM_LEGACY: the stream of libraries without current streams


def read_layout(shape: Any, strides: Any, itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read shape and byte strides, which the core checks later. None means C-contiguous strides."""
    lengths = tuple(map(operator.index, shape))
    if strides is None or 0 in lengths:
        return lengths, c_strides(lengths, itemsize)
    return lengths, tuple(map(operator.index, strides))


def stream_number(stream: Any) -> int:
    """Return the driver's handle of a stream object or of a handle; None is the legacy stream."""
    if stream is None:
        return LEGACY
    # A handle as it is avoids a call of the driver each time.
    is_handle = type(stream) is int and 0 <= stream < 1 << 64
    return (stream if is_handle else as_stream(stream).handle) or LEGACY


def device_of_address(ptr: int) -> tuple[str, int]:
    """Return the device that the driver reports for an address on a GPU; GPU 0 for an unknown address."""
    return "cuda", _core.inspect_pointer(ptr)["device"] if ptr else 0


def describe_memory(parts: tuple[Any, ...], library: str) -> ArrayInfo:
    """Describe the memory that a converter's function `memory` returns."""
    lengths, steps, element, ptr, index, _ = parts
    dtype = numpy.dtype(element)
    shape, strides = read_layout(lengths, steps, dtype.itemsize)
    device, index = device_of_address(ptr) if index < 0 else ("cuda", index)
    return ArrayInfo(
        shape, strides, name_of(dtype) if dtype.isnative else dtype.str, dtype.itemsize, device, index,
        0 if 0 in shape else ptr, library=library,
    )  # fmt: skip


# ---- memory -------------------------------------------------------------------------------------


_DTYPES = frozenset(NAMES)


def plan_import(info: ArrayInfo, where: str) -> Plan:
    """Plan to share described memory as a gpuinterop array, or to copy misaligned elements.

    A gpuinterop array holds every layout, on both devices, and keeps the read-only flag. If anything else
    forbids sharing, the core raises the error.
    """
    if info.dtype[:1] in ("<", ">"):
        conversion = f"a.astype('{name_of(numpy.dtype(info.dtype))}')"
        error = foreign_byte_order(where, info.dtype, conversion)
        return plan_from_error(error, "gpuinterop", where)
    plan = plan_layout(info, Rules("gpuinterop", where, _DTYPES, readonly=True))
    if plan.shared:
        rest = TYPE_CODES[info.device], info.index, where
        try:
            _core.check_borrowed(info.ptr, *_as_elements(info), *rest)
        except errors.ContiguityError as e:
            plan = copy_needed(
                "gpuinterop", where, info, errors.ContiguityError, e.expected, e.got,
                "make a copy: gpuinterop.asarray(x)", code="alignment", axis=e.axis,
            )  # fmt: skip
            _core.check_borrowed(info.ptr, *_as_bytes(info), *rest)
    return plan


def _as_elements(info: ArrayInfo) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    return info.shape, info.strides, as_supported_dtype(info.dtype)


def _as_bytes(info: ArrayInfo) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    # Strides or an address that are not multiples of the itemsize: add an axis for the bytes of an element.
    return (*info.shape, info.itemsize), (*info.strides, 1), _BYTE


def import_memory(obj: Any, info: ArrayInfo, plan: Plan, stream: int | None = None) -> Any:
    """Return an array over the memory of `obj`, or a copy of it, by the plan.

    The array sees the work that the library has queued on `stream`, and the memory is returned to the library
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
    copy: Any = source._copied(plan.where)
    shape, strides, dtype = _as_elements(info.copied())
    return _core.from_pointer(
        class_for(dtype), copy.ptr, shape, strides, dtype, code, info.index, copy, False,
        copy._stream or LEGACY, plan.where,
    )  # fmt: skip


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

"""What every converter checks, and how it carries its plan out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import registry
from gpuinterop.converters.plan import (
    ArrayInfo,
    Plan,
    Rules,
    c_strides,
    copy_or_refuse,
    plan_from_error,
    plan_layout,
    refuse,
)
from gpuinterop.dtypes import NAMES, as_supported_dtype
from gpuinterop.foreign_handles import CPU, CUDA
from gpuinterop.layout import core_view, is_array
from gpuinterop.ndarray import GpuArray, class_for
from gpuinterop.streams import as_stream

__all__ = [
    "CUDA",
    "Hold",
    "borrowed",
    "execute_import",
    "execute_export",
    "class_for",
    "copied",
    "dtype_name",
    "describe_array",
    "float32_only",
    "imported",
    "library_for",
    "plan_own",
    "not_one_of_theirs",
    "require_array",
    "require_float32",
    "require_foreign",
    "require_module",
    "stand_in",
    "stream_number",
    "with_memory",
    "with_need",
]

TYPE_CODES = {"cpu": CPU, "cuda": CUDA}
_DTYPES = frozenset(NAMES)
ANY_DEVICE = -1  # the driver knows where an address lies
LEGACY = 1  # CU_STREAM_LEGACY: where libraries without a notion of streams work


def require_array(x: Any, where: str) -> Any:
    """`x` when it is one of our arrays; the documents' ValueError otherwise.

    Inside a capture on "cpu" its memory has no values yet, and what other libraries do with it would
    not be replayed: a CaptureError.
    """
    if is_array(x):
        if not _core.traits(x) & _core.ON_CUDA:
            _core._require_values(where, x)
        return x
    raise errors.ConversionTypeError(
        where=where,
        expected="a CudaNdarray or GpuArray",
        got=f"{type(x).__module__}.{type(x).__qualname__}",
        fix="make one first with gpuinterop.from_any(x), or use gpuinterop.to(x, library)",
    )


def require_foreign(obj: Any, name: str, where: str, expected: str) -> None:
    """Refuse what is no array of the library `name`."""
    row = registry.find_backend(obj)
    if row is None or row.name != name:
        raise not_one_of_theirs(obj, where, expected)


def not_one_of_theirs(obj: Any, where: str, expected: str) -> errors.ConversionTypeError:
    """The error of ``from_<library>`` for the wrong kind of object."""
    return errors.ConversionTypeError(
        where=where,
        expected=expected,
        got=f"{type(obj).__module__}.{type(obj).__qualname__}",
        fix="use gpuinterop.from_any, which takes every known array",
    )


def float32_only(found: Any, where: str, fix: str) -> Any:
    """`found` when a CudaNdarray can be had of it; the documents' ValueError otherwise."""
    require_float32(core_view(found).dtype, where, fix)
    return found


def require_float32(dtype: Any, where: str, fix: str) -> None:
    """Refuse every other dtype, in the documents' name."""
    if dtype != numpy.float32:
        raise errors.DTypeError(
            where=where,
            expected="float32, the only dtype of CudaNdarray",
            got=f"dtype {dtype}",
            fix=fix,
        )


# ---- a library that is not there ----------------------------------------------------------------


def with_need(plan: Plan, name: str, package: str = "") -> Plan:
    """`plan`, or what becomes of it when the library is not installed: both needs are named."""
    row = registry.backend(name)
    if not row.package or registry.installed(package or row.package):
        return plan
    if plan.refused:
        command = registry.how_to_install(row, package)
        fix = f"{plan.fix}; and {package or row.package} is not installed: {command}"
        return replace(plan, fix=fix)
    return plan_from_error(
        registry.missing(row, plan.where, package=package), plan.library, plan.where
    )


def require_module(module: Any, name: str, where: str, library: str) -> None:
    """Refuse as option `module` what has not the class of the library; None stands for the installed one."""
    if module is not None and not hasattr(module, name):
        raise errors.ArgumentTypeError(
            where=where,
            expected=f"as module {library}, with its {name}",
            got=errors.short_repr(module),
            fix="leave module out for the one that is installed",
        )


def library_for(plan: Plan, name: str, module: str = "", package: str = "") -> Any:
    """The library that a plan is for, imported; raises what the plan refuses, or says what to install."""
    if plan.refused:
        raise with_need(plan, name, package).exception()
    return registry.load(name, plan.where, module)


def describe_array(x: Any) -> ArrayInfo:
    """One of our arrays, described. A description is returned as it is."""
    if isinstance(x, ArrayInfo):
        return x
    x = core_view(x)
    device = x.device
    dtype = x.dtype
    return ArrayInfo(
        x.shape,
        tuple(x.strides),
        dtype.name,
        dtype.itemsize,
        device.type,
        device.index or 0,
        x.ptr,
        bool(x.readonly),
    )


def dtype_name(dtype: Any) -> str:
    """NumPy's name of a dtype; with its byte order, ">f4", where that is not this machine's."""
    return dtype.name if dtype.isnative else dtype.str  # type: ignore[no-any-return]


def plan_own(facts: ArrayInfo, where: str, copyif: bool) -> Plan:
    """The part of every ``from_<lib>`` plan that depends on layout and dtype alone.

    An array of ours holds every layout, on both devices, and keeps the read-only flag.
    """
    if facts.dtype[:1] in ("<", ">"):
        return refuse(
            "gpuinterop", where, errors.DTypeError, "native byte order", f"dtype {facts.dtype}",
            f"convert the values in their own library first: a.astype('{facts.dtype[1:]}')",
        )  # fmt: skip
    plan = plan_layout(facts, Rules("gpuinterop", where, _DTYPES, readonly=True), copyif)
    if not plan.shared or facts.size == 0:
        return plan
    fault: tuple[int | None, str] | None = None
    for axis, (n, s) in enumerate(zip(facts.shape, facts.strides, strict=True)):
        if n > 1 and s % facts.itemsize:
            fault = (axis, f"stride {s} bytes on axis {axis}")
    if fault is None and facts.ptr % _core.alignment_of(
        as_supported_dtype(facts.dtype), TYPE_CODES[facts.device]
    ):
        fault = (None, f"address {facts.ptr:#x}")
    if fault is None:
        return plan
    where_axis, got = fault
    return copy_or_refuse(
        Rules("gpuinterop", where),
        facts,
        copyif,
        errors.ContiguityError,
        f"strides and address in whole elements of {facts.itemsize} bytes",
        got,
        "",
        code="alignment",
        axis=where_axis,
    )


def with_memory(plan: Plan, facts: ArrayInfo) -> Plan:
    """`plan`, or a refusal when the driver knows nothing of the memory that an array describes.

    For libraries whose arrays say where they lie by attributes, which nobody else has checked.
    """
    if plan.refused or facts.device != "cuda" or not facts.size:
        return plan
    shape, strides, dtype = facts.shape, facts.strides, as_supported_dtype(facts.dtype)
    if plan.copied:  # as `execute_import` reads it
        shape, strides, dtype = (*shape, facts.itemsize), (*strides, 1), _BYTE
    try:
        _core.check_borrowed(facts.ptr, shape, strides, dtype, CUDA, facts.index, plan.where)
    except errors.GpuInteropError as e:
        return plan_from_error(e, plan.library, plan.where)
    return plan


def execute_export(x: Any, plan: Plan) -> Any:
    """`x` itself when the plan shares, a C-contiguous copy when it copies; raises when it refuses."""
    if plan.outcome == "shared":
        return x
    if plan.outcome == "refused":
        raise plan.exception()
    return copied(x, plan.where)


def copied(x: Any, where: str, order: str = "C") -> Any:
    """A compact copy on the same device. The core tells the watchers, in the name of `where`."""
    seen = core_view(x)
    place = seen.device
    fresh = _core.empty(type(x), seen.shape, seen.dtype, place.type_code, place.index or 0, order)
    _core.copy_into(fresh, x, where=where)
    return fresh


def stand_in(facts: ArrayInfo) -> Any:
    """An array of zeros like the copy that a description tells of, for looking at alone."""
    dtype, code = as_supported_dtype(facts.dtype), TYPE_CODES[facts.device]
    made: Any = _core.empty(GpuArray, (facts.nbytes,), _BYTE, code, facts.index)
    if _core._recording() is None:  # a capture would fill it at each replay
        made.fill(0)
    return _core.borrow(
        class_for(dtype), made.ptr, facts.shape, c_strides(facts.shape, facts.itemsize), dtype,
        code, facts.index, made, False, made._stream or LEGACY, "explain",
    )  # fmt: skip


def borrowed(
    facts: ArrayInfo, base: Any, where: str, *, dtype: Any = None, stream: int = LEGACY
) -> Any:
    """An array over foreign memory that `base` keeps alive.

    The library is taken to work on `stream`: what it has queued there is visible to us, and it waits
    for our last use before the memory goes back to it.
    """
    dtype = as_supported_dtype(facts.dtype if dtype is None else dtype)
    return _core.borrow(
        class_for(dtype),
        facts.ptr,
        facts.shape,
        facts.strides,
        dtype,
        TYPE_CODES[facts.device],
        facts.index,
        base,
        facts.readonly,
        stream,
        where,
    )


def execute_import(
    plan: Plan, facts: ArrayInfo, base: Any, *, dtype: Any = None, stream: int = LEGACY
) -> Any:
    """The array over foreign memory that a plan promises, or the copy, or the refusal."""
    if plan.refused:
        raise plan.exception()
    if plan.shared:
        return borrowed(facts, base, plan.where, dtype=dtype, stream=stream)
    # Strides or an address between elements: as bytes, with an axis for the bytes of an element.
    dtype = as_supported_dtype(facts.dtype if dtype is None else dtype)
    code, shape = TYPE_CODES[facts.device], (*facts.shape, facts.itemsize)
    source: Any = _core.borrow(
        GpuArray, facts.ptr, shape, (*facts.strides, 1), _BYTE, code, facts.index, base, True,
        stream, plan.where,
    )  # fmt: skip
    fresh: Any = _core.empty(GpuArray, shape, _BYTE, code, facts.index)
    _core.copy_into(fresh, source, where=plan.where)
    strides = c_strides(facts.shape, facts.itemsize)
    return _core.borrow(
        class_for(dtype), fresh.ptr, facts.shape, strides, dtype, code, facts.index, fresh, False,
        fresh._stream or LEGACY, plan.where,
    )  # fmt: skip


_BYTE = numpy.dtype(numpy.uint8)


def stream_number(stream: Any) -> int:
    """The driver's handle of a stream that a caller named, by an object or by its handle; None is legacy."""
    if stream is None:
        return LEGACY
    plain = type(stream) is int and 0 <= stream < 1 << 64  # the driver is not asked for each launch
    return (stream if plain else as_stream(stream).handle) or LEGACY


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

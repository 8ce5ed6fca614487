"""Any library with an array-API namespace and DLPack (dpnp, array-api-strict, dask's chunks, ...)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import engine, registry
from gpuinterop.converters.foreign_layout import LEGACY, new_copy
from gpuinterop.converters.functions import check_options, option_names
from gpuinterop.converters.plan import (
    TYPE_CODES,
    ArrayInfo,
    Plan,
    c_strides,
    copy_needed,
    plan_from_error,
    refuse,
    share,
)
from gpuinterop.converters.suggested_fixes import cast_line, copy_line, fix_dtype
from gpuinterop.dtypes import as_supported_dtype
from gpuinterop.layout import core_view
from gpuinterop.ndarray import GpuArray, class_for
from gpuinterop.option_values import require_bool
from gpuinterop.overlap import byte_range

__all__ = ["plan_to", "to_array_api"]

ARRAY = "an array of a library with an array-API namespace"
STREAM = "the stream that its export waits for"

# Errors of a namespace that cannot take an array: the standard names BufferError, libraries differ.
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, AttributeError)

_EVERYWHERE = frozenset({"float32", "complex64"})  # the dtypes to cast to that any library may have

# Namespaces of libraries with a converter, which has rules that their from_dlpack does not report.
_OWN = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jax.numpy": "jax"}


def own_converter(xp: Any) -> str:
    """Return the library with a converter whose namespace, or array-api-compat's of it, `xp` is."""
    name = getattr(xp, "__name__", None)
    if not isinstance(name, str) or sys.modules.get(name) is not xp:
        return ""
    return _OWN.get(name.rpartition("array_api_compat.")[2], "")


def plan_to(
    info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False, xp: Any = None
) -> Plan:
    """Plan a conversion to a namespace by a trial, because only the namespace knows what it accepts.

    Sharing has no side effects. Whether it would accept a copy is tried with one of zeros.
    """
    array = info.owner
    try:
        array = array if issubclass(type(array), _core.Array) else _zeros_like(info)
    except errors.OutOfMemoryError as e:
        return plan_from_error(e, "array_api", "to_array_api")
    info = replace(ArrayInfo.of(array), library=info.library)
    return _attempt(array, info, allow_readonly, xp)[0]


def _zeros_like(info: ArrayInfo) -> Any:
    """Return an array of zeros with the layout of the copy that a description stands for."""
    dtype, code = as_supported_dtype(info.dtype), TYPE_CODES[info.device]
    made: Any = _core.empty(GpuArray, (info.nbytes,), "uint8", code, info.index)
    if _core._recording() is None:  # a capture would fill it at each replay
        made.fill(0)
    return _core.from_pointer(
        class_for(dtype), made.ptr, info.shape, c_strides(info.shape, info.itemsize), dtype,
        code, info.index, made, False, made._stream or LEGACY, "explain",
    )  # fmt: skip


def _no_namespace(xp: Any) -> Plan | None:
    if callable(getattr(xp, "from_dlpack", None)):
        return None
    named = isinstance(xp, str) and xp.isidentifier()
    return refuse(
        "array_api", "to_array_api", errors.ArgumentTypeError,
        "as xp the namespace to convert to, because many libraries share this converter: a module "
        "with from_dlpack",
        f"xp={errors.short_repr(xp)}",
        f"import {xp}, and pass the module: xp={xp}" if named
        else "pass it: to_array_api(x, xp=array_api_strict)",
    )  # fmt: skip


def _attempt(x: Any, info: ArrayInfo, allow_readonly: bool, xp: Any) -> tuple[Plan, Any]:
    """Return the plan for `x`, and the array that `xp` made of it if that can be the result."""
    where = "to_array_api"
    allow_readonly = require_bool(allow_readonly, "allow_readonly", where)
    fault = _no_namespace(xp)
    if fault is not None:
        return fault, None
    x = core_view(x)
    try:
        made = xp.from_dlpack(x)
    except errors.CaptureError as e:
        return plan_from_error(e, "array_api", where), None
    except _REFUSALS as e:
        refusal = str(e)
    else:
        plan = _compared(info, made, allow_readonly, _name_of(xp))
        return plan, None if plan.code == errors.ReadOnlyError.reason else made
    got = f"{info.text()}; it said: {refusal}"
    reason = f"an array that {_name_of(xp)}.from_dlpack takes"
    compact = _zeros_like(info)
    try:
        made = xp.from_dlpack(compact)
    except _REFUSALS:
        cast = fix_dtype(info.library, info.dtype, _EVERYWHERE - {info.dtype})
        fix = f"{cast}, or move the array to a device that the library has"
        return refuse("array_api", where, errors.ExportError, reason, got, fix), None
    again = _compared(ArrayInfo.of(compact), made, False, _name_of(xp))
    if again.refused:
        return again, None
    fix = f"make {copy_line(info.library)} once and reuse it"
    plan = copy_needed("array_api", where, info, errors.ExportError, reason, got, fix)
    return replace(plan, bytes=plan.bytes + again.bytes), None


def _name_of(xp: Any) -> str:
    return str(getattr(xp, "__name__", type(xp).__name__))


def _compared(info: ArrayInfo, made: Any, allow_readonly: bool, name: str) -> Plan:
    """Compare the array that a namespace made with its source: some copy, or narrow, silently."""
    library, where = "array_api", "to_array_api"
    if made is None:
        return refuse(
            library, where, errors.ExportError, f"an array from {name}.from_dlpack",
            "None", "pass as xp a namespace whose from_dlpack returns what it makes",
        )  # fmt: skip
    try:
        seen = ArrayInfo.of(_core.import_any(None, made))
    except errors.GpuInteropError as e:
        return copy_needed(
            library, where, info, errors.ExportError,
            f"an array that can be read, to check that {name} shares its memory", e.got, "",
        )  # fmt: skip
    if seen.shape != info.shape:
        return refuse(
            library, where, errors.ShapeError,
            f"a shape that {name} keeps; it makes {seen.shape} of {info.shape}", info.text(),
            "pass as xp a namespace whose from_dlpack leaves the axes as they are",
        )  # fmt: skip
    if seen.dtype != info.dtype:
        return refuse(
            library, where, errors.DTypeError,
            f"a dtype that {name} keeps; it would make {seen.dtype} of {info.dtype} silently",
            info.text(), f"convert the values yourself first: {cast_line(info.library, seen.dtype)}",
        )  # fmt: skip
    extents = zip(info.shape, info.strides, seen.strides, strict=True)
    moved = (seen.ptr, seen.where) != (info.ptr, info.where)
    if info.size and (moved or any(n > 1 and s != t for n, s, t in extents)):
        if seen.where == info.where and _overlap(info, seen):
            return refuse(
                library, where, errors.ExportError,
                f"elements that {name}.from_dlpack leaves in their places", info.text(),
                "pass as xp a namespace whose from_dlpack gives the array as it lies",
            )  # fmt: skip
        return copy_needed(
            library, where, info, errors.ExportError, f"an array that {name}.from_dlpack shares",
            f"{info.text()}, of which it makes a copy", "",
        )  # fmt: skip
    if info.size and info.readonly and not seen.readonly and not allow_readonly:
        return copy_needed(
            library, where, info, errors.ReadOnlyError,
            f"writable memory, because {name} drops the read-only flag and could write to it",
            f"read-only {info.text()}", "give allow_readonly=True if nothing writes to it there",
        )  # fmt: skip
    return share(library, where)


def _overlap(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Return whether two address ranges overlap: then one array is not a copy of the other."""
    a_low, a_high = byte_range(a.ptr, a.shape, a.strides, a.itemsize)
    b_low, b_high = byte_range(b.ptr, b.shape, b.strides, b.itemsize)
    return a_low < b_high and b_low < a_high


def to_array_api(
    x: Any, copyif: bool = False, *, xp: Any = None, allow_readonly: bool = False
) -> Any:
    """Return an array of the array-API namespace `xp` over the memory of `x`.

    Shares by ``xp.from_dlpack``, and compares the result: what `xp` cannot take, or would copy, narrow
    or make writable, is refused. With ``copyif=True`` its copy is accepted, or it gets a contiguous,
    writable one on the same device; nothing is ever narrowed. NumPy, torch, CuPy and ``jax.numpy`` are
    converted by the converters of these libraries.
    """
    where = "to_array_api"
    copyif = require_bool(copyif, "copyif", where)
    engine.require_array(x, where)
    name = own_converter(xp)
    if name:
        entry = registry.backend(name)
        options = {"allow_readonly": allow_readonly}
        options = check_options(option_names(entry, "to"), options, where)
        return engine.export_array(x, entry, copyif, options)
    plan, made = _attempt(x, ArrayInfo.of(x), allow_readonly, xp)
    plan = plan.permit(copyif)
    if plan.refused:
        raise plan.exception()
    if made is None:
        x = new_copy(x, where)
        made = xp.from_dlpack(x)
        plan = _compared(ArrayInfo.of(x), made, False, _name_of(xp))
        if plan.refused:
            raise plan.exception()
    if plan.copied:  # by the namespace itself, during the trial
        copy_tracking.report_copy(plan.crosses, plan.bytes, plan.where)
    return made

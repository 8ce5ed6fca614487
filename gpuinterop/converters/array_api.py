"""Any library with an array-API namespace and DLPack (dpnp, array-api-strict, dask's chunks, ...)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import core_view
from gpuinterop.exchange import engine, registry
from gpuinterop.exchange.plan import (
    TYPE_CODES,
    ArrayInfo,
    Plan,
    Rules,
    copy_needed,
    plan_layout,
    plan_out,
    refuse,
    share,
)
from gpuinterop.exchange.registry import NAMESPACES, Backend, import_package
from gpuinterop.exchange.suggested_fixes import cast_line, copy_line, fix_dtype

ARRAY = "an array of a library with an array-API namespace"
STREAM = "the stream that its export waits for"
EXAMPLE_SETUP = None  # no example, because the option needs an object of the library
TO_NOTE = """Shares by ``xp.from_dlpack``, and compares the result: an array that `xp` cannot accept, or would copy
or make writable, raises, or with ``copyif=True`` is copied first; no dtype is ever narrowed. For NumPy, torch, CuPy and
``jax.numpy`` the converters of these libraries are used."""

RULES = Rules("array_api", "to_array_api")
NAME_OPTIONS = {name: {"xp": name} for name in NAMESPACES}
PLANS_BY_TRIAL = True

# Errors of a namespace that cannot accept an array: the standard requires BufferError, libraries differ.
_REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, AttributeError)

# Dtypes that every library has, as targets of a cast.
_EVERYWHERE = frozenset({"float32", "complex64"})

# Namespaces of libraries with a converter, whose rules from_dlpack does not report.
_OWN = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jax.numpy": "jax"}


def _read_namespace(xp: Any) -> tuple[Any, Backend | None]:
    """Return a namespace, which may be given by name, and the entry if it has a converter of its own."""
    if isinstance(xp, str) and xp in NAMESPACES:
        xp = import_package(Backend(xp, xp, install=NAMESPACES[xp]), xp, RULES.where)
    name = getattr(xp, "__name__", None)
    if not isinstance(name, str) or sys.modules.get(name) is not xp:
        return xp, None
    own = _OWN.get(name.rpartition("array_api_compat.")[2], "")
    return xp, registry.backend(own) if own else None


def plan_to(
    info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False, xp: Any = None
) -> Plan:
    """Plan a conversion to a namespace by a trial, because a namespace does not report what it accepts.

    Sharing has no side effects. A copy that does not exist yet is tried with one element of its dtype.
    """
    xp, own = _read_namespace(xp)
    if own is not None:
        writable = {} if own.module.RULES.readonly else {"allow_readonly": allow_readonly}
        return plan_out(info, own, copyif, writable)
    if not callable(getattr(xp, "from_dlpack", None)):
        return refuse(
            "array_api", RULES.where, errors.ArgumentTypeError,
            "as xp the namespace to convert to, because many libraries share this converter: a module "
            "with from_dlpack",
            f"xp={errors.short_repr(xp)}", "pass the namespace: to_array_api(x, xp=array_api_strict)",
        )  # fmt: skip
    array: Any = info.owner
    if array is None:
        place = TYPE_CODES[info.device], info.index
        array = _core.empty(_core.Array, (1,) * len(info.shape), info.dtype, *place)
        array.fill(0)  # uninitialized values could overflow in a namespace that narrows
    plan, _ = _attempt(array, info, allow_readonly, xp)
    if plan.refused and plan.code == errors.ExportError.reason and not info.c_contiguous:
        # The namespace may accept a copy.
        again = plan_to(info.copied(), copyif, allow_readonly, xp)
        fix = f"make {copy_line(info.library)} once and reuse it"
        if not again.refused:
            where, error = RULES.where, errors.ExportError
            return copy_needed("array_api", where, info, error, plan.reason, plan.got, fix)
    # The namespace may copy again if gpuinterop makes a copy.
    return share("array_api", RULES.where) if plan.copied and info.owner is None else plan


def _attempt(x: Any, info: ArrayInfo, allow_readonly: bool, xp: Any) -> tuple[Plan, Any]:
    """Return the plan that follows from the namespace's conversion of `x`, described by `info`, and the array."""
    name = str(getattr(xp, "__name__", type(xp).__name__))
    try:
        result = xp.from_dlpack(core_view(x))
    except errors.CaptureError:
        raise
    except _REFUSALS as e:
        cast = fix_dtype(info.library, info.dtype, _EVERYWHERE - {info.dtype})
        return refuse(
            "array_api", RULES.where, errors.ExportError,
            f"an array that {name}.from_dlpack accepts", f"{info.text()}; its error: {e}",
            f"{cast}, or move the array to a device that the library has",
        ), None  # fmt: skip
    info = replace(ArrayInfo.of(x), library=info.library)
    return _compare(info, result, allow_readonly, name), result


def _compare(info: ArrayInfo, result: Any, allow_readonly: bool, name: str) -> Plan:
    """Compare the array that a namespace made with its source: some copy, or narrow, silently."""
    library, where = "array_api", RULES.where
    try:
        shared = ArrayInfo.of(_core.import_any(None, result))
    except errors.GpuInteropError as e:
        return refuse(
            library, where, errors.ExportError,
            f"an array that can be read, to check that {name} shares its memory", e.got,
            "pass as xp a namespace whose from_dlpack returns an array",
        )  # fmt: skip
    if (shared.shape, shared.dtype) != (info.shape, info.dtype):
        changed = f"it would make a {shared.dtype} array of shape {shared.shape} silently"
        narrows = shared.dtype != info.dtype
        return refuse(
            library, where, errors.DTypeError if narrows else errors.ShapeError,
            f"a dtype and a shape that {name} keeps; {changed}", info.text(),
            f"convert the values first: {cast_line(info.library, shared.dtype)}" if narrows
            else "pass as xp a namespace whose from_dlpack keeps the axes",
        )  # fmt: skip
    extents = zip(info.shape, info.strides, shared.strides, strict=True)
    moved = (shared.ptr, shared.device_name) != (info.ptr, info.device_name)
    if info.size and (moved or any(n > 1 and s != t for n, s, t in extents)):
        return copy_needed(
            library, where, info, errors.ExportError, f"an array that {name}.from_dlpack shares",
            f"{info.text()}, which it copies", "",
        )  # fmt: skip
    plan = plan_layout(info, replace(RULES, library=name, readonly=shared.readonly), allow_readonly)
    return replace(plan, library=library)


def export(x: Any, library: Any, allow_readonly: bool = False, xp: Any = None) -> Any:
    """Return the array that the namespace makes over the memory of `x`, if the plan still holds."""
    xp, own = _read_namespace(xp)
    if own is not None:
        writable = {} if own.module.RULES.readonly else {"allow_readonly": allow_readonly}
        return engine.convert(x, own, True, writable)
    plan, result = _attempt(x, ArrayInfo.of(x), True, xp)
    if plan.refused:
        raise plan.exception()
    return result

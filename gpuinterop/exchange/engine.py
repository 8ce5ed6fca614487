"""Plan conversions and carry the plans out: in (an object to a gpuinterop array) and out (to a library).

Every conversion, `explain` and `shares_memory` read the same two plans, and both are made before the first
copy. For a gpuinterop array the plan in is to share it.

The module of a library has the data `RULES` (what the library can hold), `ARRAY` and `STREAM` (words for
messages and docstrings), `FROM_DLPACK` (the name of the library's from_dlpack, without `export`), and as needed
`IMPORTS` (the module, if it is not the entry's package), `FROM_OPTIONS` (further keywords), `NAME_OPTIONS` (keywords
that one of the entry's names stands for), `TO_NOTE`, `FROM_NOTE` and `COPIES` (text of the docstrings, and what
`to_<library>` copies beyond what `RULES` say). For the core there are `FAMILY` (the classes whose ordinary objects it
imports) and `TABLE` (the class whose exchange table exports ordinary arrays, without a call of `export`);
`PLANS_BY_TRIAL` says that `plan_to` tries the array itself. A module has at most these functions:

- ``describe(obj)``: an `ArrayInfo`; by default the object is imported by its protocol and then described
- ``memory(obj)``: instead of `describe`, for GPU arrays without a protocol in C: (shape, strides in bytes or
  None for C order, dtype, address, device number or -1 if unknown, stream handle). After one conversion
  the core calls it for objects of that class, so ordinary ones need no plan
- ``judge(obj)``: a `Plan` if anything but the layout forbids sharing, else None
- ``adopt(obj, info, plan)``: the gpuinterop array; by default an array over the described memory
- ``export(x, library)``: the library's object, which keeps `x` alive; by default its from_dlpack is called
- ``stream_used_by(index, obj=None)``: the handle of the stream on which the library works, if the
  library does not order its work itself

`plan_to` replaces `RULES` if the rules depend on the library's state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.devices.foreign_handles import CUDA
from gpuinterop.errors.messages import dtype_of_class, out_is_no_array

from . import registry
from .foreign_memory import describe_memory, import_memory, plan_import
from .library_functions import (
    call,
    export_with,
    import_with,
    plan_by_own_function,
    remember_ordinary,
)
from .plan import (
    ArrayInfo,
    Incoming,
    Plan,
    copy_needed,
    plan_from_error,
    plan_layout,
    plan_out,
    refuse,
    share,
)
from .protocols import has_array_method, protocols_of
from .registry import Backend, import_library, unknown_object_error
from .suggested_fixes import cast_line

_NOTHING = _core.empty(_core.Array, (0,), "float32", 1, 0)  # an array on the host


# ---- in: an object to a gpuinterop array --------------------------------------------------------


def plan_in(obj: Any, copyif: bool, options: dict[str, Any], where: str = "") -> Incoming:
    """Plan to make `obj` a gpuinterop array."""
    own = _core.is_array(obj)
    entry = None if own else registry.find_backend(obj)
    where = where or ("from_any" if entry is None else f"from_{entry.name}")
    incoming = Incoming(obj, share("gpuinterop", where), entry, options=options)
    if entry is None and not own and has_array_method(obj):
        return _plan_by_array_method(incoming)
    try:
        if own:
            incoming.known_info, incoming.array = ArrayInfo.of(obj), obj
        elif entry is not None and entry.reader is not None:
            plan_by_own_function(incoming, copyif)
        elif entry is not None and _is_described(entry):
            _plan_described(incoming, entry)
        else:
            _plan_by_protocol(incoming)
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        incoming.plan = plan_from_error(e, "gpuinterop", where)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        incoming.plan = refuse(
            "gpuinterop", where, errors.ConversionTypeError,
            "an array with the attributes that its library gives it",
            f"{errors.type_name(obj)} ({type(e).__name__}: {e})",
            "pass an array that the library itself made",
        )  # fmt: skip
    return incoming


def _memory_of(entry: Backend) -> Any:
    return getattr(entry.module, "memory", None)


def _is_described(entry: Backend) -> bool:
    return hasattr(entry.module, "describe") or _memory_of(entry) is not None


def describe(obj: Any, entry: Backend, options: dict[str, Any]) -> ArrayInfo:
    """Describe `obj` by the converter's own function: `describe`, or `memory`, which the core can call."""
    if memory := _memory_of(entry):
        return describe_memory(memory(obj), entry.name)
    info: ArrayInfo = call(entry.module.describe, obj, options=options)
    return info


def _plan_described(incoming: Incoming, entry: Backend) -> None:
    obj, where = incoming.obj, incoming.plan.where
    fault = _judgement(obj, entry, where)
    if fault is not None and fault.refused:
        incoming.plan = fault
        return
    incoming.known_info = describe(obj, entry, incoming.options)
    incoming.plan = plan_import(incoming.known_info, where) if fault is None else fault


def _plan_by_protocol(incoming: Incoming) -> None:
    """Plan by a trial import in the core, which has no side effect except on a capsule."""
    obj, entry, where = incoming.obj, incoming.entry, incoming.plan.where
    try:
        if (array := _core._look_into(obj, where)) is not None:
            incoming.known_info = replace(ArrayInfo.of(array), library="unknown")
            incoming.plan = plan_import(incoming.known_info, where)
            return
        try:
            incoming.array = _core.import_any(None, obj, where=where)
        except errors.ContiguityError:  # a copy may avoid the error
            incoming.array = _core.import_any(None, obj, where=where, realign=None)
            incoming.plan = plan_import(incoming.info, where)
    except errors.GpuInteropError as e:
        fault = _judgement(obj, entry, where)
        if fault is not None:
            incoming.plan = fault
            return
        unknown = entry is None and isinstance(e, errors.ConversionTypeError)
        if unknown and not protocols_of(obj):
            raise unknown_object_error(obj, registry.names(), where) from None
        raise


def _plan_by_array_method(incoming: Incoming) -> Incoming:
    """Plan to share or copy the array that `__array__` returns."""
    obj, where = incoming.obj, incoming.plan.where
    host = reason = None
    for options in ({"copy": False}, {}):  # a method of the time before `copy` may always copy
        try:
            host = obj.__array__(**options)
            break
        except Exception as e:  # of another library
            reason = reason or f"{type(e).__name__}: {e}"
    if type(host) is not numpy.ndarray:
        incoming.plan = plan_from_error(
            unknown_object_error(obj, registry.names(), where), "gpuinterop", where
        )
        return incoming
    found = plan_in(host, True, {}, where)
    if reason and found.plan.shared:
        found.plan = copy_needed(
            "gpuinterop", where, found.info, errors.ContiguityError, "memory that __array__ shares",
            f"{errors.type_name(obj)} ({reason})",
        )  # fmt: skip
    return found


def _judge(obj: Any, entry: Backend | None) -> Plan | None:
    judge = None if entry is None else getattr(entry.module, "judge", None)
    return None if judge is None else judge(obj)


def _judgement(obj: Any, entry: Backend | None, where: str) -> Plan | None:
    fault = _judge(obj, entry)
    if fault is None or fault.where == where:
        return fault
    named = object.__new__(Plan)  # a seventh of the time of dataclasses.replace
    vars(named).update(vars(fault), where=where)
    return named


def refusal(obj: Any, where: str) -> errors.GpuInteropError | None:
    """Return the error that the library's converter has for `obj`, if any, with `where` as the call.

    The core calls this for every object that is not ordinary, and after an import by a protocol has failed.
    """
    entry = registry.find_backend(obj)
    fault = _judge(obj, entry)
    if fault is None and entry is not None and _is_described(entry):
        # Plan as if copies were allowed, because the caller may have no `copyif` that the fix could name.
        fault = plan_in(obj, True, {}, where).plan
    if fault is None or fault.shared:
        return None
    return fault.exception(where, fault.fix or "pass copy=True for a copy")


def refuse_out(out: Any, where: str) -> None:
    """Raise the error for an `out` that is not a gpuinterop array."""
    writable = isinstance(out, numpy.ndarray) and out.flags.writeable
    shares = writable and plan_in(out, False, {}, where).plan.shared
    fix = 'on "cpu" share its memory, out=gpuinterop.from_any(out), or omit out=' if shares else ""
    raise out_is_no_array(where, errors.type_name(out), fix=fix)


def adopt(incoming: Incoming) -> Any:
    """Return the gpuinterop array that the plan of `incoming` promises; copies are permitted."""
    obj, entry, array, plan = incoming.obj, incoming.entry, incoming.array, incoming.plan
    if entry is not None and entry.reader is not None:
        array = None if plan.copied else array
        return import_with(obj, entry, plan.copied, incoming.options) if array is None else array
    module = None if entry is None else entry.module
    own_adopt = getattr(module, "adopt", None)
    if own_adopt is not None:
        return own_adopt(obj, incoming.info, plan)
    stream_used_by, stream = getattr(module, "stream_used_by", None), None
    if stream_used_by is not None and incoming.info.device == "cuda":
        stream = call(stream_used_by, incoming.info.index, obj, options=incoming.options)
    if array is None and entry is not None:
        array = import_memory(obj, incoming.info, plan, stream)
        memory = _memory_of(entry)
        # The core imports the next ones of this class. An object of a subclass may report anything.
        if memory and plan.outcome == "shared" and registry.of_class(type(obj)) == (entry, True):
            _core._set_memory_reader(type(obj), memory)
        return array
    if array is None or plan.outcome == "copied":  # a capsule, or misaligned elements
        array = _core.import_any(None, obj, where=plan.where, realign=plan.copied)
    if stream is not None:
        _core.after_stream(array, stream, plan.where)
    return array


def plan_own(
    x: Any, copyif: bool, options: dict[str, Any], where: str = "", dtype: str | None = None
) -> tuple[Plan, Incoming]:
    """Plan to make `x` a gpuinterop array; with `dtype`, a CudaNdarray, which has only that dtype."""
    where = where or ("to_cudandarray" if dtype else "")
    if issubclass(type(x), _core.Array if dtype is None else _core.result_types()[0]):
        # It is returned unchanged, even if its layout is incomplete.
        plan = share("gpuinterop", where or "from_any")
        return plan, Incoming(x, plan, array=x)
    incoming = plan_in(x, copyif, options, where)
    plan = incoming.plan
    if plan.outcome != "refused" and dtype is not None and incoming.info.dtype != dtype:
        cast = cast_line(incoming.info.library, dtype)
        error = dtype_of_class(where, "CudaNdarray", dtype, incoming.info.dtype, cast)
        plan = plan_from_error(error, "gpuinterop", where)
    return plan.permit(copyif), incoming


def import_array(
    x: Any, copyif: bool, options: dict[str, Any], where: str = "", dtype: str | None = None
) -> Any:
    """Return a gpuinterop array over the memory of `x`, a copy if `copyif` allows it, or raise."""
    entry = None if dtype or _core.is_array(x) else registry.find_backend(x)
    if entry is not None and entry.reader is not None:
        return import_with(x, entry, copyif, options)
    plan, incoming = plan_own(x, copyif, options, where, dtype)
    if plan.refused:
        raise plan.exception()
    array = adopt(incoming)
    if dtype is None or issubclass(type(array), cls := _core.result_types()[0]):
        return array
    return _core.adopt(cls, array)


# ---- out: a gpuinterop array to a library's object ----------------------------------------------


def require_array(x: Any, where: str) -> None:
    """Raise for an object that is not a gpuinterop array, or that has no values yet.

    During a capture on "cpu" its memory has no values, and a replay would not repeat the work of other
    libraries.
    """
    if _core.is_array(x):
        if not _core.traits(x) & _core.ON_CUDA:
            _core._require_values(where, x)
        return
    raise errors.ConversionTypeError(
        where=where,
        expected="a CudaNdarray or GpuArray",
        got=errors.type_name(x),
        fix="convert it first with gpuinterop.from_any(x), or call gpuinterop.to(x, library)",
    )


def judge_caller(module: str) -> tuple[bool, bool, bool] | None:
    """Return whether the library of a module accepts gaps, and negative strides, and whether it reads later.

    None if the library is unknown.
    """
    entry = registry.owner_of(module)
    rules = None if entry is None else getattr(entry.module, "RULES", None)
    return None if rules is None else (rules.layout == "any", rules.negative, rules.reads_later)


def check_strides_for_caller(x: Any, where: str, module: str) -> None:
    """Raise if the library of a module cannot share memory with the strides of `x`; `where` is the call."""
    entry: Any = registry.owner_of(module)
    plan = plan_layout(ArrayInfo.of(x), replace(entry.module.RULES, dtypes=None, where=where), True)
    if plan.code == "strides":
        raise plan.exception()


def _export_by_dlpack(module: Any, where: str, x: Any, library: Any) -> Any:
    kind, index = x.__dlpack_device__()
    if kind == CUDA and hasattr(module, "stream_used_by"):  # else the library requests the order
        _core.hand_over(x, module.stream_used_by(index), where)
    function = library
    for name in module.FROM_DLPACK.split("."):
        function = getattr(function, name)
    return function(_core.writable_alias(x) if x.readonly else x)


# ---- both: the conversion of any object to any library ------------------------------------------


@dataclass
class Conversion:
    """The plans of ``to(x, library)``: in, out, and for the whole conversion."""

    plan: Plan
    incoming: Incoming
    second: Plan
    library: Any = None


def plan_conversion(
    x: Any, entry: Backend, copyif: bool, options: dict[str, Any], where: str = ""
) -> Conversion:
    """Plan ``to(x, entry.name, copyif, **options)`` before anything is copied."""
    incoming = plan_in(x, copyif, {}, where or f"to(x, {entry.name!r})")
    first, own = incoming.plan, incoming.array is x
    if first.outcome == "refused":
        return Conversion(first, incoming, first)
    info = incoming.info if first.outcome == "shared" else incoming.info.copied()
    if getattr(entry.module, "PLANS_BY_TRIAL", False) and first.outcome == "shared":
        info = info if _core.is_array(info.owner) else replace(info, owner=adopt(incoming))
    library = None
    try:
        second = plan_out(info, entry, copyif, options, where)
        if info.device == "cpu":
            _core._require_values(second.where, x if own else _NOTHING)
        if second.outcome == "shared" or second.outcome == "copied":
            library = import_library(entry, info.device, second.where)
    except (errors.CaptureError, errors.MissingLibraryError) as e:
        second = plan_from_error(e, entry.name, e.where)
    plan = second
    if first.outcome == "copied" and second.outcome in ("shared", "copied"):
        plan = replace(first, library=second.library)
        if not copyif:
            plan = first
        elif second.outcome == "copied":
            plan = replace(second, bytes=first.bytes + second.bytes)
    if plan.outcome == "copied":
        plan = plan.permit(copyif)
    return Conversion(plan, incoming, second, library)


def convert(x: Any, entry: Backend, copyif: bool, options: dict[str, Any], where: str = "") -> Any:
    """Return an object of the library over the memory of `x`, an array of any library, or over a copy; or raise."""
    rules = getattr(entry.module, "RULES", None)
    if rules is None and _core.is_array(x):
        return export_with(x, entry, copyif, options)
    planned = plan_conversion(x, entry, copyif, options, where)
    if planned.plan.outcome == "refused":
        raise planned.plan.exception()
    array = x if planned.incoming.array is x else adopt(planned.incoming)
    if rules is None:
        return export_with(array, entry, copyif, options)
    second, source = planned.second, array
    # `export` makes the other copies.
    if second.outcome == "copied" and second.crosses in ("host", "copy"):
        source = array._copied(second.where, second.order)
    export = getattr(entry.module, "export", None)
    export = export or partial(_export_by_dlpack, entry.module, second.where)
    if options:
        return call(export, source, planned.library, options=options)
    result = export(source, planned.library)
    if second.outcome == "shared":
        remember_ordinary(array, entry, planned.library, export)
    return result

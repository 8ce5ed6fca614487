"""Plan conversions and carry the plans out: in (an object to a gpuinterop array) and out (to a library).

Every conversion, `explain` and `shares_memory` read the same two plans. A conversion between two other
libraries is a plan in and a plan out, and both are made before the first copy.

The module of a library has data, `RULES` above all, and at most these functions. Each has a default for
libraries that implement DLPack well:

- ``describe(obj)``: an `ArrayInfo`; by default the object is imported by its protocol and described then
- ``memory(obj)``: in place of `describe`, for GPU arrays without a protocol in C: (shape, strides, dtype,
  address, device number or -1, stream). After one conversion the core calls it itself for objects of that
  class, so that ordinary ones are not planned
- ``judge(obj)``: a `Plan` if something other than the layout forbids sharing, else None
- ``adopt(obj, info, plan)``: the gpuinterop array; by default an array over the described memory
- ``export(x, library)``: the library's object over the memory of `x`; by default the library's from_dlpack
- ``stream_used_by(index, obj=None)``: the handle of the stream on which the library works, or None

`plan_to` and `plan_from` stand in place of `RULES` and of `describe` where these depend on the library's state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import registry
from gpuinterop.converters.availability import import_library, unknown_object_error, with_need
from gpuinterop.converters.foreign_layout import (
    import_memory,
    lookalike_error,
    new_copy,
    plan_import,
    refuse_unknown_memory,
)
from gpuinterop.converters.functions import (
    accepted_options,
    describe_foreign,
    export_with,
    import_with,
    plan_with,
    reader,
    remember_plain,
    require_type,
)
from gpuinterop.converters.library_streams import check_export, check_import
from gpuinterop.converters.plan import (
    ArrayInfo,
    Incoming,
    Plan,
    plan_from_error,
    plan_layout,
    refuse,
    share,
)
from gpuinterop.converters.registry import Backend
from gpuinterop.foreign_handles import CUDA, protocols_of
from gpuinterop.ndarray import CudaNdarray

__all__ = [
    "Conversion",
    "Incoming",
    "adopt",
    "convert",
    "export_array",
    "import_array",
    "plan_conversion",
    "plan_in",
    "plan_out",
    "plan_own",
    "refuse_foreign",
    "require_array",
]

_CAPSULE = type(_core.Array.__dlpack_c_exchange_api__)
_NOTHING = _core.empty(_core.Array, (0,), "float32", 1, 0)  # an array on the host


def _is_array(x: Any) -> bool:
    return issubclass(type(x), _core.Array)


# ---- in: an object to a gpuinterop array --------------------------------------------------------


def plan_in(obj: Any, copyif: bool, options: dict[str, Any], where: str = "") -> Incoming:
    """Plan to make `obj` a gpuinterop array."""
    if _is_array(obj):
        where = where or "from_any"
        try:
            return Incoming(obj, share("gpuinterop", where), None, ArrayInfo.of(obj), obj)
        except errors.BoundsError as e:  # an incomplete layout
            return Incoming(obj, plan_from_error(e, "gpuinterop", where))
    entry = registry.find_backend(obj)
    if entry is None:
        return _plan_by_protocol(obj, None, where or "from_any")
    where = where or f"from_{entry.name}"
    try:
        if reader(entry) is not None:
            return plan_with(obj, entry, copyif, options, where)
        if not (hasattr(entry.module, "describe") or hasattr(entry.module, "memory")):
            return _plan_by_protocol(obj, entry, where)
        return _plan_described(obj, entry, options, where)
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return Incoming(obj, plan_from_error(e, "gpuinterop", where), entry)
    except (AttributeError, KeyError, TypeError) as e:
        error = lookalike_error(obj, where, e)
        return Incoming(obj, plan_from_error(error, "gpuinterop", where), entry)


def _plan_by_protocol(obj: Any, entry: Backend | None, where: str) -> Incoming:
    """Let the core import the object, which has no side effect except on a capsule."""
    incoming = Incoming(obj, share("gpuinterop", where), entry)
    try:
        if type(obj) is _CAPSULE:
            seen: Any = _core._look_into(obj, where, True)
            incoming.seen = replace(ArrayInfo.of(seen), library="unknown")
            incoming.plan = plan_import(incoming.seen, where)
        else:
            try:
                incoming.array = _core.import_any(None, obj, where=where)
            except errors.ContiguityError:  # which a copy may repair
                incoming.array = _core.import_any(None, obj, where=where, realign=None)
                incoming.plan = plan_import(incoming.info, where)
    except errors.GpuInteropError as e:
        unknown = entry is None and isinstance(e, errors.ConversionTypeError)
        if unknown and not protocols_of(obj):
            e = unknown_object_error(obj, registry.names(), where)
        incoming.plan = _judgement(obj, entry, where) or plan_from_error(e, "gpuinterop", where)
    return incoming


def _judgement(obj: Any, entry: Backend | None, where: str) -> Plan | None:
    judge = None if entry is None else getattr(entry.module, "judge", None)
    fault = None if judge is None else judge(obj)
    return None if fault is None else replace(fault, where=where)


def refuse_foreign(obj: Any, where: str) -> None:
    """Raise the error that `judge` of the library's converter has for `obj`, in the name of `where`.

    Return None if the converter has no objection, or if `obj` belongs to no known library. The core calls
    this for every object that is not plain, and after an import by a protocol has failed.
    """
    # As if copies were allowed, because the caller may have no `copyif` that the fix could name.
    fault = _judgement(obj, registry.find_backend(obj), where)
    if fault is not None:
        raise replace(fault, fix=fault.fix or "pass copy=True for a copy").exception()


def _plan_described(obj: Any, entry: Backend, options: dict[str, Any], where: str) -> Incoming:
    fault = _judgement(obj, entry, where)
    if fault is not None and fault.refused:
        return Incoming(obj, fault, entry)
    info = describe_foreign(obj, entry, options)
    plan = plan_import(info, where)
    if fault is not None and not plan.refused:
        crosses = "host" if info.device == "cpu" else "copy"
        plan = replace(fault, bytes=info.nbytes, crosses=crosses)
    return Incoming(obj, refuse_unknown_memory(plan, info), entry, info, options=options)


def adopt(incoming: Incoming, plan: Plan) -> Any:
    """Return the gpuinterop array that `plan` promises, the permitted plan of `incoming`."""
    obj, entry, array, options = incoming.obj, incoming.entry, incoming.array, incoming.options
    if entry is None:
        if plan.shared and array is not None:
            return array
        return _core.import_any(None, obj, where=plan.where, realign=plan.copied)
    if reader(entry) is not None:
        return (
            array
            if plan.shared and array is not None
            else import_with(obj, entry, plan.copied, options)
        )
    own = getattr(entry.module, "adopt", None)
    if own is not None:
        return own(obj, incoming.info, plan)
    stream_used_by, stream = getattr(entry.module, "stream_used_by", None), None
    if stream_used_by is not None and incoming.info.device == "cuda":
        stream = stream_used_by(
            incoming.info.index, obj, **accepted_options(stream_used_by, options)
        )
    if array is None:
        made = import_memory(obj, incoming.info, plan, stream)
        memory = getattr(entry.module, "memory", None)
        # The core imports the next ones of this class. An object of a subclass may report anything.
        if memory and plan.outcome == "shared" and registry.names_class(entry, type(obj)):
            _core._set_memory_reader(type(obj), memory)
        return made
    if plan.copied:
        array = _core.import_any(None, obj, where=plan.where, realign=True)
    if stream is not None:
        _core.after_stream(array, stream, plan.where)
    return array


def import_array(obj: Any, copyif: bool, options: dict[str, Any], where: str = "") -> Any:
    """Return a gpuinterop array over the memory of `obj`, a copy if `copyif` allows it, or raise."""
    entry = registry.find_backend(obj)
    if entry is not None and reader(entry) is not None:
        try:
            return import_with(obj, entry, copyif, options)
        except (AttributeError, KeyError) as e:
            if isinstance(e, errors.GpuInteropError):
                raise
            raise lookalike_error(obj, where or "from_any", e) from e
    incoming = plan_in(obj, copyif, options, where)
    plan = incoming.plan.permit(copyif)
    if plan.refused:
        raise plan.exception()
    return adopt(incoming, plan)


# ---- out: a gpuinterop array to a library's object ----------------------------------------------


def require_array(x: Any, where: str) -> None:
    """Refuse an object that is not a gpuinterop array, or that has no values yet.

    During a capture on "cpu" its memory has no values, and what other libraries do with it would not be
    replayed.
    """
    if _is_array(x):
        if not _core.traits(x) & _core.ON_CUDA:
            _core._require_values(where, x)
        return
    raise errors.ConversionTypeError(
        where=where,
        expected="a CudaNdarray or GpuArray",
        got=f"{type(x).__module__}.{type(x).__qualname__}",
        fix="make one first with gpuinterop.from_any(x), or use gpuinterop.to(x, library)",
    )


def plan_out(
    info: ArrayInfo, entry: Backend, copyif: bool, options: dict[str, Any], where: str = ""
) -> Plan:
    """Plan to make an object of the library over the described memory, as if copies were allowed."""
    plan_to = getattr(entry.module, "plan_to", None)
    if plan_to is not None:
        made = plan_to(info, copyif, **(options and accepted_options(plan_to, options)))
        plan: Plan = made if isinstance(made, Plan) else require_type(made, Plan, entry, "plan_to")
    elif hasattr(entry.module, "RULES"):
        plan = plan_layout(info, entry.module.RULES, options.get("allow_readonly", False))
    else:
        name = entry.module.__name__
        refused = refuse(
            entry.name, f"to_{entry.name}", errors.ConversionTypeError, "a converter that can plan",
            f"{name}, which has no plan_to",
            "convert and see, or add plan_to(facts, copyif) to the converter",
        )  # fmt: skip
        plan = replace(refused, outcome="unknown")
    return replace(plan, where=where) if where else plan


def export_array(
    x: Any, entry: Backend, copyif: bool, options: dict[str, Any], where: str = ""
) -> Any:
    """Return the library's object over the memory of the gpuinterop array `x`, a copy, or raise."""
    rules = getattr(entry.module, "RULES", None)
    if rules is None:
        return export_with(x, entry, copyif, options)
    require_array(x, where or rules.where)
    info = ArrayInfo.of(x)
    plan = plan_out(info, entry, copyif, options, where).permit(copyif)
    library = options.get("module")
    if plan.outcome == "refused":
        raise (with_need(plan, entry, info.device) if library is None else plan).exception()
    if library is None:
        library = import_library(entry, info.device, plan.where)
    source = x if plan.outcome == "shared" else _copied(x, plan)
    made = _exported(source, entry, library, options, plan.where)
    if (
        plan.outcome == "shared" and not options and entry.name != "torch"
    ):  # its table needs no call
        own = getattr(entry.module, "export", None)
        remember_plain(
            x, entry, library, own or partial(_export_by_dlpack, entry.module, rules.where)
        )
    return made


def _copied(x: Any, plan: Plan) -> Any:
    if plan.outcome == "copied" and plan.crosses != "device_to_host":
        return new_copy(x, plan.where, plan.order)
    return x


def _exported(x: Any, entry: Backend, library: Any, options: dict[str, Any], where: str) -> Any:
    export = getattr(entry.module, "export", None)
    if export is not None:
        further = {name: value for name, value in options.items() if name != "module"}
        return export(x, library, **(further and accepted_options(export, further)))
    return _export_by_dlpack(entry.module, where, x, library)


def _export_by_dlpack(module: Any, where: str, x: Any, library: Any) -> Any:
    kind, index = x.__dlpack_device__()
    if kind == CUDA and getattr(module, "stream_used_by", None) is not None:
        order = _core.require_hand_over if module.ORDERS_STREAMS else _core.hand_over
        order(x, module.stream_used_by(index), where)
    function = library
    for name in module.FROM_DLPACK.split("."):
        function = getattr(function, name)
    return function(_core.writable_alias(x) if x.readonly else x)


# ---- both: the conversion of any object to any library ------------------------------------------


@dataclass
class Conversion:
    """The plans of ``to(x, library)``: in, out, and of the whole."""

    plan: Plan
    incoming: Incoming
    second: Plan
    library: Any = None


def plan_conversion(x: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Conversion:
    """Plan ``to(x, entry.name, copyif, **options)`` before anything is copied."""
    incoming = plan_in(x, copyif, {})
    first, own = incoming.plan, _is_array(x)
    if not own and (first.outcome == "shared" or copyif):
        first = check_import(first, incoming)
    if first.outcome == "refused":
        return Conversion(first, incoming, first)
    info = incoming.info.adopted() if first.outcome == "shared" else incoming.info.copied()
    if (
        entry.name == "array_api" and first.outcome == "shared"
    ):  # its plan is a trial with the array itself
        info = replace(info, owner=adopt(incoming, first))
    second, library = plan_out(info, entry, copyif, options), options.get("module")
    try:
        if info.device == "cpu" or own:
            require_array(x if own else _NOTHING, second.where)
        if library is None and second.outcome != "unknown":
            second = with_need(second, entry, info.device)
            if second.outcome != "refused":
                library = import_library(entry, info.device, second.where)
    except (errors.CaptureError, errors.MissingLibraryError) as e:
        second = plan_from_error(e, entry.name, second.where)
    if second.outcome == "shared" or copyif:
        second = check_export(second, info, x if own else None, entry, options)
    plan = second
    if not (
        second.outcome == "refused" or second.outcome == "unknown" or first.outcome == "shared"
    ):
        plan = replace(first, library=second.library)
        if not copyif:
            plan = first
        elif second.outcome == "copied":
            plan = replace(second, bytes=first.bytes + second.bytes)
    plan = plan if copyif else plan.permit(copyif)
    return Conversion(plan, incoming, second, library)


def convert(x: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Any:
    """Return an object of one library over the memory of `x`, which belongs to another library."""
    planned = plan_conversion(x, entry, copyif, options)
    plan, second = planned.plan, planned.second
    if plan.outcome == "refused":
        raise plan.exception()
    found = adopt(planned.incoming, planned.incoming.plan)
    if not hasattr(entry.module, "RULES"):
        return export_with(found, entry, copyif, options)
    return _exported(_copied(found, second), entry, planned.library, options, second.where)


def plan_own(
    x: Any, own: str, copyif: bool, options: dict[str, Any], where: str = ""
) -> tuple[Plan, Incoming]:
    """Plan to make `x` a gpuinterop array, by one of the names in `registry.OWN_NAMES`."""
    dtype = registry.OWN_NAMES[own]
    where = where or ("from_any" if dtype is None else "to_cudandarray")
    if issubclass(type(x), _core.Array if dtype is None else CudaNdarray):
        # It is returned as it is, whatever the state of its layout.
        return share("gpuinterop", where), Incoming(x, share("gpuinterop", where), array=x)
    incoming = plan_in(x, copyif, options, where if dtype is not None else "")
    plan = incoming.plan
    if plan.outcome == "shared" or copyif:
        plan = check_import(plan, incoming)
    if plan.outcome != "refused" and dtype is not None and incoming.info.dtype != dtype:
        plan = refuse(
            "gpuinterop", where, errors.DTypeError, f"{dtype}, the only dtype of CudaNdarray",
            f"dtype {incoming.info.dtype}",
            "cast first, or take a GpuArray with gpuinterop.from_any",
        )  # fmt: skip
    return plan.permit(copyif), incoming

"""Plan conversions and carry the plans out: in (an object to a gpuinterop array) and out (to a library).

Every conversion, `explain` and `shares_memory` read the same two plans. A conversion between two other
libraries is a plan in and a plan out, and both are made before the first copy.

The module of a library has data, `RULES` above all, and at most these functions. Each has a default for
libraries that implement DLPack well:

- ``describe(obj)``: an `ArrayInfo`; by default the object is imported by its protocol and described then
- ``judge(obj)``: a `Plan` if something other than the layout forbids sharing, else None
- ``adopt(obj, info, plan)``: the gpuinterop array; by default an array over the described memory
- ``export(x, library)``: the library's object over the memory of `x`; by default the library's from_dlpack
- ``stream_used_by(index, obj=None)``: the handle of the stream on which the library works, or None

`plan_to` and `plan_from` stand in place of `RULES` and of `describe` where these depend on the library's state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import registry
from gpuinterop.converters.availability import import_package, unknown_object_error, with_need
from gpuinterop.converters.foreign_layout import (
    import_memory,
    lookalike_error,
    new_copy,
    refuse_unknown_memory,
)
from gpuinterop.converters.functions import (
    accepted_options,
    check_options,
    export_with,
    generated,
    import_with,
    option_names,
    plain_library,
    reader,
    remember_plain,
    require_type,
    writer,
)
from gpuinterop.converters.library_streams import check_export, check_import
from gpuinterop.converters.plan import (
    ArrayInfo,
    Plan,
    c_strides,
    plan_from_error,
    plan_import,
    plan_layout,
    refuse,
    share,
)
from gpuinterop.converters.registry import Backend
from gpuinterop.foreign_handles import CUDA, protocols_of
from gpuinterop.ndarray import CudaNdarray
from gpuinterop.option_values import require_bool

__all__ = [
    "Conversion",
    "Incoming",
    "adopt",
    "convert",
    "describe",
    "export_array",
    "from_function",
    "import_array",
    "import_as_float32",
    "plan_conversion",
    "plan_in",
    "plan_out",
    "plan_own",
    "refuse_foreign",
    "require_array",
    "to_function",
]

_CAPSULE = type(_core.Array.__dlpack_c_exchange_api__)
_NOTHING = _core.empty(_core.Array, (0,), "float32", 1, 0)  # an array on the host


def _is_array(x: Any) -> bool:
    return issubclass(type(x), _core.Array)


# ---- in: an object to a gpuinterop array --------------------------------------------------------


@dataclass
class Incoming:
    """The plan to make a gpuinterop array of an object, as if copies were allowed."""

    obj: Any
    plan: Plan
    entry: Backend | None = None
    seen: ArrayInfo | None = None
    array: Any = None  # an array over the memory, if the plan had to make one to find out
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def info(self) -> ArrayInfo:
        """The description of the object's memory."""
        if self.seen is None:
            info = ArrayInfo.of(self.array)
            if not _is_array(self.obj):
                library = "unknown" if self.entry is None else self.entry.name
                info = replace(info, library=library)
            self.seen = info
        return self.seen


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
            return _plan_of_plugin(obj, entry, copyif, options, where)
        if entry.function("describe") is None:
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
            incoming.array = _core.import_any(None, obj, where=where)
    except errors.ContiguityError:
        incoming.array = _core.import_any(None, obj, where=where, realign=None)
        incoming.plan = plan_import(incoming.info, where)
    except errors.GpuInteropError as e:
        unknown = entry is None and isinstance(e, errors.ConversionTypeError)
        if unknown and not protocols_of(obj):
            e = unknown_object_error(obj, registry.names(), where)
        incoming.plan = _judgement(obj, entry, where) or plan_from_error(e, "gpuinterop", where)
    return incoming


def _judgement(obj: Any, entry: Backend | None, where: str) -> Plan | None:
    judge = None if entry is None else entry.function("judge")
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
    info = _describe(obj, entry, options)
    plan = plan_import(info, where)
    if fault is not None and not plan.refused:
        crosses = "host" if info.device == "cpu" else "copy"
        plan = replace(fault, bytes=info.nbytes, crosses=crosses)
    return Incoming(obj, refuse_unknown_memory(plan, info), entry, info, options=options)


def _describe(obj: Any, entry: Backend, options: dict[str, Any]) -> ArrayInfo:
    function = entry.module.describe
    made = function(obj, **accepted_options(function, options))
    info: ArrayInfo = require_type(made, ArrayInfo, entry, "describe")
    return replace(info, library=entry.name) if info.library == "gpuinterop" else info


def _plan_of_plugin(
    obj: Any, entry: Backend, copyif: bool, options: dict[str, Any], where: str
) -> Incoming:
    """Plan by `plan_from` of another package's converter, or by a trial if it has none."""
    plan_from = entry.function("plan_from")
    plan = None
    if plan_from is not None:
        made = plan_from(obj, copyif, **accepted_options(plan_from, options))
        plan = require_type(made, Plan, entry, "plan_from")
        if plan.refused:
            return Incoming(obj, plan, entry)
        if entry.function("describe") is not None:
            info = _describe(obj, entry, options)
            return Incoming(obj, plan, entry, info, options=options)
    with copy_tracking.isolated_copy_count() as counted:
        array = import_with(obj, entry, copyif if plan is None else plan.copied, options)
    found = plan or share("gpuinterop", where)
    incoming = Incoming(obj, found, entry, array=array, options=options)
    if plan is None and counted.bytes:
        incoming.plan = Plan(
            "gpuinterop", "copied", "memory that the converter can share", "", None, counted.bytes,
            "see what the converter shares", where,
            f"{type(obj).__module__}.{type(obj).__qualname__}",
            crosses="host" if incoming.info.device == "cpu" else "copy",
        )  # fmt: skip
    return incoming


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
    own = entry.function("adopt")
    if own is not None:
        return own(obj, incoming.info, plan)
    stream_used_by, stream = entry.function("stream_used_by"), None
    if stream_used_by is not None and incoming.info.device == "cuda":
        stream = stream_used_by(
            incoming.info.index, obj, **accepted_options(stream_used_by, options)
        )
    if array is None:
        return import_memory(obj, incoming.info, plan, stream)
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


def describe(obj: Any) -> tuple[ArrayInfo, Any]:
    """Return the description of any array, and what keeps its memory at that address."""
    entry = None if _is_array(obj) else registry.find_backend(obj)
    if entry is None or entry.function("describe") is None:
        incoming = plan_in(obj, False, {})
        if incoming.plan.refused:
            raise incoming.plan.exception()
        return incoming.info, obj if incoming.array is None else incoming.array
    try:  # an object that cannot be shared may have memory all the same
        return _describe(obj, entry, {}), obj
    except errors.GpuInteropError:
        raise
    except Exception as e:  # the library's own refusal: sparse, deleted, symbolic, ...
        plan = plan_in(obj, True, {}).plan
        if plan.refused:
            raise plan.exception() from e
        raise


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
    plan_to = entry.function("plan_to")
    if plan_to is not None:
        made = plan_to(info, copyif, **accepted_options(plan_to, options))
        plan: Plan = require_type(made, Plan, entry, "plan_to")
    elif writer(entry) is None:
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
    if writer(entry) is not None:
        return export_with(x, entry, copyif, options)
    rules = entry.module.RULES
    if not options and not where and _is_array(x):
        library = plain_library(x, entry)
        if library is not None:
            return _exported(x, entry, library, options, rules.where)
    require_array(x, where or rules.where)
    info = ArrayInfo.of(x)
    plan = plan_out(info, entry, copyif, options, where).permit(copyif)
    library = _library_for(plan, entry, info.device, options)
    made = _exported(_copied(x, plan), entry, library, options, plan.where)
    if plan.shared and not options:
        remember_plain(x, entry, library)
    return made


def _library_for(plan: Plan, entry: Backend, device: str, options: dict[str, Any]) -> Any:
    """Import the library that a plan is for; raise the plan's refusal, or what to install."""
    module = options.get("module")
    if plan.refused:
        raise (plan if module is not None else with_need(plan, entry, device)).exception()
    name = entry.module_for(device)
    return import_package(entry, name, plan.where) if module is None and name else module


def _copied(x: Any, plan: Plan) -> Any:
    if plan.copied and plan.crosses != "device_to_host":
        return new_copy(x, plan.where, plan.order)
    return x


def _exported(x: Any, entry: Backend, library: Any, options: dict[str, Any], where: str) -> Any:
    export = entry.function("export")
    if export is not None:
        further = {name: value for name, value in options.items() if name != "module"}
        return export(x, library, **accepted_options(export, further))
    module, (kind, index) = entry.module, x.__dlpack_device__()
    if kind == CUDA and entry.function("stream_used_by") is not None:
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
    first = incoming.plan
    if first.shared or copyif:
        first = check_import(first, incoming)
    if first.refused:
        return Conversion(first, incoming, first)
    info = _adopted(incoming.info) if first.shared else incoming.info.copied()
    if entry.name == "array_api" and first.shared:  # its plan is a trial with the array itself
        info = replace(info, owner=adopt(incoming, first))
    second, library = plan_out(info, entry, copyif, options), options.get("module")
    try:
        if info.device == "cpu" or _is_array(x):
            require_array(x if _is_array(x) else _NOTHING, second.where)
        if library is None and not second.unknown:
            second = with_need(second, entry, info.device)
            name = entry.module_for(info.device)
            if not second.refused and name:
                library = import_package(entry, name, second.where)
    except (errors.CaptureError, errors.MissingLibraryError) as e:
        second = plan_from_error(e, entry.name, second.where)
    if second.shared or copyif:
        second = check_export(second, info, x if _is_array(x) else None, entry, options)
    plan = second
    if not (second.refused or second.unknown or first.shared):
        plan = replace(first, library=second.library)
        if not copyif:
            plan = first
        elif second.copied:
            plan = replace(second, bytes=first.bytes + second.bytes)
    return Conversion(plan.permit(copyif), incoming, second, library)


def _adopted(info: ArrayInfo) -> ArrayInfo:
    """Describe the gpuinterop array: along axes of length 1 its strides are the contiguous ones."""
    if info.size == 0:
        lengths = tuple(max(n, 1) for n in info.shape)
        return replace(info, strides=c_strides(lengths, info.itemsize))
    strides, step = list(info.strides), info.itemsize
    for axis in reversed(range(len(strides))):
        if info.shape[axis] == 1:
            strides[axis] = step
        step = max(abs(strides[axis]) * info.shape[axis], info.itemsize)
    return replace(info, strides=tuple(strides))


def convert(x: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Any:
    """Return an object of one library over the memory of `x`, which belongs to another library."""
    planned = plan_conversion(x, entry, copyif, options)
    plan, second = planned.plan, planned.second
    if plan.refused:
        raise plan.exception()
    found = adopt(planned.incoming, planned.incoming.plan)
    if writer(entry) is not None:
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
    if plan.shared or copyif:
        plan = check_import(plan, incoming)
    if not plan.refused and dtype is not None and incoming.info.dtype != dtype:
        plan = refuse(
            "gpuinterop", where, errors.DTypeError, f"{dtype}, the only dtype of CudaNdarray",
            f"dtype {incoming.info.dtype}",
            "cast first, or take a GpuArray with gpuinterop.from_any",
        )  # fmt: skip
    return plan.permit(copyif), incoming


def import_as_float32(
    x: Any,
    copyif: Any,
    options: dict[str, Any],
    where: str = "to_cudandarray",
    fix: str = "",
    entry: Backend | None = None,
) -> Any:
    """Return a CudaNdarray over the memory of `x`: Theano's converters, which accept one library."""
    copyif = require_bool(copyif, "copyif", where)
    if entry is not None:
        _require_library(x, entry, where)
    plan, incoming = plan_own(x, "cudandarray", copyif, options, where)
    if plan.refused:
        raise (replace(plan, fix=fix) if fix and plan.code == "dtype" else plan).exception()
    found = adopt(incoming, plan)
    return found if issubclass(type(found), CudaNdarray) else _core.adopt(CudaNdarray, found)


def _require_library(obj: Any, entry: Backend, where: str) -> None:
    found = registry.find_backend(obj)
    if found is None or found.name != entry.name:
        raise errors.ConversionTypeError(
            where=where,
            expected=entry.module.ARRAY,
            got=f"{type(obj).__module__}.{type(obj).__qualname__}",
            fix="use gpuinterop.from_any, which accepts every known array",
        )


# ---- the generated functions --------------------------------------------------------------------


def to_function(entry: Backend, name: str = "", **defaults: Any) -> Any:
    """Return the function ``to_<library>`` of an entry, or one of another name and other defaults."""
    own = writer(entry)
    if own is not None:
        return own
    where = name or entry.module.RULES.where

    def call(x: Any, copyif: Any = False, **options: Any) -> Any:
        copyif = require_bool(copyif, "copyif", where)
        options = check_options(option_names(entry, "to"), {**defaults, **options}, where, False)
        return export_array(x, entry, copyif, options, name)

    return generated(call, entry, "to", name or f"to_{entry.name}", defaults)


def from_function(entry: Backend, name: str = "", **defaults: Any) -> Any:
    """Return the function ``from_<library>`` of an entry, or one of another name and other defaults."""
    own = reader(entry)
    if own is not None:
        return own
    where = name or f"from_{entry.name}"

    def call(obj: Any, copyif: Any = False, **options: Any) -> Any:
        copyif = require_bool(copyif, "copyif", where)
        options = check_options(option_names(entry, "from"), {**defaults, **options}, where, False)
        _require_library(obj, entry, where)
        return import_array(obj, copyif, options, where)

    return generated(call, entry, "from", where, defaults)

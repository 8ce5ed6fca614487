"""The functions ``to_<library>`` and ``from_<library>``: generated, or those of another package's converter.

Which options they accept, and what they must return, is checked here.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import registry
from gpuinterop.converters.foreign_layout import (
    device_of_address,
    dtype_name,
    read_dtype,
    read_layout,
)
from gpuinterop.converters.plan import ArrayInfo, Incoming, Plan, share
from gpuinterop.converters.registry import Backend
from gpuinterop.dtypes import NUMPY_NAMES
from gpuinterop.option_values import refuse_copy_keyword, require_bool

__all__ = [
    "accepted_options",
    "check_options",
    "describe_foreign",
    "export_with",
    "generated",
    "import_with",
    "option_names",
    "own_options",
    "plan_with",
    "reader",
    "remember_plain",
    "require_type",
    "resolve_options",
    "writer",
]

COMMON = "allow_readonly"  # the option that `to` accepts for every library


def reader(entry: Backend) -> Callable[..., Any] | None:
    """Return the converter's own function that imports arrays, None if the engine imports them."""
    found: Callable[..., Any] | None = getattr(entry.module, f"from_{entry.name}", None)
    return found or getattr(entry.module, "from_", None)


def writer(entry: Backend) -> Callable[..., Any] | None:
    """Return the converter's own function that exports arrays, None if the engine does, by `RULES`."""
    if getattr(entry.module, "RULES", None) is not None:
        return None
    found: Callable[..., Any] | None = getattr(entry.module, f"to_{entry.name}", None) or getattr(
        entry.module, "to", None
    )
    if found is not None:
        return found
    module = entry.module
    raise errors.ConversionTypeError(
        where=f"gpuinterop.converters ({entry.name})",
        expected=f"a converter module with to_{entry.name} or to",
        got=f"module {module.__name__}" if inspect.ismodule(module) else errors.short_repr(module),
        fix="define that function in the converter",
    )


def import_with(obj: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Any:
    """Import `obj` by the converter's own function, and check that it made a gpuinterop array."""
    function: Any = reader(entry)
    made = function(obj, copyif, **options)
    if issubclass(type(made), _core.Array):
        return made
    raise errors.ConversionTypeError(
        where=f"from_{entry.name}",
        expected=f"a CudaNdarray or GpuArray from the converter of {entry.name!r}",
        got=errors.short_repr(made)
        if made is None
        else f"an object of type {type(made).__module__}.{type(made).__qualname__}",
        fix="return the array that the converter makes, for example gpuinterop.from_dlpack(obj)",
    )


def export_with(x: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Any:
    """Export `x` by the converter's own function, and check that it made something."""
    function: Any = writer(entry)
    made = function(x, copyif, **options)
    if made is not None:
        return made
    raise errors.ConversionTypeError(
        where=f"to_{entry.name}",
        expected=f"an array of the library from the converter of {entry.name!r}",
        got="None",
        fix=f"return the array that the converter makes, for example {entry.name}.from_dlpack(x)",
    )


def require_type(made: Any, kind: type, entry: Backend, function: str) -> Any:
    """Return `made` if it has the type that the converter's function must return."""
    if isinstance(made, kind):
        return made
    raise errors.ArgumentTypeError(
        where=f"gpuinterop.converters ({entry.name})",
        expected=f"a gpuinterop.converters.plan.{kind.__name__} from {function}",
        got=errors.short_repr(made),
        fix=f"return one from {function}, or remove that function from the converter",
    )


def plan_with(
    obj: Any, entry: Backend, copyif: bool, options: dict[str, Any], where: str
) -> Incoming:
    """Plan an import by the converter's `plan_from`, or by a trial if it has none."""
    plan_from = getattr(entry.module, "plan_from", None)
    plan = None
    if plan_from is not None:
        made = plan_from(obj, copyif, **accepted_options(plan_from, options))
        plan = require_type(made, Plan, entry, "plan_from")
        if plan.refused:
            return Incoming(obj, plan, entry)
        if getattr(entry.module, "describe", None) is not None:
            info = describe_foreign(obj, entry, options)
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


def describe_foreign(obj: Any, entry: Backend, options: dict[str, Any]) -> ArrayInfo:
    """Describe `obj` by the converter's own function: `describe`, or `memory`, which the core can call."""
    where = f"from_{entry.name}"
    memory = getattr(entry.module, "memory", None)
    if memory is not None:
        lengths, steps, element, ptr, index, _ = memory(obj)
        dtype = read_dtype(element, where)
        shape, strides = read_layout(lengths, steps, dtype.itemsize, where)
        device, index = device_of_address(ptr) if index < 0 else ("cuda", index)
        return ArrayInfo(
            shape, strides, dtype_name(dtype), dtype.itemsize, device, index,
            0 if 0 in shape else ptr, library=entry.name,
        )  # fmt: skip
    function = entry.module.describe
    made = function(obj, **accepted_options(function, options))
    info: ArrayInfo = require_type(made, ArrayInfo, entry, "describe")
    return replace(info, library=entry.name) if info.library == "gpuinterop" else info


# ---- options ------------------------------------------------------------------------------------


def _keywords(function: Callable[..., Any]) -> list[str] | None:
    """Return the keywords of a converter's function after the array and `copyif`; None: any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return list(parameters)[2:]


def option_names(entry: Backend | None, direction: str) -> list[str] | None:
    """Return the options of a conversion "to" or "from" a library; None: any."""
    if entry is None:
        return []
    own = writer(entry) if direction == "to" else reader(entry)
    if own is not None:
        return _keywords(own)
    if direction == "from":
        return [*(getattr(entry.module, "FROM_OPTIONS", None) or {})]
    writable = [] if entry.module.RULES.readonly else [COMMON]
    return [*writable, *(getattr(entry.module, "TO_OPTIONS", None) or {})]


def check_options(
    known: list[str] | None, options: dict[str, Any], where: str, common: bool = True
) -> dict[str, Any]:
    """Return the options of a conversion, and refuse unknown ones.

    With `common`, ``allow_readonly`` is accepted, and dropped if the library has no use for it.
    """
    if not options or known is None:
        return options
    if COMMON in options and (common or COMMON in known):
        options = {**options, COMMON: require_bool(options[COMMON], COMMON, where)}
        if COMMON not in known:
            del options[COMMON]
    for name in options:
        if name not in known:
            refuse_copy_keyword({name: options[name]}, "copyif", where)
            raise _unknown_option(name, ["copyif", *known, *[COMMON] * common], where)
    return options


def _unknown_option(name: str, known: Iterable[str], where: str) -> errors.ArgumentTypeError:
    everything = dict.fromkeys(known)
    # Another word for "copy" must not suggest to share what is read-only.
    near = (
        ["copyif"] if "copy" in name.lower() else difflib.get_close_matches(name, list(everything))
    )
    return errors.ArgumentTypeError(
        where=where,
        expected=f"options among {', '.join(dict.fromkeys([*near, *everything]))}",
        got=f"{name}=...",
        fix=f"write {near[0]}=..., or omit it" if near else "pass one of these, or omit it",
    )


def accepted_options(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return those of the options that a function of a converter accepts."""
    if not options:
        return {}
    known = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return options
    return {name: value for name, value in options.items() if name in known}


def own_options(x: Any, own: str, options: dict[str, Any], where: str) -> dict[str, Any]:
    """Check the options of a conversion to a gpuinterop array."""
    entry = None if issubclass(type(x), _core.Array) else registry.find_backend(x)
    return check_options(
        option_names(entry if own != "cudandarray" else None, "from"), options, where
    )


def resolve_options(
    entry: Backend, library: str, options: dict[str, Any], where: str
) -> tuple[Backend, dict[str, Any]]:
    """Check the options of a conversion to a library; a namespace may have a converter of its own."""
    if entry.name == "array_api" and "xp" not in options:
        xp = registry.namespace(library, "to_array_api")
        options = options if xp is None else {**options, "xp": xp}
    options = check_options(option_names(entry, "to"), options, where)
    if entry.name == "array_api" and entry.module.own_converter(options.get("xp")):
        entry = registry.backend(entry.module.own_converter(options["xp"]))
        options = {name: value for name, value in options.items() if name != "xp"}
        options = check_options(option_names(entry, "to"), options, where)
    return entry, options


# ---- generated functions ------------------------------------------------------------------------

_LAYOUTS = {
    "any": "every layout",
    "c": "C-contiguous memory",
    "f": "F-contiguous memory",
    "forc": "C- and F-contiguous memory",
    "compact": "memory that is contiguous in some order of the axes",
}


def generated(
    call: Callable[..., Any], entry: Backend, direction: str, name: str, defaults: dict[str, Any]
) -> Any:
    """Give a generated function its name, signature and docstring; pickled by name, as functions are."""
    known = option_names(entry, direction) or []
    declared = getattr(entry.module, f"{direction.upper()}_OPTIONS", None) or {}
    values = {option: declared.get(option, False) for option in known}
    keywords = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=value)
        for option, value in {**values, **defaults}.items()
    ]
    array, copyif = list(inspect.signature(call).parameters.values())[:2]
    call.__name__ = call.__qualname__ = name
    call.__module__ = __package__
    call.__signature__ = inspect.Signature([array, copyif, *keywords])  # type: ignore[attr-defined]
    call.__doc__ = _doc_to(entry) if direction == "to" else _doc_from(entry)
    if direction == "to":
        return call if defaults else _core.exports(entry.name)(call)
    families = {"torch": _core.TORCH, "numpy": _core.NUMPY, "cupy": _core.CUPY}
    plain = families.get(entry.name) or getattr(entry.module, "memory", None)
    return call if plain is None else _core.imports(plain)(call)


def _doc_to(entry: Backend) -> str:
    module = entry.module
    rules = module.RULES
    shares = _LAYOUTS[rules.layout] + ("" if rules.negative else " without negative strides")
    if rules.alignment > 1:
        shares += f", aligned to {rules.alignment} bytes on the host"
    copies = [*getattr(module, "TO_COPIES", ())]
    copies += ["other layouts"] * (rules.layout != "any" or not rules.negative)
    copies += ["read-only memory"] * (not rules.readonly)
    text = f"Return {module.ARRAY} over the memory of `x`.\n\nShares {shares}."
    if copies:
        text += f" Copies {' and '.join(copies)}, with ``copyif=True``."
    if not rules.readonly:
        text += "\n``allow_readonly=True`` shares read-only memory if nothing writes to the result."
    text += f"\nThe dtype stays.\n{module.STREAM[0].upper()}{module.STREAM[1:]} waits for the work "
    text += (
        "that is queued on `x`.\nThe result keeps `x` alive. Writes on either side are visible on "
    )
    text += "the other.\n"
    return text + (f"\n{module.TO_NOTE}\n" if hasattr(module, "TO_NOTE") else "")


def _doc_from(entry: Backend) -> str:
    module = entry.module
    text = (
        f"Return a gpuinterop array over the memory of `obj`, {module.ARRAY}.\n\n"
        "Shares every layout. Copies, with ``copyif=True``, elements off their alignment.\n"
        f"The dtype stays.\nWork that is queued on {module.STREAM} is visible to the result.\n"
        "The result keeps `obj` alive. Writes on either side are visible on the other.\n"
    )
    return text + (f"\n{module.FROM_NOTE}\n" if hasattr(module, "FROM_NOTE") else "")


# ---- plain arrays -------------------------------------------------------------------------------


def remember_plain(x: Any, entry: Backend, library: Any, export: Callable[..., Any]) -> None:
    """Let the core export arrays on the kind of device that `x` is on, without a plan.

    A conversion that worked has shown that the library can be used there; the traits of an array show
    that its layout and dtype are shared.
    """
    rules = entry.module.RULES
    if rules.max_ndim < 64 or library is None or registry.backend(entry.name) is not entry:
        return
    known = rules.dtypes is None or rules.dtypes.issuperset(NUMPY_NAMES)
    wanted = _core.NUMPY_DTYPE if known else _core.IS_FLOAT32
    if rules.layout != "any":
        wanted |= _core.F_CONTIGUOUS if rules.layout == "f" else _core.C_CONTIGUOUS
    if rules.alignment > 1:
        wanted |= _core.ALIGNED64
    mask = wanted | _core.EMPTY
    mask |= 0 if rules.negative else _core.NEGATIVE
    mask |= 0 if rules.readonly else _core.READONLY
    on_cuda = bool(_core.traits(x) & _core.ON_CUDA)
    for name in (entry.name, *entry.aliases):
        _core._set_exporter(name, on_cuda, export, library, mask, wanted)

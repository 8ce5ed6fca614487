"""The functions ``to_<library>`` and ``from_<library>``: generated, or those of another package's converter.

This module checks their options and their results. The options of a conversion are the parameters, after the
first two, of the function that plans or executes it.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.errors.arguments import refuse_copy_keyword, require_bool

from . import registry
from .plan import LAYOUTS, ArrayInfo, Incoming, Plan, copy_needed
from .registry import Backend, require_type

COMMON = "allow_readonly"  # the option that exports to every library accept


def writer(entry: Backend) -> Callable[..., Any] | None:
    """Return the converter's own function that exports arrays, None if the engine does, by `RULES`."""
    if hasattr(entry.module, "RULES"):
        return None
    function: Callable[..., Any] | None = getattr(entry.module, f"to_{entry.name}", None)
    function = function or getattr(entry.module, "to", None)
    return require_type(function, object, "an array of the library", f"to_{entry.name}", entry)  # type: ignore[no-any-return]


def import_with(obj: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Any:
    """Import `obj` by the converter's own function, and check that it returns a gpuinterop array."""
    array = entry.reader(obj, copyif, **options)  # type: ignore[misc]
    return require_type(array, _core.Array, "a gpuinterop array", f"from_{entry.name}", entry)


def export_with(x: Any, entry: Backend, copyif: bool, options: dict[str, Any]) -> Any:
    """Export `x` by the converter's own function, and check that it does not return None."""
    result = writer(entry)(x, copyif, **options)  # type: ignore[misc]
    return require_type(result, object, "an array of the library", f"to_{entry.name}", entry)


def plan_by_own_function(incoming: Incoming, copyif: bool) -> None:
    """Plan an import by the converter's `plan_from` and `describe`, or by a trial without `describe`."""
    obj, entry, options, where = incoming.obj, incoming.entry, incoming.options, incoming.plan.where
    plan_from = getattr(entry.module, "plan_from", None)
    describe = getattr(entry.module, "describe", None)
    if plan_from is not None:
        result = call(plan_from, obj, copyif, options=options)
        incoming.plan = require_type(result, Plan, "a Plan", "plan_from", entry)
        if incoming.plan.refused:
            return
    if describe is not None:
        result = call(describe, obj, options=options)
        incoming.known_info = require_type(result, ArrayInfo, "an ArrayInfo", "describe", entry)
        return
    with copy_tracking.isolated_copy_count() as counted:
        incoming.array = import_with(obj, entry, copyif, options)
    if plan_from is None and counted.bytes:
        info, got = incoming.info, errors.type_name(obj)
        reason = "memory that the converter can share"
        plan = copy_needed("gpuinterop", where, info, errors.ContiguityError, reason, got)
        incoming.plan = replace(plan, bytes=counted.bytes)


# ---- options ------------------------------------------------------------------------------------


def call(function: Callable[..., Any], *arguments: Any, options: dict[str, Any]) -> Any:
    """Call a function of a converter with the options that are among its parameters."""
    if options:
        names = list(inspect.signature(function).parameters)[len(arguments) :]
        options = {name: value for name, value in options.items() if name in names}
    return function(*arguments, **options)


def _options_of(entry: Backend | None, direction: str) -> dict[str, Any]:
    """Return the options of a conversion "to" or "from" a library, with their defaults."""
    if entry is None:
        return {}
    function = entry.reader
    if direction == "to":
        function = writer(entry) or getattr(entry.module, "plan_to", None)
        if function is None:
            rules = getattr(entry.module, "RULES", None)
            return {} if rules is None or rules.readonly else {COMMON: False}
    if function is None:
        return getattr(entry.module, "FROM_OPTIONS", {})
    parameters = [*inspect.signature(function).parameters.values()][2:]
    return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}


def check_options(
    entry: Backend | None, direction: str, options: dict[str, Any], where: str, common: bool = True
) -> dict[str, Any]:
    """Return the options of a conversion, and raise for unknown ones.

    With `common`, ``allow_readonly`` is accepted, and dropped if the library does not need it.
    """
    if not options:
        return options
    names = [*_options_of(entry, direction)]
    accepted = {name: value for name, value in options.items() if name in names}
    if common and COMMON in options:
        allowed = require_bool(options[COMMON], COMMON, where)
        accepted |= {COMMON: allowed} if COMMON in names else {}
    for name in options:
        if name not in names and not (common and name == COMMON):
            refuse_copy_keyword({name: options[name]}, "copyif", where)
            raise _unknown_option(
                name, options[name], ["copyif", *names, *[COMMON] * common], where
            )
    return accepted


def _unknown_option(
    name: str, value: Any, names: list[str], where: str
) -> errors.ArgumentTypeError:
    # For a name like "copy", do not suggest allow_readonly, which shares read-only memory.
    near = ["copyif"] if "copy" in name.lower() else difflib.get_close_matches(name, names)
    fix = f"pass {near[0]}=..., or omit it" if near else "pass one of these, or omit it"
    if name in ("device", "dtype"):
        text = repr(value) if isinstance(value, str) else "..."
        fix = f"convert first: gpuinterop.asarray(x, {name}={text})"
    return errors.ArgumentTypeError(
        where=where,
        expected=f"options among {', '.join(dict.fromkeys([*near, *names]))}",
        got=f"{name}=...",
        fix=fix,
    )


# ---- generated functions ------------------------------------------------------------------------


def generated(
    function: Callable[..., Any],
    entry: Backend,
    direction: str,
    name: str,
    defaults: dict[str, Any],
) -> Any:
    """Give a generated function its name, signature and docstring; pickled by name, as functions are."""
    keywords = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=value)
        for option, value in {**_options_of(entry, direction), **defaults}.items()
    ]
    array, copyif = list(inspect.signature(function).parameters.values())[:2]
    function.__name__ = function.__qualname__ = name
    function.__module__ = "gpuinterop.converters"
    function.__signature__ = inspect.Signature([array, copyif, *keywords])  # type: ignore[attr-defined]
    function.__doc__ = (_doc_to(entry) if direction == "to" else _doc_from(entry)) + _example(
        entry, direction, name
    )
    if direction == "to":
        return function if defaults else _core.exports(entry.name)(function)
    family = getattr(entry.module, "FAMILY", None) or getattr(entry.module, "memory", None)
    return function if family is None else _core.imports(family)(function)


def _doc_to(entry: Backend) -> str:
    module = entry.module
    rules = module.RULES
    shares = LAYOUTS[rules.layout][0] + ("" if rules.negative else " without negative strides")
    if rules.alignment > 1:
        shares += f", aligned to {rules.alignment} bytes on the host"
    copies = ["other layouts"] * (rules.layout != "any" or not rules.negative)
    copies += ["read-only memory"] * (not rules.readonly)
    copies += getattr(module, "COPIES", [])
    text = f"Return {module.ARRAY} over the memory of `x`.\n\nShares {shares}."
    if copies:
        text += f" Copies {' and '.join(copies)}, with ``copyif=True``."
    if not rules.readonly:
        text += "\n``allow_readonly=True`` shares read-only memory if nothing writes to the result."
    stream = f"{module.STREAM[0].upper()}{module.STREAM[1:]}"
    text += (
        f"\nThe dtype is kept.\n{stream} waits for the work that is queued on `x`.\n"
        "The result keeps `x` alive. Writes on either side are visible on the other.\n"
    )
    return text + (f"\n{module.TO_NOTE}\n" if hasattr(module, "TO_NOTE") else "")


def _doc_from(entry: Backend) -> str:
    module = entry.module
    text = (
        f"Return a gpuinterop array over the memory of `obj`, {module.ARRAY}.\n\n"
        "Shares every layout. Copies, with ``copyif=True``, misaligned elements.\n"
        f"The dtype is kept.\nWork that is queued on {module.STREAM} is visible to the result.\n"
        "The result keeps `obj` alive. Writes on either side are visible on the other.\n"
    )
    return text + (f"\n{module.FROM_NOTE}\n" if hasattr(module, "FROM_NOTE") else "")


def _example(entry: Backend, direction: str, name: str) -> str:
    setup = getattr(entry.module, "EXAMPLE_SETUP", "")
    if setup is None:
        return ""
    device = "cpu" if "cpu" in entry.devices else "cuda:0"
    line = f"{name}(x)" if direction == "to" else f'{name}(gpuinterop.to(x, "{entry.name}"))'
    lines = [
        "import gpuinterop",
        f"from gpuinterop.converters import {name}",
        *([setup] if setup else []),
        f'x = gpuinterop.ones((4, 1), device="{device}")',
        f"y = {line}",
        "gpuinterop.shares_memory(x, y)",
    ]
    return "\n".join(["\nExamples\n--------", *(f">>> {line}" for line in lines), "True\n"])


# ---- ordinary arrays ----------------------------------------------------------------------------


def remember_ordinary(x: Any, entry: Backend, library: Any, export: Callable[..., Any]) -> None:
    """Register a function or a table with which the core exports arrays on the type of device of `x`, without a plan.

    The successful conversion has shown that the library can be used there; the traits of an array show
    that its layout and dtype can be shared.
    """
    rules = entry.module.RULES
    current = registry.entries.get(registry.canonical_names[entry.name.lower()])
    if rules.max_ndim < 64 or library is None or current is not entry:
        return
    has_all_dtypes = rules.dtypes is None or rules.dtypes.issuperset(NUMPY_NAMES)
    required = _core.NUMPY_DTYPE if has_all_dtypes else _core.IS_FLOAT32
    if rules.layout != "any":
        required |= _core.F_CONTIGUOUS if rules.layout == "f" else _core.C_CONTIGUOUS
    if rules.alignment > 1:
        required |= _core.ALIGNED64
    mask = required | _core.EMPTY
    mask |= 0 if rules.negative else _core.NEGATIVE
    mask |= 0 if rules.readonly else _core.READONLY
    on_cuda = bool(_core.traits(x) & _core.ON_CUDA)
    table = getattr(entry.module, "TABLE", None)
    maker, module = (export, library) if table is None else (getattr(library, table), None)
    for name in (entry.name, *entry.aliases):
        _core._set_exporter(name, on_cuda, maker, module, mask, required)


def read_target(
    x: Any, library: str, options: dict[str, Any], function: str
) -> tuple[Backend | None, str | None, dict[str, Any]]:
    """Read what `to` or `explain` is given: the entry, or None and the one dtype of a gpuinterop array; options."""
    where = f"{function}(x, {library!r})" if isinstance(library, str) else function  # type: ignore[redundant-expr]
    own = registry.own_name(library)
    if own is not None:
        foreign = own != "cudandarray" and not _core.is_array(x)
        source = registry.find_backend(x) if foreign else None
        return None, registry.OWN_NAMES[own], check_options(source, "from", options, where)
    entry = registry.backend(library, f"gpuinterop.{function}")
    entry.module  # noqa: B018 - imported first, so that the plan is not interrupted by it
    options = getattr(entry.module, "NAME_OPTIONS", {}).get(library.lower(), {}) | options
    if options:
        options = check_options(entry, "to", options, where)
    return entry, None, options

"""Readers of single arguments: boolean options, orders, ints, shapes."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from gpuinterop.errors import ArgumentTypeError, GpuInteropError, short_repr, type_name

from .messages import (
    not_a_bool,
    not_an_int,
    not_an_optional_bool,
    not_ints,
    not_one_of,
    wrong_order,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

# The permission to copy has two names (docs/understand/copies.md): `copy` is that of the array API and of NumPy,
# `copyif` that of all other functions.
COPY_KEYWORDS = {
    "copy": "write copy=True to copy, or copy=False to forbid a copy",
    "copyif": "write copyif=True to allow a copy",
}


def require_bool(value: Any, name: str, where: str) -> bool:
    """Return a bool, Python's or NumPy's; any other value, such as a device, raises."""
    if value is False or value is True:
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise not_a_bool(where, name, value)


def read_copy(copy: Any, where: str) -> bool | None:
    """Return `copy` as a bool or None."""
    if copy is None or isinstance(copy, (bool, np.bool_)):
        return None if copy is None else bool(copy)
    raise not_an_optional_bool(where, "copy", copy)


def refuse_copy_keyword(options: dict[str, Any], accepted: str, where: str) -> None:
    """Raise for `copy` in a function that accepts `copyif`, and for `copyif` in one that accepts `copy`."""
    for name in COPY_KEYWORDS:
        if name in options and name != accepted:
            raise ArgumentTypeError(
                where=where, expected=f"{accepted}= for permission to copy",
                got=f"{name}={short_repr(options[name])}", fix=COPY_KEYWORDS[accepted],
            )  # fmt: skip


def checks_arguments(copy_keyword: str = "") -> Callable[[_Function], _Function]:
    """Decorate a public function: a call that does not fit its signature raises an error that shows it.

    A function that takes `copy` or `copyif`, its `copy_keyword`, refuses the other one.
    """

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if copy_keyword:
                refuse_copy_keyword(options, copy_keyword, function.__name__)
            try:
                return function(*args, **options)
            except TypeError as error:
                if isinstance(error, GpuInteropError):
                    raise
                require_signature(function, args, options)
                raise

        return cast(_Function, call)

    return decorate


# What to write for the arguments of NumPy's functions of the same names.
_OTHER_ARGUMENTS = {
    "copy": "share memory: gpuinterop.asarray(value, copy=False)", "ndmin": "add axes: x[None]",
    "order": "copy to another order: x.copy('F')", "subok": "omit it",
}  # fmt: skip


def require_signature(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise for a call that does not fit the function's signature."""
    import difflib  # cost more than this module, and are rarely needed
    import inspect

    accepted = inspect.signature(function)
    try:
        accepted.bind(*args, **options)
    except TypeError as error:
        unknown = [name for name in options if name not in accepted.parameters]
        fix = "pass the arguments after * by name"
        if str(error).startswith("missing"):
            fix = f"pass {str(error).rpartition(': ')[2].strip(chr(39))}"
        elif unknown:
            near = difflib.get_close_matches(unknown[0], accepted.parameters, 1)
            fix = f"write {near[0]}=" if near else f"omit {unknown[0]}"
            fix = _OTHER_ARGUMENTS.get(unknown[0], fix)
        shown = [p.replace(annotation=p.empty) for p in accepted.parameters.values()]
        shown = [p for p in shown if p.name not in ("self", "cls")]
        bare = accepted.replace(parameters=shown, return_annotation=accepted.empty)
        name = function.__qualname__.removesuffix(".__new__").rpartition(".")[2]
        got = str(error).removeprefix("got ")
        raise ArgumentTypeError(where=name, expected=f"{name}{bare}", got=got, fix=fix) from None


def require_order(value: Any, orders: str, where: str) -> str:
    """Return one of NumPy's letters for an order of elements, those of `orders`."""
    if isinstance(value, str) and len(value) == 1 and value in orders:
        return value
    raise wrong_order(where, orders, value)


_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


def require_casting(value: Any, where: str) -> str:
    """Return one of NumPy's rules for casts; any other value raises."""
    if value not in _CASTINGS:
        raise not_one_of(where, "casting", _CASTINGS, value)
    return str(value)


def is_index(value: Any) -> bool:
    """Return whether `value` is one integer. Arrays have ``__index__`` too, but count as sequences."""
    return hasattr(type(value), "__index__") and getattr(value, "ndim", 0) == 0


def require_int(value: Any, name: str, where: str) -> int:
    """Return an int of Python or NumPy; a bool is none."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise not_an_int(where, name, value)
    return int(value.__index__())


def read_counts(values: Any, where: str, what: str) -> tuple[int, ...]:
    """Return ints given as one int or as a sequence."""
    if is_index(values):
        return (operator.index(values),)
    try:
        return tuple(operator.index(n) for n in values)
    except TypeError:
        raise not_ints(where, what, values) from None


def constant_key(value: Any) -> Any:
    """Return a key that is equal for constants of the same type and value: 0.0, -0.0, 0 and False all differ.

    Raises TypeError for values that cannot be hashed.
    """
    kind = type(value)
    if isinstance(value, tuple):
        return kind, *map(constant_key, value)
    if isinstance(value, frozenset):
        return kind, frozenset(map(constant_key, value))
    if isinstance(value, range):  # equal ranges can end differently
        return kind, value.start, value.stop, value.step
    if isinstance(value, slice):  # which is hashable from Python 3.12
        return kind, *map(constant_key, (value.start, value.stop, value.step))
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    # A subclass may hold more than its number, and may define its own equality.
    if isinstance(value, int):
        return kind, int.__index__(value), None if kind in (int, bool) else value
    if isinstance(value, float):
        return kind, struct.pack("d", value), None if kind is float else value
    if isinstance(value, complex):
        parts = struct.pack("2d", value.real, value.imag)
        return kind, parts, None if kind is complex else value
    try:
        hash(value)
    except ValueError as error:  # of a writable memoryview
        raise TypeError(str(error)) from None
    return kind, value


def argument_key(value: Any, where: str, kind: str) -> Any:
    """Return the key of an argument that a fused or captured function keeps as a constant."""
    try:
        return constant_key(value)
    except TypeError:
        raise ArgumentTypeError(
            where=where,
            expected=f"arrays, numbers and hashable constants as arguments of a {kind} function",
            got=type_name(value), fix="convert data first: gpuinterop.asarray(value)",
        ) from None  # fmt: skip

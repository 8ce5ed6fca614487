"""What a fused function mentions from outside: its traces hold as long as that stays the same.

Seen are the names of the function itself: cells of its closure and globals, whose values are arrays
(by identity: what an array holds is read anew anyway), numbers, text, None, or tuples of these, and
those of fused functions that it mentions. Names that it assigns to are its own affair.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError

__all__ = ["FIXED", "Outside", "fixed_or_identity", "is_fixed", "told_apart"]

FIXED = (bool, int, float, complex, str, np.generic, types.NoneType, tuple)
_ABSENT = object()
_Place = tuple[Any, str | None]  # a cell, or globals and a name among them


def told_apart(value: Any) -> Any:
    """A value of FIXED as part of a key: 0.0 equals -0.0 and a NaN nothing, but kernels differ in them.

    Never None, which stands for what is not fixed.
    """
    if isinstance(value, tuple):
        if not is_fixed(value):
            raise ArgumentTypeError(
                where="fuse", expected="numbers, text or None in a tuple that a fused function is given",
                got=f"a tuple of {', '.join(type(one).__name__ for one in value)}",
                fix="pass arrays as arguments of their own: fuse(lambda x, *rest: ...)",
            )  # fmt: skip
        return tuple((type(one), told_apart(one)) for one in value)
    plain = not isinstance(value, (float, complex, np.generic, types.NoneType))
    return value if plain else repr(value)


def is_fixed(value: Any) -> bool:
    """Whether a value is a constant of a trace."""
    return isinstance(value, FIXED) and (not isinstance(value, tuple) or all(map(is_fixed, value)))


def fixed_or_identity(value: Any) -> tuple[Any, Any]:
    """Equal for values that a trace cannot tell apart."""
    return type(value), told_apart(value) if is_fixed(value) else id(value)


class Outside:
    """The traces of a function, and what it mentioned when they were made."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._names: tuple[tuple[types.CellType, ...], tuple[str, ...]] | None = None
        # Where to look, what was there (which keeps it alive, so that no other takes its place), and
        # the traces made of it. One tuple, because threads replace it.
        self._current: tuple[list[_Place], list[Any], dict[Any, Any]] = ([], [], {})

    def traces(self) -> dict[Any, Any]:
        """Those that hold now: none after a name has been bound anew."""
        places, values, traces = self._current
        for place, value in zip(places, values, strict=True):
            if _read(*place) is not value:
                return self._renewed(places)
        return traces

    def watch(self) -> dict[Any, Any]:
        """Look for the names anew, because a trace is about to be made; return where it belongs."""
        return self._renewed(list(self._places(set())))

    def _renewed(self, places: list[_Place]) -> dict[Any, Any]:
        values = [_read(*place) for place in places]
        before, known, traces = self._current
        if _state(places, values) != _state(before, known):
            traces = {}
        self._current = places, values, traces
        return traces

    def _places(self, seen: set[int]) -> Iterator[_Place]:
        if id(self) in seen:
            return
        seen.add(id(self))
        if self._names is None:
            self._names = _mentioned(self._function)
        cells, names = self._names
        around = getattr(self._function, "__globals__", {})
        for place in (*((cell, None) for cell in cells), *((around, name) for name in names)):
            value = _read(*place)
            inner = getattr(value, "_outside", None) if callable(value) else None
            if isinstance(inner, Outside):
                yield from inner._places(seen)
            elif is_fixed(value) or isinstance(value, _core.Array):
                yield place


def _state(places: list[_Place], values: list[Any]) -> list[Any]:
    # By identity: cells are equal where what they hold is.
    return [
        (id(where), name, fixed_or_identity(value))
        for (where, name), value in zip(places, values, strict=True)
    ]


def _read(where: Any, name: str | None) -> Any:
    if name is not None:
        return where.get(name, _ABSENT)
    try:
        return where.cell_contents
    except ValueError:  # nothing is bound yet
        return _ABSENT


def _mentioned(function: Any) -> tuple[tuple[types.CellType, ...], tuple[str, ...]]:
    """The cells of a function, and the globals that it or a function inside of it reads."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return (), ()
    read: dict[str, None] = {}
    written: set[str] = set()
    for step in _steps(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read[step.argval] = None
        elif step.opname in ("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"):
            written.add(step.argval)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    return (
        tuple(cell for name, cell in cells if name not in written),
        tuple(name for name in read if name not in written),
    )


def _steps(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _steps(inner)

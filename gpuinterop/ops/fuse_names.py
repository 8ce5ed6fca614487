"""What a fused function mentions from outside: its traces hold as long as that stays the same.

Seen are the names of the function itself, cells of its closure and globals, and those of fused functions
that it mentions. Numbers, text, None, tuples of these and NumPy's 0-d arrays count by value, everything
else by identity: what an array holds is read anew anyway. Names that it assigns to are its own affair.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError

from .fuse_recent import Recent

__all__ = ["FIXED", "Outside", "fixed_or_identity", "is_fixed", "is_number_in_place", "told_apart"]

FIXED = (bool, int, float, complex, str, np.generic, types.NoneType, tuple)
_ABSENT = object()
# Their functions may ask for types and be given what stands for a number.
_KNOWING = ("gpuinterop", "numpy")
_Place = tuple[Any, str | None]  # a cell, or globals and a name among them
_contents, _get, _NOTHING = attrgetter("cell_contents"), dict.get, repeat(_ABSENT)


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


def is_number_in_place(value: Any) -> bool:
    """Whether a value is a number to a trace, and may become another one where it is."""
    # NumPy's constant `masked` is one, too, which lets nobody read its bytes.
    return isinstance(value, np.ndarray) and value.ndim == 0 and value is not np.ma.masked


def fixed_or_identity(value: Any) -> tuple[Any, ...]:
    """Equal for values that a trace cannot tell apart."""
    if is_number_in_place(value):
        return type(value), value.dtype, value.tobytes()
    return type(value), told_apart(value) if is_fixed(value) else id(value)


class _Seen:
    """The places to look at, and what was there, which it keeps alive: no other takes its place."""

    def __init__(self, places: list[_Place]) -> None:
        self.places = places
        self._cells = [where for where, name in places if name is None]
        named = [(where, name) for where, name in places if name is not None]
        self._around, self._names = [where for where, _ in named], [name for _, name in named]
        values = [_read(*place) for place in places]
        self._held = [v for v, (_, name) in zip(values, places, strict=True) if name is None]
        self._bound = [v for v, (_, name) in zip(values, places, strict=True) if name is not None]
        self._numbers = [(v, v.tobytes()) for v in values if is_number_in_place(v)]
        # None where what a name is bound to may become another number in its place.
        self.warm = (
            None
            if self._numbers
            else _core.WarmCalls(
                [
                    (where, name) if value is _ABSENT else (where, name, value)
                    for (where, name), value in zip(places, values, strict=True)
                ]
            )
        )
        # By identity: cells are equal where what they hold is.
        self.state = [
            (id(where), name, fixed_or_identity(value))
            for (where, name), value in zip(places, values, strict=True)
        ]

    def holds(self) -> bool:
        """Whether every name is bound to the object that it was bound to; asked by every call."""
        cells, names, numbers = self._cells, self._names, self._numbers
        try:
            return (
                (not cells or all(map(is_, map(_contents, cells), self._held)))
                and (
                    not names
                    or all(map(is_, map(_get, self._around, names, _NOTHING), self._bound))
                )
                and (not numbers or all(value.tobytes() == before for value, before in numbers))
            )
        except ValueError:  # a cell is empty
            return False


class Outside:
    """The traces of a function, and what it mentioned when they were made."""

    def __init__(self, function: Callable[..., Any]) -> None:
        while isinstance(function, functools.partial):
            function = function.func
        if isinstance(getattr(function, "_outside", None), Outside):
            function = function.__wrapped__  # type: ignore[attr-defined]
        self.function = function
        self.others: list[Outside] = []  # of fused methods that it calls
        self._names: tuple[tuple[types.CellType, ...], tuple[str, ...]] | None = None
        # One tuple, because threads replace it.
        self._current: tuple[_Seen, Recent] = (_Seen([]), Recent())
        self.warm = self._current[0].warm

    def traces(self) -> tuple[Recent, Any]:
        """Those that hold now, none after a name has been bound anew; and the calls that are warm then."""
        seen, traces = self._current
        return (traces, seen.warm) if seen.holds() else self._renewed(seen.places)

    def watch(self) -> Recent:
        """Look for the names anew, because a trace is about to be made; return where it belongs."""
        return self._renewed(list(self._places(set())))[0]

    def leaves_open(self) -> bool:
        """Whether numbers among the arguments may be open: what stands for one has another type."""
        met: set[int] = set()
        functions = [self.function, *(other.function for other in self.others)]
        return not any(_asks_for_types(function, met) for function in functions)

    def _renewed(self, places: list[_Place]) -> tuple[Recent, Any]:
        seen = _Seen(places)
        before, traces = self._current
        if seen.state != before.state:
            traces = Recent()
        self._current = seen, traces
        self.warm = seen.warm
        return traces, seen.warm

    def _places(self, met: set[int]) -> Iterator[_Place]:
        if id(self) in met:
            return
        met.add(id(self))
        if self._names is None:
            self._names = _mentioned(self.function)
        cells, names = self._names
        around = getattr(self.function, "__globals__", {})
        for place in (*((cell, None) for cell in cells), *((around, name) for name in names)):
            yield place
            value = _read(*place)
            inner = getattr(value, "_outside", None) if callable(value) else None
            if isinstance(inner, Outside):
                yield from inner._places(met)
        for other in self.others:
            yield from other._places(met)


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
        elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            written.add(step.argval)
    own = _assigned(code)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    return (
        tuple(cell for name, cell in cells if name not in own),
        tuple(name for name in read if name not in written),
    )


def _asks_for_types(function: Any, met: set[int]) -> bool:
    """Whether a function mentions `type`, or a plain function does that it names, and so on."""
    while isinstance(getattr(function, "_outside", None), Outside):
        function = function._outside.function
    root = (getattr(function, "__module__", None) or "").partition(".")[0]
    if not isinstance(function, types.FunctionType) or id(function) in met or root in _KNOWING:
        return False
    met.add(id(function))
    cells, names = _mentioned(function)
    places: list[_Place] = [
        *((c, None) for c in cells),
        *((function.__globals__, n) for n in names),
    ]
    return "type" in names or any(_asks_for_types(_read(*place), met) for place in places)


def _assigned(code: types.CodeType) -> set[str]:
    """The variables of functions around it that a function, or one inside of it, assigns to."""
    found = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("STORE_DEREF", "DELETE_DEREF")
    }
    for inner in _inside(code):
        found |= _assigned(inner)
    return found & set(code.co_freevars)  # the others are its own, whatever they are called outside


def _steps(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for inner in _inside(code):
        yield from _steps(inner)


def _inside(code: types.CodeType) -> list[types.CodeType]:
    return [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]

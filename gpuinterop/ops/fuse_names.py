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
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    return type(value), told_apart(value) if is_fixed(value) else id(value)


class Outside:
    """The traces of a function, and what it mentioned when they were made."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._names: tuple[tuple[types.CellType, ...], tuple[str, ...]] | None = None
        self._watched: tuple[tuple[Any, str | None], ...] = ()
        # What was read, the traces made of it, and the values, so that no other takes their place.
        self._current: tuple[list[Any], dict[Any, Any], list[Any]] = ([], {}, [])

    def traces(self) -> dict[Any, Any]:
        """Those that hold now: none after a name has been bound anew."""
        values = [_read(*place) for place in self._watched]
        state = [fixed_or_identity(value) for value in values]
        current = self._current
        if state != current[0]:
            current = self._current = (state, {}, values)
        return current[1]

    def watch(self) -> dict[Any, Any]:
        """Look for the names anew, because a trace is about to be made; return where it belongs."""
        self._watched = tuple(self._places(set()))
        return self.traces()

    def _places(self, seen: set[int]) -> Iterator[tuple[Any, str | None]]:
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
            elif (
                is_fixed(value)
                or isinstance(value, _core.Array)
                or (isinstance(value, np.ndarray) and value.ndim == 0)
            ):
                yield place


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

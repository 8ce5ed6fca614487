"""The built-in functions of Python 2, for translated programs: `map` returns a list, `sorted` accepts `cmp`."""

from __future__ import annotations

import abc
import builtins
import decimal
import functools
import importlib
import io
import itertools
import sys
from collections.abc import Callable
from typing import Any


class File(abc.ABC):  # noqa: B024 (the base of classes that are registered below)
    """Opens a file; files of every mode are instances."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Return what `open` returns."""
        return open(*arguments, **options)  # noqa: PTH123 (the file may be a number)


class Buffer(abc.ABC):  # noqa: B024
    """Returns a view of the bytes of an object."""

    def __new__(cls, obj: Any, offset: int = 0, size: int = -1) -> Any:
        """Return the bytes from an offset, all of them or `size`. A string is one byte a character."""
        view = memoryview(obj.encode("latin1") if isinstance(obj, str) else obj).cast("B")
        return view[offset:] if size < 0 else view[offset : offset + size]


File.register(io.IOBase)
Buffer.register(memoryview)


def compare(a: Any, b: Any) -> int:
    """Return -1, 0 or 1."""
    return int(a > b) - int(a < b)


def sort_key(cmp: Callable[[Any, Any], int] | None, key: Any) -> Any:
    """Return the key of Python 3 for the two functions that Python 2 accepts."""
    if cmp is None:
        return key
    compared = functools.cmp_to_key(cmp)
    return compared if key is None else lambda x: compared(key(x))


def _sorted(iterable: Any, cmp: Any = None, key: Any = None, reverse: bool = False) -> list[Any]:
    return sorted(iterable, key=sort_key(cmp, key), reverse=reverse)


def _map(function: Any, *iterables: Any) -> list[Any]:
    """Return the results as a list. None replaces missing elements, and the function that returns its arguments."""
    if len(iterables) == 1:
        return list(iterables[0]) if function is None else list(map(function, *iterables))
    rows = itertools.zip_longest(*iterables)
    return list(rows if function is None else itertools.starmap(function, rows))


def _filter(function: Any, x: Any) -> Any:
    """Return a list, or a string or tuple for one."""
    found = list(filter(function, x))
    return "".join(found) if isinstance(x, str) else tuple(found) if isinstance(x, tuple) else found


def _round(number: Any, digits: int = 0) -> float:
    """Round halves away from zero, and return a float."""
    x = float(number)
    whole = not abs(x) < 2**53  # also inf and nan
    if digits >= 0 and (whole or digits > 330):  # a float has no more digits
        return x
    with decimal.localcontext(decimal.Context(prec=800, rounding=decimal.ROUND_HALF_UP)):
        return float(decimal.Decimal(x).quantize(decimal.Decimal(1).scaleb(-digits)))


def _apply(function: Any, arguments: Any = (), options: Any = None) -> Any:
    return function(*arguments, **(options or {}))


def _input(prompt: str = "") -> Any:
    """Evaluate a line of the standard input in the caller's variables."""
    caller = sys._getframe(1)
    return eval(input(prompt), caller.f_globals, caller.f_locals)


# The names of a translated program that are not its own.
BUILTINS: dict[str, Any] = {
    **vars(builtins), "StandardError": Exception, "apply": _apply, "basestring": str, "buffer": Buffer, "cmp": compare,
    "file": File, "filter": _filter, "input": _input, "intern": sys.intern, "long": int, "map": _map,
    "range": lambda *limits: list(range(*limits)), "raw_input": input, "reduce": functools.reduce,
    "reload": importlib.reload, "round": _round, "sorted": _sorted, "unichr": chr, "unicode": str, "xrange": range,
    "zip": lambda *iterables: list(zip(*iterables, strict=False)),
}  # fmt: skip

"""Functions that decide the first call of a kind; the core makes the later ones without them.

Such a function returns its result, or `Steps`: what the call does, as calls of the core's own
functions on the arguments. On a GPU the core keeps them for calls of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import CO_VARARGS
from typing import Any, TypeVar

from gpuinterop import _core
from gpuinterop._core import Given, KeptCalls, Made, Steps

__all__ = ["Given", "KeptCalls", "Made", "Steps", "warm"]

F = TypeVar("F", bound=Callable[..., Any])


def warm(
    values: str = "", layouts: str = "", kept_in: str | None = None, always: Steps | None = None
) -> Callable[[F], F]:
    """Let the core make the warm calls of the function below.

    What the function looks at in its arguments, beside classes, dtypes and devices of arrays and the
    types of Python's numbers: `values` names the parameters whose values it looks at, `layouts` those
    of whose arrays it looks at shapes and strides. `kept_in` names the attribute of the first
    argument that holds what is kept, where steps are of that object. `always`: the steps of every
    call, of a function that looks at nothing.
    """

    def decorated(function: F) -> F:
        code = function.__code__
        named = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[: named + bool(code.co_flags & CO_VARARGS)]
        placed = code.co_varnames[: code.co_argcount]
        defaults = dict(zip(placed[::-1], (function.__defaults__ or ())[::-1], strict=False))
        defaults |= function.__kwdefaults__ or {}
        parameters = [
            (
                name,
                "v" if name in values.split() else "l" if name in layouts.split() else "o",
                *([defaults[name]] if name in defaults else []),
            )
            for name in names
        ]
        made: Any = _core._warm_function(
            function, parameters, code.co_argcount, len(names) > named, kept_in, always
        )
        update_wrapper(made, function)
        return made  # type: ignore[no-any-return]

    return decorated

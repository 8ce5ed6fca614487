"""The functions of the standard that NumPy has, for `GpuArray` operands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.borrowed.borrow import borrow
from gpuinterop.elementwise.results import plain
from gpuinterop.errors import DTypeError, type_name
from gpuinterop.errors.messages import not_an_array

# Their first argument holds the arrays.
_OF_SEQUENCES = "block column_stack concat concatenate dstack hstack select stack vstack".split()


def wide(value: Any) -> Any:
    """Return an argument with each CudaNdarray in it as a GpuArray."""
    if type(value) in (list, tuple):
        return type(value)(map(wide, value))
    return plain(value) if isinstance(value, _core.Array) else value


def look_up(module: dict[str, Any], namespace: Any, name: str) -> Callable[..., Any]:
    """Return NumPy's function of arrays of this name, and set it in a module of the standard."""
    if not isinstance(getattr(namespace, name, None), (np.ufunc, type(np.sum))):
        raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
    module[name] = found = of_numpy(namespace, name)
    return found


def of_numpy(namespace: Any, name: str) -> Callable[..., Any]:
    """Return NumPy's function for gpuinterop arrays, which compute it, or borrow it, on their device."""
    function = getattr(namespace, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tuple(map(wide, args)), {key: wide(x) for key, x in kwargs.items()}
        given = args[0] if name in _OF_SEQUENCES and args else (*args, *kwargs.values())
        if not any(isinstance(x, _core.Array) for x in given):
            raise not_an_array(
                f"array_api.{name}", "an operand", type_name(args[0] if args else None)
            )
        try:
            return function(*args, **kwargs)
        except DTypeError:  # gpuinterop computes acos and some others for real numbers only
            if not (args and isinstance(args[0], _core.Array) and args[0].dtype.kind == "c"):
                raise
        return borrow(f"{namespace.__name__}.{name}", function, args[0], args, kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = (
        f"gpuinterop.array_api{namespace.__name__.removeprefix('numpy')}"  # pickle reads it
    )
    with suppress(ValueError):  # ufuncs have no signature before NumPy 2.4
        call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    call.__doc__ = f"Compute `{namespace.__name__}.{name}` on the device of the operands; the standard describes it."
    return _core.numpy_function(function, widens=True)(call)

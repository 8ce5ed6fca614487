"""Methods of the arrays that are written in Python, and NumPy's two protocols for functions.

The core's type calls these by name: `x.astype(...)` is `methods.astype(x, ...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError

from . import functions
from .catalog import ALIASES, ROWS
from .functions import astype, clip, round
from .gather import take
from .runtime import FUNCTIONS

__all__ = [
    "NUMPY_FUNCTIONS", "UFUNC_METHODS", "__array_function__", "__array_ufunc__", "astype", "clip",
    "conj", "exp", "matmul", "round", "take",
]  # fmt: skip

UFUNCS: dict[Any, Any] = {
    row.numpy: FUNCTIONS[row.name]
    for row in ROWS
    if isinstance(row.numpy, np.ufunc) and row.name != "cast"
}
UFUNCS |= {
    getattr(np, alias): FUNCTIONS[name]
    for alias, name in ALIASES.items()
    if isinstance(getattr(np, alias, None), np.ufunc)
}


def _clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None,
    max: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    if dtype is not None:
        a = a.astype(dtype, copy=False)
    return clip(a, a_min if min is None else min, a_max if max is None else max, out)


# numpy.where(x, ...) -> ours. Other files of this folder add their own rows.
NUMPY_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.clip: _clip,
    np.where: functions.where,
    np.round: functions.round,
    np.take: take,
}
# numpy.add.reduce(x) -> ours, by (ufunc, method).
UFUNC_METHODS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {}


def _register_neighbours() -> None:
    # The reductions, BLAS and joining bring rows of their own.
    import_module(f"{__package__}.reducing")


def __array_ufunc__(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Compute `ufunc` on arrays of this library; NotImplemented when there is no such operation."""
    outs = kwargs.get("out")
    name = ufunc.__name__ + ("" if method == "__call__" else f".{method}")
    ours = all(_is_known(type(x)) for x in (*inputs, *(outs or ())))
    if outs is not None and any(o is not None and not isinstance(o, _core.Array) for o in outs):
        if not ours:
            return NotImplemented
        raise ArgumentTypeError(
            where=f"numpy.{name}",
            expected="an array of this library as out, where an operand is one",
            got="a NumPy array as out",
            fix=f"copy the result: out[...] = numpy.{name}(...).get()",
        )
    if ufunc is np.matmul and method == "__call__":
        found: Any = matmul
    elif method == "__call__":
        found = UFUNCS.get(ufunc)
    else:
        _register_neighbours()
        found = UFUNC_METHODS.get((ufunc, method))
    if found is None:
        if not ours:
            return NotImplemented
        raise _missing(f"numpy.{name}", self)
    if outs is not None:
        kwargs["out"] = outs[0] if len(outs) == 1 else outs
    return found(*inputs, **kwargs)


def __array_function__(
    self: Any, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Compute a NumPy function on arrays of this library."""
    found = NUMPY_FUNCTIONS.get(func)
    if found is None:
        _register_neighbours()
        found = NUMPY_FUNCTIONS.get(func)
    if found is not None:
        return found(*args, **kwargs)
    # Functions of shape alone (numpy.ndim, numpy.shape) and those that only need __array__.
    plain = getattr(func, "_implementation", None)
    if func in (np.shape, np.ndim, np.size) and plain is not None:
        return plain(*args, **kwargs)
    if all(issubclass(t, (_core.Array, np.ndarray)) for t in types):
        raise _missing(f"{func.__module__}.{func.__name__}", self)
    return NotImplemented


def _is_known(cls: type) -> bool:
    """Whether objects of this class leave the answer to us: another library's may have one."""
    return (
        issubclass(cls, (_core.Array, np.ndarray))
        or not hasattr(cls, "__array_ufunc__")
        or issubclass(cls, np.generic)
    )


def _missing(name: str, x: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        where=name,
        expected="a function that this library computes itself",
        got=f"{name} of a {type(x).__name__} on {x.device}",
        fix=f"download first: {name}(x.get())",
    )


def exp(self: Any) -> Any:
    """The documents' method: a new C-ordered array."""
    return FUNCTIONS["exp"](self)


def conj(self: Any) -> Any:
    """The complex conjugate of every element."""
    return FUNCTIONS["conjugate"](self)


def matmul(x: Any, y: Any, /, **kwargs: Any) -> Any:
    """The matrix product, from the BLAS file of this folder."""
    return import_module(f"{__package__}.blas").matmul(x, y, **kwargs)

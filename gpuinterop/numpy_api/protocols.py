"""Methods of the arrays that are written in Python, and NumPy's two protocols for functions.

The core's type calls these through its hook `call`: `x.astype(...)` is `astype(x, ...)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.numpy_views import read_by_numpy
from gpuinterop.borrowed.borrow import borrow
from gpuinterop.elementwise.calls import CALLS, FUNCTIONS
from gpuinterop.elementwise.functions import cast_operands
from gpuinterop.elementwise.table import ALIASES, ROWS
from gpuinterop.errors import ArgumentTypeError, GpuInteropError
from gpuinterop.errors.messages import refused_by_numpy
from gpuinterop.index.take_put import compress, nonzero, put, repeat

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


# numpy.where -> the function for gpuinterop arrays; filled by the first call, because conversions and
# operators do not need the module.
_NUMPY_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any] | None] = {}
# With like= of an array on a GPU they upload; on "cpu" NumPy computes them.
_READERS = {np.array, np.asarray, np.asanyarray}


def __array_ufunc__(
    self: Any, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any
) -> Any:
    """Compute `ufunc` on gpuinterop arrays; NotImplemented if another operand may, and gpuinterop cannot."""
    outs = out
    for out in outs or ():
        if out is None or isinstance(out, _core.Array):
            continue
        if not _all_known(inputs, outs):
            return NotImplemented
        if inputs and inputs[0] is out:
            raise _refuse_in_place(_path(ufunc, method), self)
    if ufunc is np.matmul and method == "__call__":
        function: Any = import_module("gpuinterop.product.functions").matmul
        if kwargs.get("dtype") is not None:
            casting = kwargs.pop("casting", "same_kind")
            inputs = tuple(cast_operands("numpy.matmul", inputs, kwargs.pop("dtype"), casting))
    elif method == "__call__" and kwargs.get("where", True) is not True and outs is not None:
        function = None  # gpuinterop's elementwise functions compute all elements
    elif method == "__call__":
        function = UFUNCS.get(ufunc) or ufunc_method(ufunc, method)
    elif method == "outer" and len(inputs) == 2 and ufunc in UFUNCS:
        return _outer(UFUNCS[ufunc], *inputs, out=outs, **kwargs)
    else:
        function = ufunc_method(ufunc, method)
    if outs is not None:
        kwargs["out"] = outs[0] if len(outs) == 1 else outs
    if function is None:
        if not _all_known(inputs, outs):
            return NotImplemented
        call = getattr(ufunc, method)
        return borrow(_path(ufunc, method), call, self, inputs, kwargs, reads=method != "at")
    try:
        return function(*inputs, **kwargs)
    except TypeError:
        if _all_known(inputs, outs):
            raise
        return NotImplemented


def _path(ufunc: np.ufunc, method: str) -> str:
    """Return the name under which programs call a ufunc: its own, in the public part of the compiled module's."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    loaded: list[tuple[str, Any]] = list(sys.modules.items())  # a program may put any object there
    for home, module in loaded:
        # Not by getattr, which would import a module that its package loads on first use.
        names = (
            object.__getattribute__(module, "__dict__") if isinstance(module, ModuleType) else {}
        )
        compiled = isinstance(names.get("__loader__"), ExtensionFileLoader)
        if compiled and names.get(ufunc.__name__) is ufunc:
            return f"{home.partition('._')[0]}.{name}"
    return name


def _refuse_in_place(name: str, x: Any) -> ArgumentTypeError:
    """Return the error for a result in another library's memory, which `n += x` requests."""
    return ArgumentTypeError(
        where=name,
        expected="NumPy operands for an in-place operator of a NumPy array",
        got=f"a {type(x).__name__} on {x.device}",
        fix="use its memory: numpy.asarray(x)"
        if x.device.type == "cpu"
        else "download it first: x.get()",
    )


def ufunc_method(ufunc: np.ufunc, method: str) -> Any:
    """Return the function that computes a method of a ufunc, or None."""
    return import_module(f"{__package__}.functions").UFUNC_METHODS.get((ufunc, method))


def _outer(function: Callable[..., Any], x: Any, y: Any, out: Any, **kwargs: Any) -> Any:
    """Apply the function to every element of x with every element of y."""
    if not isinstance(x, _core.Array):
        x = read_by_numpy(x)
    result = out[0] if out else None
    return function(x.reshape((*x.shape, *[1] * np.ndim(y))), y, out=result, **kwargs)


def __array_function__(
    self: Any, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Compute a NumPy function on gpuinterop arrays."""
    reason = ""
    if func not in _NUMPY_FUNCTIONS:
        _NUMPY_FUNCTIONS.update(import_module(f"{__package__}.functions").NUMPY_FUNCTIONS)
        _NUMPY_FUNCTIONS.setdefault(func, None)  # gpuinterop lacks it
    function, path = _NUMPY_FUNCTIONS[func], f"{func.__module__}.{func.__name__}"
    like: tuple[Any, ...] = ()
    if func in _READERS and self.device.type != "cpu":
        function, like = import_module(f"{__package__}.functions").read_like, (self, func)
    if function is not None:
        try:
            return function(*like, *args, **kwargs)
        except GpuInteropError as error:
            raise error.changed(where=path) from None
        except (ValueError, IndexError) as error:
            raise refused_by_numpy(path, error) from error
        except TypeError as error:  # an argument of NumPy's that the function does not have
            reason = str(error).replace(function.__qualname__, func.__name__)
    for cls in types:
        if not issubclass(cls, (_core.Array, np.ndarray)):
            return NotImplemented
    return borrow(path, func, self, args, kwargs, reason)


def _all_known(inputs: tuple[Any, ...], outs: tuple[Any, ...] | None) -> bool:
    return all(_is_known(type(x)) for x in (*inputs, *(outs or ())))


def _is_known(cls: type) -> bool:
    """Return whether gpuinterop handles objects of this class; another library may implement the function itself."""
    return (
        issubclass(cls, (_core.Array, np.ndarray))
        or not hasattr(cls, "__array_ufunc__")
        or issubclass(cls, np.generic)
    )


def _compress(x: Any, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    return compress(condition, x, axis, out)


_compress.__qualname__ = "compress"
CALLS["ufunc method"] = ufunc_method
CALLS.update(
    put=put, nonzero=nonzero, repeat=repeat, compress=_compress, __array_ufunc__=__array_ufunc__,
    __array_function__=__array_function__,
)  # fmt: skip

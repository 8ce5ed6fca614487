"""SciPy's special functions in the namespace, where ``scipy.special`` looks for them.

A function is here if gpuinterop or CuPy computes it on a GPU. SciPy computes the others by its own rules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.borrowed.borrow import borrow, on_cuda
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.elementwise.results import plain
from gpuinterop.errors import type_name
from gpuinterop.errors.messages import not_an_array

from .of_numpy import wide

# Functions of gpuinterop with SciPy's values.
_OWN = {
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "expit": "sigmoid",
    "gamma": "gamma",
    "gammaln": "lgamma",
}
# CuPy's have other values at poles and outside of the domain.
_OTHERWISE = frozenset({"betaincinv", "gammasgn"})


def __getattr__(name: str) -> Any:
    own, path = FUNCTIONS.get(_OWN.get(name, "")), f"scipy.special.{name}"
    # Without a GPU do not import CuPy.
    if own or (len(devices.devices()) > 1 and name not in _OTHERWISE and on_cuda(path)):
        # With SCIPY_ARRAY_API=1 SciPy's function looks here again, so take the ufunc in it.
        function: Any = getattr(import_module("scipy.special"), name, None)
        ufunc: Any = inspect.unwrap(function)
        if isinstance(ufunc, np.ufunc) and ufunc.nout == 1:
            globals()[name] = found = _of_ufunc(path, ufunc, own)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _of_ufunc(path: str, ufunc: Any, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a ufunc of SciPy for gpuinterop arrays, with SciPy's dtypes on every device."""

    def call(*args: Any) -> Any:
        args = wide(args)
        first = next((x for x in args if isinstance(x, _core.Array)), None)
        if first is None:
            kind = type_name(args[0] if args else None)
            raise not_an_array(f"array_api.special.{ufunc.__name__}", "an operand", kind)
        if first.device.type == "cpu":
            return plain(ufunc(*args))
        types = [x.dtype if hasattr(x, "dtype") else type(x) for x in args]
        *ins, out = ufunc.resolve_dtypes((*types, None))
        pairs = zip(args, ins, strict=True)
        given = tuple(
            x.astype(t, copy=False) if isinstance(x, _core.Array) else x for x, t in pairs
        )
        found = own(*given) if own else borrow(path, ufunc, first, given, {}, reads=True)
        return plain(found).astype(out, copy=False)

    call.__name__ = call.__qualname__ = path.rpartition(".")[2]
    call.__doc__ = f"Compute `{path}` on the device of the operands."
    return call

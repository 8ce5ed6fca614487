"""Functions of NumPy and foreign ufuncs that gpuinterop lacks, by the array library of the device.

NumPy computes them on "cpu", CuPy on CUDA if it is installed, both on the memory of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from gpuinterop.elementwise.missing_names import own_call
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.exchange import registry

from .loan import LentFunction

# The package of CuPy that has the functions of a package.
_ON_CUDA = {"numpy": "cupy", "scipy": "cupyx.scipy"}


def borrow(
    path: str, function: Callable[..., Any], x: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    reason: str = "", reads: bool = False,
) -> Any:  # fmt: skip
    """Call the function that programs know as `path` on the device of `x`, or raise with what to do.

    `reason` says why gpuinterop's own function of that name does not compute this call. With `reads` it
    writes to no positional argument, as a ufunc does, so these may be read-only.
    """
    library = "numpy" if x.device.type == "cpu" else "cupy"
    if library == "cupy":
        found = on_cuda(path)
        if found is None:
            raise _missing(path, x, reason)
        function = found
    return LentFunction(registry.backend(library), function, reads=reads)(*args, **kwargs)


def on_cuda(path: str) -> Any:
    """Return CuPy's function for a path such as numpy.linalg.svd or numpy.add.accumulate, None without it."""
    package, _, name = path.partition(".")
    if package not in _ON_CUDA or not registry.installed("cupy"):
        return None
    found: Any = import_module(_ON_CUDA[package])
    for part in name.split("."):
        if isinstance(found, ModuleType) and package == "scipy" and not hasattr(found, part):
            module = f"{found.__name__}.{part}"
            try:
                import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:  # CuPy has it, and misses a package itself
                    raise
        found = getattr(found, part, None)
    return found


def _missing(path: str, x: Any, reason: str) -> ArgumentTypeError:
    """Return the error for a function that neither gpuinterop nor CuPy has on the device of `x`."""
    package, _, name = path.rpartition(".")
    own = own_call(name) if package != "numpy" else ""
    cupy = package.partition(".")[0] in _ON_CUDA and not registry.installed("cupy")
    install = f"pip install {registry.backend('cupy').install}, whose function then runs on the same memory, or "
    return ArgumentTypeError(
        where=path,
        expected="a call that gpuinterop or CuPy computes on a GPU",
        got=(reason or f"{path} of a {type(x).__name__} on {x.device}") + ", without CuPy" * cupy,
        fix=f"call {own}, or " * bool(own)
        + install * cupy
        + "call it with a downloaded array, x.get(); if it writes, write back: x[...] = host",
    )

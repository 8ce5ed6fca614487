"""How to copy, cast or move what somebody passed, as a line that works for an object of its library.

For the fix of an error: not every object that is converted has the methods of our arrays.
"""

from __future__ import annotations

from typing import Any

from gpuinterop.converters import registry
from gpuinterop.converters.plan import ArrayInfo
from gpuinterop.layout import is_array

__all__ = ["remedy_cast", "remedy_copy", "remedy_move"]

# Rows of the registry whose arrays have NumPy's method; {x} is the object, {dtype} a dtype's name.
_METHOD = "{x}.astype('{dtype}')"
_CASTS = {
    "gpuinterop": _METHOD,
    "numpy": _METHOD,
    "cupy": _METHOD,
    "jax": _METHOD,
    "pycuda": _METHOD,
    "torch": "{x}.to(torch.{dtype})",
    "tensorflow": "tensorflow.cast({x}, '{dtype}')",
    "buffer": "numpy.asarray({x}).astype('{dtype}')",
    "array_api": "{x}.__array_namespace__().astype({x}, {x}.__array_namespace__().{dtype})",
}
_ANY_CAST = "gpuinterop.from_any({x}, copyif=True).astype('{dtype}')"


def remedy_copy(obj: Any, order: str = "C", name: str = "x") -> str:
    """The line that makes a compact copy, aligned for every library, of an object or what ArrayInfo tell of.

    Copies of other libraries may be as strided, or as badly aligned, as what they were made from.
    """
    call = ".copy()" if order == "C" else f".copy({order!r})"
    ours = _library(obj) == "gpuinterop"
    return name + call if ours else f"gpuinterop.from_any({name}, copyif=True){call}"


def remedy_cast(obj: Any, dtype: Any, name: str = "x") -> str:
    """The line that casts an object, or what ArrayInfo tell of, in the words of its own library."""
    text = _CASTS.get(_library(obj), _ANY_CAST)
    return text.format(x=name, dtype=getattr(dtype, "name", dtype))


def remedy_move(obj: Any, device: str, name: str = "x") -> str:
    """The line that makes an array of ours on another device."""
    ours = _library(obj) == "gpuinterop"
    return f"{name if ours else f'gpuinterop.from_any({name})'}.to_device({device!r})"


def _library(obj: Any) -> str:
    if isinstance(obj, ArrayInfo):
        return obj.library
    if is_array(obj):
        return "gpuinterop"
    row = registry.find_backend(obj)
    return "" if row is None else row.name

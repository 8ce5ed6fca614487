"""Code lines that copy, cast or move an array of a given library, for the fix of an error.

Not every object that is converted has the methods of a gpuinterop array.
"""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop.dtypes import NAMES, SUB_BYTE_INTEGERS

__all__ = ["cast_line", "copy_line", "fix_device", "fix_dtype", "move_line"]

# Libraries whose arrays have NumPy's method; {x} is the object, {dtype} a dtype's name.
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


def copy_line(library: str, order: str = "C", name: str = "x") -> str:
    """Return the line that makes a contiguous copy, aligned for every library.

    Copies that another library makes may be as strided, or as badly aligned, as the original.
    """
    call = ".copy()" if order == "C" else f".copy({order!r})"
    if library == "gpuinterop":
        return name + call
    return f"gpuinterop.from_any({name}, copyif=True){call}"


def cast_line(library: str, dtype: Any, name: str = "x") -> str:
    """Return the line that casts an array, by the methods of its own library."""
    return _CASTS.get(library, _ANY_CAST).format(x=name, dtype=getattr(dtype, "name", dtype))


def move_line(library: str, device: str, name: str = "x") -> str:
    """Return the line that makes a gpuinterop array on another device."""
    source = name if library == "gpuinterop" else f"gpuinterop.from_any({name})"
    return f"{source}.to_device({device!r})"


def fix_dtype(library: str, dtype: str, allowed: frozenset[str]) -> str:
    """Return the fix for an array of `library` whose dtype is none of `allowed`."""
    kind = dtype.rstrip("0123456789")
    if kind in ("complex", "bcomplex"):  # a cast to real numbers would lose the imaginary part
        wide = next((name for name in ("complex64", "complex128") if name in allowed), "")
        if wide:
            return f"convert the values yourself first: {cast_line(library, wide)}"
        part = {"complex128": "float64", "complex32": "float16"}.get(dtype, "float32")
        return (
            "pass the parts as pairs of real numbers, on the host: "
            f"{_as_gpuinterop(library)}.get().view('{part}')"
        )
    small = f"{kind}8" if dtype in SUB_BYTE_INTEGERS else ""
    target = small if small in allowed else "float32"
    if kind in ("bool", "int", "uint", "float", "bfloat") or dtype in NAMES:
        return f"convert the values yourself first, for example {cast_line(library, target)}"
    if library == "torch":
        return "pass the bytes: x.view(torch.uint8)"
    return "pass numbers: gpuinterop has no dtype for text and raw bytes"


def fix_device(library: str, devices: frozenset[str]) -> str:
    """Return the fix for an array of `library` that is on none of `devices`."""
    call = f"{_as_gpuinterop(library)}.to_device('{'cuda' if 'cuda' in devices else 'cpu'}')"
    if "cuda" in devices and not _core.cuda_device_count():
        return (
            "there is no GPU here: take a library with arrays on the host, such as 'numpy'; where "
            f"there is one, {call}"
        )
    return f"move it explicitly: {call}"


def _as_gpuinterop(library: str) -> str:
    return "x" if library == "gpuinterop" else "gpuinterop.from_any(x, copyif=True)"

"""Code lines that copy, cast or move an array of a given library, for the fix of an error.

Not every object that is converted has the methods of a gpuinterop array.
"""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop.arrays.dtypes import NAMES

_METHOD = "{x}.astype('{dtype}')"
# {x} is the object, {dtype} a dtype's name.
_CASTS = {
    **dict.fromkeys(("gpuinterop", "numpy", "cupy", "jax", "pycuda"), _METHOD),
    "torch": "{x}.to(torch.{dtype})",
    "tensorflow": "tensorflow.cast({x}, '{dtype}')",
    "buffer": "numpy.asarray(memoryview({x})).astype('{dtype}')",
    "array_api": "{x}.__array_namespace__().astype({x}, {x}.__array_namespace__().{dtype})",
}

# In the order of preference, before the other dtypes that a library has.
_SUGGESTED = ("float32", "float64", "int64", "int32")


def _as_gpuinterop(library: str, name: str = "x") -> str:
    return name if library == "gpuinterop" else f"gpuinterop.from_any({name}, copyif=True)"


def copy_line(library: str, order: str = "C") -> str:
    """Return the line that makes a contiguous copy, aligned for every library.

    Copies that another library makes may be as strided, or as badly aligned, as the original.
    """
    return _as_gpuinterop(library) + (".copy()" if order == "C" else f".copy({order!r})")


def cast_line(library: str, dtype: Any, name: str = "x") -> str:
    """Return the line that casts an array, by the methods of its own library."""
    line = _CASTS.get(library, _as_gpuinterop(library, "{x}") + ".astype('{dtype}')")
    return line.format(x=name, dtype=getattr(dtype, "name", dtype))


def move_line(library: str, device: str) -> str:
    """Return the line that makes a gpuinterop array on another device."""
    return f"{_as_gpuinterop(library)}.to_device({device!r})"


def fix_dtype(library: str, dtype: str, allowed: frozenset[str]) -> str:
    """Return the fix for an array of `library` whose dtype is none of `allowed`."""
    kind = dtype.rstrip("0123456789")
    if kind in ("complex", "bcomplex"):  # a cast to real numbers would lose the imaginary part
        for wide in ("complex64", "complex128"):
            if wide in allowed:
                return f"convert the values first: {cast_line(library, wide)}"
        part = {"complex128": "float64", "complex32": "float16"}.get(dtype, "float32")
        pairs = f"{_as_gpuinterop(library)}.get().view('{part}')"
        return f"pass the parts as pairs of real numbers, on the host: {pairs}"
    if kind in ("bool", "int", "uint", "float", "bfloat") or dtype in NAMES:
        first = next(name for name in (*_SUGGESTED, *sorted(allowed)) if name in allowed)
        return f"convert the values first, for example {cast_line(library, first)}"
    if library == "torch":
        return "pass the bytes: x.view(torch.uint8)"
    return "pass numbers, because gpuinterop has no dtype for text and raw bytes"


def fix_device(library: str, devices: frozenset[str]) -> str:
    """Return the fix for an array of `library` that is on none of `devices`."""
    call = move_line(library, "cuda" if "cuda" in devices else "cpu")
    if "cuda" in devices and not _core.cuda_device_count():
        return (
            "this machine has no GPU, so choose a library with arrays on the host, such as 'numpy'; "
            f"on a machine with a GPU move it explicitly: {call}"
        )
    return f"move it explicitly: {call}"

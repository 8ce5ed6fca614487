"""How an object of another class is told to have a library's structure: by its attributes alone.

They are looked at statically: a property is not run, and an object that answers every name is not
taken.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from gpuinterop.errors import ConversionTypeError

__all__ = ["disguised", "has", "like_cudamat", "like_gnumpy", "like_pycuda"]


def has(*attributes: str) -> Callable[[Any], bool]:
    """A test for objects that have all of `attributes`, none of them None."""

    def like(obj: Any) -> bool:
        return all(inspect.getattr_static(obj, a, None) is not None for a in attributes)

    return like


_like_npmat = has("numpy_array", "num_elems", "set_trans", "reshape")
like_pycuda = has("mem_size", "strides", "dtype", "shape", "flags", "ptr")


def like_cudamat(obj: Any) -> bool:
    """Whether `obj` is built as CUDAMat's matrices, or npmat's, are."""
    struct = inspect.getattr_static(obj, "mat", None)
    return has("data_device", "on_device", "size", "is_trans")(struct) or _like_npmat(obj)


def like_gnumpy(obj: Any) -> bool:
    """Whether `obj` is built as a garray is."""
    # The alias marker of an owner is None, so only the presence of the name counts.
    missing = object()
    return has("_base", "shape")(obj) and (
        inspect.getattr_static(obj, "_is_alias_of", missing) is not missing
    )


def disguised(obj: Any, where: str, why: Exception) -> ConversionTypeError:
    """The refusal of an object whose class has the name of a library's, but not what belongs to it.

    Of the library's own objects `why` is raised again.
    """
    cls = type(obj)
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls:
        raise why
    name = f"{cls.__module__}.{cls.__qualname__}"
    return ConversionTypeError(
        where=where,
        expected=f"an array of the class {name} as its library makes it",
        got=f"an object of another class by that name ({type(why).__name__}: {why})",
        fix="give the class a name and a module of its own, or register a converter for it",
    )

"""How an object of another class is told to have a library's structure: by its attributes alone.

They are looked at statically: a property is not run, and an object that answers every name is not
taken.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from gpuinterop.errors import ConversionTypeError
from gpuinterop.foreign_handles import module_of

__all__ = ["lookalike_error", "has", "like_cudamat", "like_gnumpy", "like_pycuda"]


_MISSING = object()
_BUILT_IN = GetSetDescriptorType, MemberDescriptorType
_mro_of = type.__dict__["__mro__"].__get__
_names_of = type.__dict__["__dict__"].__get__


def _static(obj: Any, name: str) -> Any:
    # inspect.getattr_static takes ten times as long, and this is asked of every object whose class no
    # row names. An instance's names are looked at anew each time; so are its class's, which may change.
    cls = type(obj)
    if isinstance(obj, type):
        return inspect.getattr_static(obj, name, _MISSING)
    of_class: Any = _MISSING
    own: Any = None
    for base in _mro_of(cls):
        names = _names_of(base)
        if of_class is _MISSING and name in names:
            of_class = names[name]
        if own is None and "__dict__" in names:
            own = names["__dict__"]
    # A __dict__ of the class's own making is code, which is not run.
    if type(own) not in _BUILT_IN or hasattr(type(of_class), "__set__"):
        return of_class
    names = own.__get__(obj)
    return dict.get(names, name, of_class) if isinstance(names, dict) else of_class


def has(*attributes: str) -> Callable[[Any], bool]:
    """A test for objects that have all of `attributes`, none of them None."""

    def like(obj: Any) -> bool:
        for name in attributes:
            found = _static(obj, name)
            if found is None or found is _MISSING:
                return False
        return True

    return like


_like_npmat = has("numpy_array", "num_elems", "set_trans", "reshape")
_like_matrix = has("data_device", "on_device", "size", "is_trans")
_like_cudamatrix = has("mat", "shape", "asarray", "copy_to_device", "free_device_memory")
like_pycuda = has("mem_size", "strides", "dtype", "shape", "flags", "ptr")
_like_garray = has("_base", "shape")


def like_cudamat(obj: Any) -> bool:
    """Whether `obj` is built as CUDAMat's matrices, or npmat's, are."""
    struct = _static(obj, "mat")
    if type(struct) is property:  # what it would give is not known; the methods are its class's
        return _like_cudamatrix(obj) or _like_npmat(obj)
    if type(struct) is MemberDescriptorType:
        struct = _in_slot(struct, obj)
    return (struct is not _MISSING and _like_matrix(struct)) or _like_npmat(obj)


def _in_slot(slot: MemberDescriptorType, obj: Any) -> Any:
    # This runs nothing of the class's: the interpreter keeps slots itself.
    try:
        return slot.__get__(obj, type(obj))
    except AttributeError:  # nothing was put there
        return _MISSING


def like_gnumpy(obj: Any) -> bool:
    """Whether `obj` is built as a garray is."""
    # The alias marker of an owner is None, so only the presence of the name counts.
    return _like_garray(obj) and _static(obj, "_is_alias_of") is not _MISSING


def lookalike_error(obj: Any, where: str, why: Exception) -> ConversionTypeError:
    """The refusal of an object whose class has the name of a library's, but not what belongs to it.

    Of the library's own objects `why` is raised again.
    """
    cls = type(obj)
    if getattr(sys.modules.get(module_of(cls)), cls.__qualname__, None) is cls:
        raise why
    name = f"{cls.__module__}.{cls.__qualname__}"
    return ConversionTypeError(
        where=where,
        expected=f"an array of the class {name} as its library makes it",
        got=f"an object of another class by that name ({type(why).__name__}: {why})",
        fix="give the class a name and a module of its own, or register a converter for it",
    )

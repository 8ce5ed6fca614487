"""Read what an object of another library reports about itself, and make arrays over its memory.

An attribute may be a property with a new answer each time, so each one is read once. To recognise an
object, attributes are read statically: a property is not run, and an object that answers every name is not
recognised.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from collections.abc import Callable
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters.plan import (
    TYPE_CODES,
    ArrayInfo,
    Plan,
    Rules,
    c_strides,
    copy_needed,
    plan_from_error,
    plan_layout,
    refuse,
)
from gpuinterop.dtypes import NAMES, as_supported_dtype
from gpuinterop.foreign_handles import CUDA, module_of
from gpuinterop.ndarray import GpuArray, class_for
from gpuinterop.streams import as_stream

__all__ = [
    "LEGACY",
    "OwnerGroup",
    "device_of_address",
    "dtype_name",
    "has_attributes",
    "legacy_stream",
    "import_memory",
    "like_cudamat",
    "like_gnumpy",
    "like_pycuda",
    "lookalike_error",
    "new_copy",
    "plan_import",
    "read_dtype",
    "read_integers",
    "read_layout",
    "read_shape",
    "refuse_unknown_memory",
    "stream_number",
]

_END = 1 << 63
_BYTE = numpy.dtype(numpy.uint8)
LEGACY = 1  # CU_STREAM_LEGACY: where libraries without current streams work


def read_integers(value: Any, what: str, where: str) -> tuple[int, ...]:
    """Read a sequence of ints that fit 64 bits; one int stands for a sequence of length 1."""
    try:
        value = (value,) if hasattr(value, "__index__") and not hasattr(value, "__len__") else value
        found = tuple(operator.index(n) for n in value)
    except TypeError:
        raise errors.ExchangeError(
            where=where,
            expected=f"{what} as a sequence of whole numbers",
            got=errors.short_repr(value),
            fix=f"give the array a tuple of ints as its {what}",
        ) from None
    if any(not -_END <= n < _END for n in found):
        raise errors.BoundsError(
            where=where,
            expected=f"{what} of numbers that fit 64 bits",
            got=errors.short_repr(found),
            fix="describe the memory that there is",
        )
    return found


def read_shape(value: Any, itemsize: int, where: str) -> tuple[int, ...]:
    """Read a shape whose lengths are not negative, and whose size in bytes fits an address."""
    shape = read_integers(value, "shape", where)
    if min(shape, default=0) < 0:
        raise errors.ExchangeError(
            where=where,
            expected="extents of at least 0",
            got=f"shape {errors.short_repr(shape)}",
            fix="reshape the array by its own method: reshape(shape)",
        )
    if math.prod(max(n, 1) for n in shape) * itemsize >= _END:
        raise errors.BoundsError(
            where=where,
            expected="a shape of fewer than 2**63 bytes",
            got=f"shape {errors.short_repr(shape)}, elements of {itemsize} bytes",
            fix="describe the memory that there is",
        )
    return shape


def read_dtype(value: Any, where: str) -> numpy.dtype[Any]:
    """Read a dtype as NumPy's object. NumPy takes None for float64, but None is not a dtype."""
    try:
        found: numpy.dtype[Any] | None = None if value is None else numpy.dtype(value)
    except (TypeError, ValueError):
        found = None
    if found is not None:
        return found
    raise errors.DTypeError(
        where=where,
        expected="a dtype that NumPy knows",
        got=errors.short_repr(value),
        fix="give the array a numpy.dtype",
    )


def read_layout(
    shape: Any, strides: Any, itemsize: int, where: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read shape and byte strides. None, and the strides of an empty array, mean C-contiguous ones."""
    lengths = read_shape(shape, itemsize, where)
    if strides is None:
        return lengths, c_strides(tuple(max(n, 1) for n in lengths), itemsize)
    steps = read_integers(strides, "strides", where)
    if len(steps) != len(lengths):
        raise errors.ExchangeError(
            where=where,
            expected=f"as many strides as extents, {len(lengths)}",
            got=f"shape {lengths} with strides {steps} (bytes)",
            fix="give the array one stride for each dimension",
        )
    if 0 in lengths:
        steps = c_strides(tuple(max(n, 1) for n in lengths), itemsize)
    return lengths, steps


def dtype_name(dtype: Any) -> str:
    """Return NumPy's name of a dtype; with its byte order, ">f4", if that is not the machine's."""
    return dtype.name if dtype.isnative else dtype.str  # type: ignore[no-any-return]


def stream_number(stream: Any) -> int:
    """Return the driver's handle of a stream object or of a handle; None is the legacy stream."""
    if stream is None:
        return LEGACY
    plain = type(stream) is int and 0 <= stream < 1 << 64  # without a call of the driver each time
    return (stream if plain else as_stream(stream).handle) or LEGACY


def legacy_stream(index: int, obj: Any = None) -> int:
    """Return the stream of a library that works on the legacy default stream, as its `stream_used_by`."""
    return LEGACY


def device_of_address(ptr: int) -> tuple[str, int]:
    """Return the device of an address on a GPU, by the driver; GPU 0 for an unknown one."""
    found = _core.pointer_info(ptr) if ptr else None
    return ("cuda", int(found[1])) if found is not None else ("cuda", 0)


# ---- memory -------------------------------------------------------------------------------------


_DTYPES = frozenset(NAMES)


def plan_import(info: ArrayInfo, where: str) -> Plan:
    """Plan the conversion of described memory to a gpuinterop array.

    A gpuinterop array holds every layout, on both devices, and keeps the read-only flag.
    """
    if info.dtype[:1] in ("<", ">"):
        return refuse(
            "gpuinterop", where, errors.DTypeError, "native byte order", f"dtype {info.dtype}",
            f"convert the values in their own library first: a.astype('{info.dtype[1:]}')",
        )  # fmt: skip
    plan = plan_layout(info, Rules("gpuinterop", where, _DTYPES, readonly=True))
    if not plan.shared or info.size == 0:
        return plan
    axis, got = None, ""
    for at, (n, s) in enumerate(zip(info.shape, info.strides, strict=True)):
        if n > 1 and s % info.itemsize:
            axis, got = at, f"stride {s} bytes on axis {at}"
    if not got and info.ptr % _core.alignment_of(
        as_supported_dtype(info.dtype), TYPE_CODES[info.device]
    ):
        got = f"address {info.ptr:#x}"
    if not got:
        return plan
    return copy_needed(
        "gpuinterop", where, info, errors.ContiguityError,
        f"strides and address in whole elements of {info.itemsize} bytes", got,
        code="alignment", axis=axis,
    )  # fmt: skip


def refuse_unknown_memory(plan: Plan, info: ArrayInfo) -> Plan:
    """Return `plan`, or a refusal if the driver does not know the memory that `info` describes.

    For libraries whose arrays report their address by attributes, which nothing has checked yet.
    """
    if plan.refused or info.device != "cuda" or not info.size:
        return plan
    found = _core.pointer_info(info.ptr)
    if found is not None and not found[2]:
        made = "pycuda.autoinit" in sys.modules
        return refuse(
            plan.library, plan.where, errors.ContextError,
            f"memory of the primary context of cuda:{info.index}, where all libraries share it",
            "memory of another context" + (": pycuda.autoinit makes one of its own" if made else ""),
            "import pycuda.autoprimaryctx instead of pycuda.autoinit, at the top of the program",
        )  # fmt: skip
    shape, strides, dtype = info.shape, info.strides, as_supported_dtype(info.dtype)
    if plan.copied:  # `import_memory` reads bytes then
        shape, strides, dtype = (*shape, info.itemsize), (*strides, 1), _BYTE
    try:
        _core.check_borrowed(info.ptr, shape, strides, dtype, CUDA, info.index, plan.where)
    except errors.GpuInteropError as e:
        return plan_from_error(e, plan.library, plan.where)
    return plan


def import_memory(obj: Any, info: ArrayInfo, plan: Plan, stream: int | None = None) -> Any:
    """Return an array over the memory of `obj`, or a copy of it, as the plan says.

    What the library has queued on `stream` is visible to the array, and the library gets the memory back
    after the array's last use.
    """
    owner = obj if info.owner is None else info.owner
    stream = LEGACY if stream is None else stream
    dtype, code = as_supported_dtype(info.dtype), TYPE_CODES[info.device]
    if plan.shared:
        return _core.from_pointer(
            class_for(dtype), info.ptr, info.shape, info.strides, dtype, code, info.index, owner,
            info.readonly, stream, plan.where,
        )  # fmt: skip
    # Strides or an address between elements: as bytes, with an axis for the bytes of an element.
    shape = (*info.shape, info.itemsize)
    source: Any = _core.from_pointer(
        GpuArray, info.ptr, shape, (*info.strides, 1), _BYTE, code, info.index, owner, True, stream,
        plan.where,
    )  # fmt: skip
    fresh: Any = _core.empty(GpuArray, shape, _BYTE, code, info.index)
    _core.copy_into(fresh, source, where=plan.where)
    return _core.from_pointer(
        class_for(dtype), fresh.ptr, info.shape, c_strides(info.shape, info.itemsize), dtype, code,
        info.index, fresh, False, fresh._stream or LEGACY, plan.where,
    )  # fmt: skip


def new_copy(x: Any, where: str, order: str = "C") -> Any:
    """Return a contiguous copy of a gpuinterop array on the same device."""
    view = _core.view(_core.Array, x)
    place = view.device
    fresh = _core.empty(type(x), view.shape, view.dtype, place.type_code, place.index or 0, order)
    _core.copy_into(fresh, x, where=where)
    return fresh


class OwnerGroup:
    """Keeps several objects alive as the owner of one memory; has the attributes of the first."""

    __slots__ = ("__weakref__", "also", "owner")

    def __init__(self, owner: Any, *also: Any) -> None:
        self.owner = owner
        self.also = also

    def __getattr__(self, name: str) -> Any:
        return getattr(self.owner, name)

    def __repr__(self) -> str:
        return f"<memory of {self.owner!r}>"


# ---- recognition by attributes ------------------------------------------------------------------

_MISSING = object()
_BUILT_IN = GetSetDescriptorType, MemberDescriptorType
_mro_of = type.__dict__["__mro__"].__get__
_names_of = type.__dict__["__dict__"].__get__


def _static(obj: Any, name: str) -> Any:
    # inspect.getattr_static takes ten times as long, and this runs for every object whose class is in no
    # entry. Names are not cached, because those of an instance and of its class may change.
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
    # A __dict__ that the class defines itself is code, which is not run.
    if type(own) not in _BUILT_IN or hasattr(type(of_class), "__set__"):
        return of_class
    names = own.__get__(obj)
    return dict.get(names, name, of_class) if isinstance(names, dict) else of_class


def has_attributes(*attributes: str) -> Callable[[Any], bool]:
    """Return a test for objects that have all of `attributes`, none of them None."""

    def like(obj: Any) -> bool:
        for name in attributes:
            found = _static(obj, name)
            if found is None or found is _MISSING:
                return False
        return True

    return like


_like_npmat = has_attributes("numpy_array", "num_elems", "set_trans", "reshape")
_like_matrix = has_attributes("data_device", "on_device", "size", "is_trans")
_like_cudamatrix = has_attributes("mat", "shape", "asarray", "copy_to_device", "free_device_memory")
like_pycuda = has_attributes("mem_size", "strides", "dtype", "shape", "flags", "ptr")
_like_garray = has_attributes("_base", "shape")


def like_cudamat(obj: Any) -> bool:
    """Return whether `obj` has the structure of CUDAMat's matrices, or of npmat's."""
    struct = _static(obj, "mat")
    if type(struct) is property:  # its value is not known; the methods are those of the class
        return _like_cudamatrix(obj) or _like_npmat(obj)
    if type(struct) is MemberDescriptorType:
        try:  # the interpreter itself keeps slots, so no code of the class runs
            struct = struct.__get__(obj, type(obj))
        except AttributeError:  # the slot is empty
            struct = _MISSING
    return (struct is not _MISSING and _like_matrix(struct)) or _like_npmat(obj)


def like_gnumpy(obj: Any) -> bool:
    """Return whether `obj` has the structure of a garray."""
    # The alias marker of an owner is None, so only the presence of the name counts.
    return _like_garray(obj) and _static(obj, "_is_alias_of") is not _MISSING


def lookalike_error(obj: Any, where: str, why: Exception) -> errors.ConversionTypeError:
    """Return the error for a class with the name of a library's, but without its attributes.

    Raise `why` again if the class is the library's own.
    """
    cls = type(obj)
    if getattr(sys.modules.get(module_of(cls)), cls.__qualname__, None) is cls:
        raise why
    name = f"{cls.__module__}.{cls.__qualname__}"
    return errors.ConversionTypeError(
        where=where,
        expected=f"an array of the class {name} as its library makes it",
        got=f"an object of another class by that name ({type(why).__name__}: {why})",
        fix="give the class a name and a module of its own, or register a converter for it",
    )

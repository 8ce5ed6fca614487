"""The element types. Their ids are the places of their names in the core's table (native/arrays/dtype.cpp)."""

from __future__ import annotations

from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import DTypeError, GpuInteropError, short_repr
from gpuinterop.errors.messages import foreign_byte_order, undefined_for_dtypes


class DTypeEntry(NamedTuple):
    """One dtype.

    Attributes
    ----------
    name : of NumPy's dtype, or of the one in ml_dtypes.
    storage : CUDA type of an element in memory (jit/kernels/prelude.cuh); empty: held and moved only,
        the host casts it.
    working : CUDA type that operations compute in.
    accumulator : CUDA type that sums are kept in; empty: not reduced.
    """

    name: str
    storage: str = ""
    working: str = ""
    accumulator: str = ""

    @property
    def letter(self) -> str:
        """b, i, u, f or c; NumPy has V for the dtypes of ml_dtypes."""
        letters = {"bool": "b", "uint": "u", "int": "i", "complex": "c"}
        return next((letter for name, letter in letters.items() if self.name.startswith(name)), "f")


_OF_NUMPY = (
    DTypeEntry("bool", "b8", "bool", "i64"),
    DTypeEntry("int8", "i8", "i8", "i64"),
    DTypeEntry("int16", "i16", "i16", "i64"),
    DTypeEntry("int32", "i32", "i32", "i64"),
    DTypeEntry("int64", "i64", "i64", "i64"),
    DTypeEntry("uint8", "u8", "u8", "u64"),
    DTypeEntry("uint16", "u16", "u16", "u64"),
    DTypeEntry("uint32", "u32", "u32", "u64"),
    DTypeEntry("uint64", "u64", "u64", "u64"),
    DTypeEntry("float16", "f16", "float", "float"),
    DTypeEntry("float32", "float", "float", "float"),
    DTypeEntry("float64", "double", "double", "double"),
    DTypeEntry("complex64", "c64", "c64", "float"),
    DTypeEntry("complex128", "c128", "c128", "double"),
)
# They occupy a whole byte each, as in ml_dtypes.
_SUB_BYTE_FLOATS = (
    DTypeEntry("float6_e2m3fn", "f6e2m3fn", "float"),
    DTypeEntry("float6_e3m2fn", "f6e3m2fn", "float"),
    DTypeEntry("float4_e2m1fn", "f4e2m1fn", "float"),
)
SUB_BYTE_INTEGERS = ("int4", "uint4", "int2", "uint2", "int1", "uint1")
# Types that only ml_dtypes defines for NumPy.
_OF_ML_DTYPES = (
    DTypeEntry("bfloat16", "bf16", "float", "float"),
    DTypeEntry("float8_e3m4", "f8e3m4", "float"),
    DTypeEntry("float8_e4m3", "f8e4m3", "float"),
    DTypeEntry("float8_e4m3b11fnuz", "f8e4m3b11fnuz", "float"),
    DTypeEntry("float8_e4m3fn", "f8e4m3fn", "float"),
    DTypeEntry("float8_e4m3fnuz", "f8e4m3fnuz", "float"),
    DTypeEntry("float8_e5m2", "f8e5m2", "float"),
    DTypeEntry("float8_e5m2fnuz", "f8e5m2fnuz", "float"),
    DTypeEntry("float8_e8m0fnu", "f8e8m0fnu", "float"),
    *_SUB_BYTE_FLOATS,
    *map(DTypeEntry, SUB_BYTE_INTEGERS),
    DTypeEntry("complex32"),
)
# A dtype is added here, in the core's table (native/arrays/dtype.cpp) and, if kernels compute with it,
# as a CUDA type in prelude.cuh.
_ENTRIES = {entry.name: entry for entry in (*_OF_NUMPY, *_OF_ML_DTYPES)}

NAMES: tuple[str, ...] = _core.DTYPE_NAMES  # by id: first those of NumPy
DTYPES = tuple(_ENTRIES[name] for name in NAMES)
NUMPY_NAMES = NAMES[: len(_OF_NUMPY)]
ML_NAMES = NAMES[len(_OF_NUMPY) :]
SUB_BYTE_NAMES = (*(entry.name for entry in _SUB_BYTE_FLOATS), *SUB_BYTE_INTEGERS)
LETTERS = {entry.name: entry.letter for entry in DTYPES}
WITHOUT_KERNELS = frozenset(entry.name for entry in DTYPES if not entry.storage)
# By the names of the dtypes that kernels compute with, and of those that reductions do.
STORAGE = {entry.name: entry.storage for entry in DTYPES if entry.storage}
WORKING = {entry.name: entry.working for entry in DTYPES if entry.working}
ACCUMULATORS = {entry.name: entry.accumulator for entry in DTYPES if entry.accumulator}
_LATEST = ("int1", "uint1", "complex32")  # which ml_dtypes has from 0.6 on, the others from 0.5 on
# The names that are suggested for an unknown name.
_LIKELY = [name for name in NAMES if name not in SUB_BYTE_INTEGERS]

FLOAT32 = NAMES.index("float32")


@cache
def dtype_from_id(type_id: int) -> np.dtype[Any]:
    """Return NumPy's dtype object for an id."""
    name = NAMES[type_id]
    if type_id < len(NUMPY_NAMES):
        return np.dtype(name)
    try:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        raise DTypeError(
            where="dtype",
            expected=f"ml_dtypes, which defines the type {name} for NumPy",
            got="ml_dtypes is not installed"
            if isinstance(error, ImportError)
            else f"ml_dtypes {ml_dtypes.__version__}, which has no such type",
            fix=f"pip install 'ml_dtypes>={'0.6' if name in _LATEST else '0.5'}'",
        ) from None
    return found


# The name of a dtype, which NumPy composes at each access.
name_of = lru_cache(maxsize=256)(attrgetter("name"))


def is_complex(dtype: np.dtype[Any]) -> bool:
    """Return whether elements have an imaginary part; NumPy's kind is "V" for the types of ml_dtypes."""
    return dtype.kind == "c" or name_of(dtype) in ("complex32", "bcomplex32")


_ids: dict[Any, int] = {np.dtype(name): type_id for type_id, name in enumerate(NUMPY_NAMES)}


def dtype_id(dtype: Any, where: str = "dtype") -> int:
    """Return the id of a dtype of NumPy or another library, or anything that NumPy accepts as one.

    Raises
    ------
    DTypeError
        The table has no such type: structured, object, string, datetime, foreign byte order.
    """
    if isinstance(dtype, np.dtype) and dtype in _ids:
        return _ids[dtype]
    if isinstance(dtype, str) and dtype in NAMES:
        return NAMES.index(dtype)
    # Read before NumPy does, because before 2.4 it discards an interrupt of this attribute.
    held = getattr(dtype, "dtype", None)
    try:
        found = held if isinstance(held, np.dtype) else np.dtype(dtype)
    except (TypeError, ValueError):
        found = np.dtype(object)
    if found in _ids:
        return _ids[found]
    if found.isnative and found.name in ML_NAMES:
        _ids[found] = NAMES.index(found.name)
        return _ids[found]
    if found.kind == "O" and not isinstance(dtype, str) and _printed_name(dtype) in NAMES:
        return NAMES.index(_printed_name(dtype))
    raise _unknown(dtype if found.kind == "O" else found, where)


def _printed_name(dtype: Any) -> str:
    """Return the last word of an object's repr: float32 of `torch.float32` and <class 'warp.types.float32'>.

    Libraries agree on the names of dtypes, but not on an attribute that holds the name.
    """
    return short_repr(dtype).strip("<'>").rpartition(".")[2]


def as_supported_dtype(dtype: Any, where: str = "dtype") -> np.dtype[Any]:
    """Return `dtype` as NumPy's object; raise DTypeError if gpuinterop arrays cannot hold it."""
    type_id = dtype_id(dtype, where)
    try:
        return dtype_from_id(type_id)
    except DTypeError as error:  # without ml_dtypes
        raise error.changed(where=where) from None


def is_supported(dtype: np.dtype[Any]) -> bool:
    """Return whether gpuinterop arrays can hold a dtype of NumPy or ml_dtypes."""
    return dtype.isnative and name_of(dtype) in NAMES


def refuse_half_complex(dtype: np.dtype[Any], where: str) -> None:
    """Refuse complex32, with which no device computes."""
    if dtype.isbuiltin != 1 and dtype.name == "complex32":
        raise undefined_for_dtypes(where, where, dtype.name, "cast first: x.astype('complex64')")


def _unknown(dtype: Any, where: str) -> GpuInteropError:
    from difflib import get_close_matches  # costs more than this module, and is rarely needed

    if isinstance(dtype, str) and dtype.partition(":")[0] in ("cpu", "cuda", "gpu"):
        return DTypeError(where=where, expected="a dtype, such as 'float32'", got=short_repr(dtype),
                          fix=f"name a device by its keyword: device={dtype!r}")  # fmt: skip
    if isinstance(dtype, np.dtype) and not dtype.isnative and dtype.name in NAMES:
        data = f"numpy.asarray(a).astype('{dtype.name}')"
        fix = f"convert the byte order of the data: {data}, or pass dtype='{dtype.name}' for a new array"
        return foreign_byte_order(where, dtype.str, data, fix=fix)
    fix = "pass a name such as 'float32', or cast the values first"
    near = get_close_matches(_printed_name(dtype), _LIKELY, 1)
    if isinstance(dtype, int):  # zeros(2, 3)
        fix = "pass a dtype such as 'float32', and a shape as one tuple: gpuinterop.zeros((2, 3))"
    elif near and not isinstance(dtype, np.dtype):
        fix = f"pass {near[0]!r}"
    known = "a dtype of bools, integers, floats or complex numbers, of NumPy or ml_dtypes"
    if isinstance(dtype, np.dtype) and dtype.isbuiltin == 2:
        known = "a dtype for which DLPack has a code"
    return DTypeError(where=where, expected=known, got=short_repr(dtype), fix=fix)


def _dtype_or_id(value: Any, where: str = "dtype") -> Any:
    """Return the dtype of an id, or the id of anything that NumPy accepts as a dtype."""
    return (
        dtype_from_id(value) if type(value) is int else dtype_id(as_supported_dtype(value, where))
    )


_core.set_hooks(dtype=_dtype_or_id)

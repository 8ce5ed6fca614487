"""Converts Python scalars and lists to elements; the only place of this rule.

A Python scalar has no dtype, so it is converted to the array's, as in NumPy: rounded for a float dtype,
truncated towards zero for an integer dtype. A value that the dtype cannot hold raises: a finite number
that would become infinite or nan, an integer outside the range. So does an integer that the default
float32 would round if no dtype is given. An array inside a list keeps its dtype: floats are narrowed
only by an explicit dtype.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import (
    ConversionTypeError,
    DTypeError,
    GpuInteropError,
    ShapeError,
    short_repr,
    type_name,
)
from gpuinterop.errors.messages import cast_changes_values

from .dtypes import (
    FLOAT32,
    LETTERS,
    ML_NAMES,
    SUB_BYTE_NAMES,
    as_supported_dtype,
    dtype_from_id,
    is_complex,
    name_of,
)
from .numpy_views import read_by_numpy

LISTS = (list, tuple, range)
NUMBERS = (bool, int, float, complex, *LISTS)

_NUMBERS = {bool, int, float, complex}  # items of lists that need no check
PIECE = 1 << 11  # elements that the host handles at once, so that temporary arrays stay small
_EXACT = 2**24  # float32 holds all integers up to this one


def scalars_to_array(
    value: Any, dtype: Any, where: str, *, casts: bool | None = None
) -> np.ndarray[Any, Any]:
    """Return a Python or NumPy scalar, or nested lists of them, as a host array of `dtype`.

    None means the default, float32, which must hold integers exactly. `casts` allows narrowing arrays
    inside the lists; by default it is whether a dtype is given.
    """
    wanted = dtype_from_id(FLOAT32) if dtype is None else as_supported_dtype(dtype, where)
    if isinstance(value, range):
        value = list(value)
    if type(value) is int and wanted.kind in "iu":
        # NumPy's own check has the same rule, and is fastest.
        try:
            return np.asarray(value, wanted)
        except OverflowError:
            raise _too_large(value, wanted, where) from None
    return _converted(value, dtype, wanted, where, casts)


def _converted(
    value: Any, dtype: Any, wanted: np.dtype[Any], where: str, casts: bool | None
) -> np.ndarray[Any, Any]:
    found = _read(value, wanted, where)
    if is_complex(found.dtype) and not is_complex(wanted):
        raise DTypeError(where=where, expected=f"a real number, for dtype {wanted}",
                         got="complex numbers" if found.ndim else short_repr(value),
                         fix="pass the real part" if dtype is not None else
                         "pass the real part, or a GpuArray's dtype='complex64'")  # fmt: skip
    lost = _outside(found, wanted)
    if isinstance(value, (list, tuple)) and not (dtype is not None if casts is None else casts):
        _refuse_narrowing(value, wanted, where)
    with np.errstate(all="ignore"):
        if not np.any(lost):
            result: np.ndarray[Any, Any] = cast_once(found, wanted)
            if wanted.kind != "b":
                lost = ~_finite(result) & _finite(found)
            if name_of(wanted) in ML_NAMES:  # some of them have no infinity
                wide = np.complex128 if is_complex(found.dtype) else np.float64
                lost |= np.isnan(result) & ~np.isnan(found.astype(wide))
        if np.any(lost):
            raise _too_large(found[lost].item(0), wanted, where)
        if dtype is None:
            _refuse_rounding(value, found, result, where)
    return result


def _refuse_rounding(
    value: Any, found: np.ndarray[Any, Any], result: np.ndarray[Any, Any], where: str
) -> None:
    """Refuse integers whose value changed, also integers among floats."""
    if found.dtype.kind in "iuO":
        # Compared as objects, because a comparison as floats would round them too.
        changed = found[found != result.astype(object)]
    elif isinstance(value, (list, tuple)) and np.any(large := np.abs(result) >= _EXACT):
        # NumPy has read them as floats already; the objects show which were integers.
        given = np.asarray(value, object)[large]
        whole = np.array([isinstance(one, (int, np.integer)) for one in given.flat], bool)
        changed = given[whole & (given != result[large].astype(object))]
    else:
        return
    if changed.size:
        keeps = {
            "i": "a GpuArray's 'int64' keeps them, ",
            "u": "a GpuArray's 'uint64' keeps them, ",
            "O": "",
        }
        floats = "a GpuArray's 'float64' keeps them up to 2**53, "
        raise DTypeError(
            where=where,
            expected=f"integers that {result.dtype}, the default dtype, holds exactly",
            got=short_repr(changed.item(0)),
            fix=f"name the dtype: {keeps.get(found.dtype.kind, floats)}'float32' rounds them",
        )


def _refuse_narrowing(values: Any, wanted: np.dtype[Any], where: str) -> None:
    """Refuse arrays inside lists: wider floats, and integers that `wanted` would change."""
    for cls in set(map(type, values)) - _NUMBERS:
        if issubclass(cls, np.generic):
            continue
        for one in values:
            if type(one) is not cls:
                continue
            if isinstance(one, (list, tuple)):
                _refuse_narrowing(one, wanted, where)
            elif hasattr(one, "dtype"):
                own = one.dtype
                if not isinstance(own, np.dtype) or not np.can_cast(own, wanted):
                    _refuse_narrowing_of(np.asarray(one), wanted, where)


def _refuse_narrowing_of(array: np.ndarray[Any, Any], wanted: np.dtype[Any], where: str) -> None:
    if np.can_cast(array.dtype, wanted):
        return
    if array.dtype.kind in "iu":
        with np.errstate(all="ignore"):
            if np.array_equal(array.astype(wanted).astype(object), array.astype(object)):
                return
    raise cast_changes_values(where, wanted, f"an array of dtype {array.dtype} in the list")


def _read(value: Any, wanted: np.dtype[Any], where: str) -> np.ndarray[Any, Any]:
    """Return the values as NumPy reads them; as objects if an integer exceeds 64 bits."""
    try:
        found = read_by_numpy(value)
    except GpuInteropError as error:  # an array in the list may not be downloaded
        raise error.changed(where=where) from None
    except ValueError as error:
        deep, uneven = (words in str(error) for words in ("exceed the maximum", "inhomogeneous"))
        if not (deep or uneven):  # of an object in the list
            raise _no_numbers(value, str(error), where) from error
        raise ShapeError(
            where=where,
            expected="lists no deeper than arrays have dimensions"
            if deep
            else "nested lists of equal lengths",
            got=str(error),
            fix="nest them less deeply" if deep else "pad the rows to one length",
        ) from error
    if found.dtype.kind == "f" and wanted.kind in "iu" and isinstance(value, (list, tuple)):
        return _unrounded(value, found)
    if found.dtype.kind in "biufc" or name_of(found.dtype) in ML_NAMES:
        return found
    if found.dtype.kind == "O" and all(_is_real(one) for one in found.flat):
        try:
            found.astype(np.float64)
        except OverflowError:
            largest = max((one for one in found.flat), key=operator.abs)
            raise _too_large(largest, wanted, where) from None
        return found if all(isinstance(one, int) for one in found.flat) else found.astype("f8")
    raise _no_numbers(value, f"NumPy reads it as dtype {found.dtype}", where)


def dtype_beside(values: Any, dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the dtype of nested lists beside an array: `dtype`, or NumPy's for one of their numbers beside it."""
    kind = _read(values, dtype, where).dtype.kind
    if kind == "f" and LETTERS[name_of(dtype)] in "fc":
        return dtype  # NumPy's result for the floats of ml_dtypes is float64
    number = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}.get(kind)
    return dtype if number is None else np.result_type(dtype, number)


def holds_arrays(values: Any) -> bool:
    """Return whether nested lists, which do not contain themselves, hold arrays among the numbers."""
    return any(
        any(holds_arrays(one) for one in values if type(one) is cls)
        if issubclass(cls, LISTS)
        else not issubclass(cls, (*NUMBERS, np.generic))
        for cls in set(map(type, values)) - _NUMBERS
    )


def _no_numbers(value: Any, why: str, where: str) -> ConversionTypeError:
    return ConversionTypeError(
        where=where, expected="numbers, or nested lists of numbers",
        got=f"{type_name(value)}: {why}", fix="pass numbers",
    )  # fmt: skip


def _unrounded(value: Any, found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return integers exactly if NumPy has converted them to floats that round them.

    NumPy does so for a float among integers, and for signed integers among unsigned ones.
    """
    if not (np.abs(found) >= _EXACT).any() or not np.isfinite(found).all():
        return found
    exact = map(int, np.asarray(value, object).flat)
    whole: np.ndarray[Any, Any] = np.fromiter(exact, object, found.size).reshape(found.shape)
    return whole


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating))


def _outside(found: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> Any:
    """Return a mask of the values that exceed the range of a dtype without infinity."""
    if name_of(wanted).startswith(("int", "uint")):
        info = np.iinfo(wanted) if wanted.kind in "iu" else _ml_dtypes().iinfo(wanted)
        low, high = int(info.min), int(info.max)
        if found.dtype.kind == "b":
            return False
        if found.dtype.kind in "iuO":
            return (found < low) | (found > high)
        whole = np.trunc(found.astype(np.float64))
        # As `not inside`, which is also true of nan; high + 1 is a float exactly.
        return ~((whole >= low) & (whole < high + 1))
    if name_of(wanted) in SUB_BYTE_NAMES:
        return ~(np.abs(found.astype(np.float64)) <= float(_ml_dtypes().finfo(wanted).max))
    return False


def _finite(values: np.ndarray[Any, Any]) -> Any:
    return np.isfinite(values.astype(np.float64) if values.dtype.kind == "O" else values)


def _ml_dtypes() -> Any:
    import ml_dtypes  # it is installed, because it made the dtype

    return ml_dtypes


def _too_large(value: Any, wanted: np.dtype[Any], where: str) -> DTypeError:
    wide = "'float64'"
    if isinstance(value, int):
        exact = np.min_scalar_type(value)  # an object beyond 64 bits
        wide = repr(exact.name) if exact.kind != "O" else f"{wide}, which rounds it"
    fix = f"use a GpuArray of a wider dtype: {wide}"
    if isinstance(value, float) and not np.isfinite(value):
        fix = "use a GpuArray of a float dtype, or replace NaN and infinity first: numpy.nan_to_num(values)"
    elif wanted.itemsize == 8 and wanted.kind == "f":
        fix = "pass a smaller number"
    fix += "; infinity is written float('inf')" if wanted.kind == "f" else ""
    return DTypeError(
        where=where, expected=f"a number that {wanted} can hold", got=short_repr(value), fix=fix
    )


def element_words(element: Any) -> tuple[int, int]:
    """Return the bytes of an element as two words of the core."""
    data = element.tobytes().ljust(16, b"\0")
    return int.from_bytes(data[:8], sys.byteorder), int.from_bytes(data[8:], sys.byteorder)


def _encode(number: Any, type_id: int) -> tuple[int, int]:
    """Return the bytes of a number of a dtype of ml_dtypes."""
    if type(number) is int and number.bit_length() > 63:
        number = float(number)  # NumPy holds it as an object, which ml_dtypes does not cast
    with np.errstate(all="ignore"):
        return element_words(cast_once(np.asarray(number), dtype_from_id(type_id)))


_core.set_hooks(encode=_encode)


def cast_once(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return NumPy's values in another dtype. Small floats are rounded once, as by the core's casts.

    ml_dtypes casts wide numbers to float32 first. A value between two float32 becomes the one whose last bit is
    set, from which the small float is rounded as from the value itself.
    """
    name = name_of(dtype)
    if name not in ML_NAMES or LETTERS[name] != "f" or not _is_wide(values.dtype):
        return values.astype(dtype, copy=False)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        # From 2**40 on one bit stands for the last 24, which a float64 may not hold.
        rest = values & 0xFFFFFF
        far = (values >= 2**40) | (values <= -(2**40))
        values = np.where(far, values - rest + (rest != 0) * values.dtype.type(1 << 23), values)
    wide = np.asarray(values.real, np.float64)
    near = wide.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near, dtype=np.float64) > np.abs(wide))
    return (bits | (near != wide)).view(np.float32).astype(dtype)


def _is_wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize >= (16 if dtype.kind == "c" else 8 if dtype.kind == "f" else 4)


def is_scalar_or_list(value: Any) -> bool:
    """Return whether `value` is a Python or NumPy scalar or a list; these have no memory to share."""
    return isinstance(value, (*NUMBERS, np.generic))

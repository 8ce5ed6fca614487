"""Sorted lines of elements in host memory, by NumPy: the results of its stable sorts, by the fastest way to them.

NumPy sorts integers of 8 and 16 bits with the kind "stable" in linear time, numbers of 32 and 64 bits with the kind
"quicksort" in vectors of the processor, which is several times as fast as its stable sort, but not stable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Elements that NumPy's stable sort orders before the steps of another way have begun.
FEW = 256
_SHORT = 2048  # elements of a line
_WIDEST = 1 << 32  # elements of a line whose index does not fit beside 32 bits of a key


def is_ordinary(dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy knows the order of a dtype; it sorts NaN of ml_dtypes to any place."""
    return dtype.isbuiltin == 1


def _has_quick_kind(values: np.ndarray[Any, Any]) -> bool:
    return values.dtype.kind in "iuf" and values.itemsize in (4, 8)


def sorted_values(values: np.ndarray[Any, Any], along: int) -> Any:
    """Return the values in order along an axis; those that are equal and differ in bits stay in their order."""
    kind = _kind_for(values, along)
    if kind is None:
        return np.take_along_axis(values, sorted_places(values, along), along)
    return np.sort(values, along, kind=kind)


def sort_values(values: np.ndarray[Any, Any], along: int) -> None:
    """Put the values themselves in that order."""
    kind = _kind_for(values, along)
    if kind is None:
        values[...] = sorted_values(values, along)
    else:
        values.sort(along, kind=kind)


def _kind_for(values: np.ndarray[Any, Any], along: int) -> Any:
    """Return the kind of NumPy's sort that keeps equal values in their order; None where their places are faster."""
    if not is_ordinary(values.dtype):
        return None
    if values.size <= FEW or not _has_quick_kind(values):
        return "stable"
    if values.dtype.kind != "f" or not _has_equals(values):
        return "quicksort"
    return "stable" if values.itemsize == 8 or values.shape[along] <= _SHORT else None


def _has_equals(values: np.ndarray[Any, Any]) -> Any:
    """Return whether there may be floats that are equal in order and differ in bits: -0.0 and NaN."""
    integers = np.dtype(f"i{values.itemsize}")
    return np.isnan(values.max()) or values.view(integers).min() == np.iinfo(integers).min


def sorted_places(values: np.ndarray[Any, Any], along: int) -> Any:
    """Return the indices that sort along an axis; the indices of equal values ascend."""
    if not is_ordinary(values.dtype):
        values = values.astype(np.float32)
    length = values.shape[along]
    if length <= _SHORT or length >= _WIDEST or not _has_quick_kind(values):
        return np.argsort(values, along, kind="stable")
    keys = np.moveaxis(_keys(values), along, -1)
    halves = [keys]
    if keys.itemsize == 8:
        halves = [keys & np.uint64(_WIDEST - 1), keys >> np.uint64(32)]
    halves = [half for half in halves if (half != half.flat[0]).any()] or halves[:1]
    count = np.arange(keys.shape[-1], dtype=np.int64)
    places: Any = None
    for half in halves:  # the least important one first
        if places is not None:
            half = np.take_along_axis(half, places, -1)
        order = _order_of(half, count)
        places = order if places is None else np.take_along_axis(places, order, -1)
    return np.moveaxis(places, -1, along)


def _order_of(half: np.ndarray[Any, Any], count: np.ndarray[Any, Any]) -> Any:
    """Return the stable order of 32-bit keys. A key with its index behind it is unique, so any sort will do."""
    pairs = half.astype(np.uint64)
    pairs <<= np.uint64(32)
    pairs |= count.view(np.uint64)
    pairs.sort(axis=-1)
    pairs &= np.uint64(_WIDEST - 1)
    return pairs.view(np.int64)


def _keys(values: np.ndarray[Any, Any]) -> Any:
    """Return unsigned integers in the order of the values, equal ones for those that are equal in order."""
    unsigned, signed = (np.dtype(f"{kind}{values.itemsize}") for kind in "ui")
    if values.dtype.kind == "u":
        return values
    bits = values
    if values.dtype.kind == "f":
        floats = values + values.dtype.type(0)  # without -0.0
        floats[np.isnan(floats)] = np.nan
        bits = floats.view(signed)
        # Larger negative floats are smaller.
        bits ^= (bits >> (8 * values.itemsize - 1)) & np.iinfo(signed).max
    return bits.view(unsigned) ^ unsigned.type(1 << (8 * values.itemsize - 1))

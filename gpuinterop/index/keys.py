"""Reads keys with index arrays: a view of x, index arrays for some of its axes, and the position of their result.

The core reads keys of ints, slices, Ellipsis and None; such keys reach this module only if they are wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.arrays.numpy_views import (
    as_numpy_view,
    has_core_layout,
    read_by_numpy,
    refuse_mask,
    wrap_numpy,
)
from gpuinterop.arrays.scalars import is_scalar_or_list
from gpuinterop.elementwise import results
from gpuinterop.errors import (
    ArgumentTypeError,
    ArrayIndexError,
    ConversionTypeError,
    GpuInteropError,
    IndexKindError,
    short_repr,
    type_name,
)
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import devices_differ, index_out_of_range, too_many_indices
from gpuinterop.exchange.incoming import as_input_array
from gpuinterop.exchange.protocols import interfaces_of

WHERE = "x[key]"


@dataclass
class IndexArray:
    """Indices or a mask: on the GPU of the indexed array, else in host memory.

    Attributes
    ----------
    values : a gpuinterop array on a GPU, or a NumPy array.
    listed : the values were Python scalars, whose transfer to a device is not counted as a copy.
    live : NumPy's array is the memory of a gpuinterop array, which a capture on "cpu" reads at each replay;
        for other arrays the capture keeps the current values.
    inside : the indices are known to be in range.
    axis : the axis of the user's array, which errors name; None: that of the view.
    """

    values: Any
    listed: bool = False
    live: bool = False
    inside: bool = False
    axis: int | None = None

    @property
    def is_mask(self) -> bool:
        return bool(self.values.dtype == np.bool_)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def overlaps(self, x: Any) -> bool:
        """Return whether a write to `x` may change the values."""
        if isinstance(self.values, _core.Array):
            return bool(_core._may_overlap(self.values, x))
        return bool(x.device.type == "cpu" and _core._may_overlap(wrap_numpy(self.values), x))

    def to_device_of(self, view: Any, where: str) -> Any:
        """Return the values as a gpuinterop array on the device of `view`."""
        if isinstance(self.values, _core.Array):
            return self.values
        if view.device.type == "cpu":
            kept = _core._recording() is not None and not self.live
            return results.plain(wrap_numpy(self.values.copy() if kept else self.values))
        return upload(self.values, view.device, self.listed, where)


def upload(host: np.ndarray[Any, Any], device: Any, values: bool, where: str) -> Any:
    """Copy host values to the device now, even during a capture, as constants of the graph.

    The recorder keeps them alive. Another library's capture would not, so the copy is refused there.
    `values`: they were Python scalars, whose transfer is not counted as a copy.
    """

    def transfer() -> Any:
        copy = _core.empty(
            _core.gpuarray_class(), host.shape, host.dtype, device.type_code, device.index
        )
        _core.copy_into(
            copy, wrap_numpy(np.asarray(host, order="C")), where=where, uncounted=values
        )
        return copy

    if _core._recording() is None:
        return transfer()
    outside = devices.Stream(device)
    with devices.stream(outside):
        copy = transfer()
    outside.synchronize()  # the capture then has nothing to wait for
    return copy


@dataclass
class IndexExpression:
    """The elements that ``x[key]`` addresses.

    Attributes
    ----------
    view : the view of x that the basic parts of the key make, as a `GpuArray`.
    arrays : (first axis of the view, array) in the order of the key; a mask indexes as many axes as it has.
    axis : the axis of the result at which the axes of the indices begin.
    flags : the bools of the key, which add an axis of length 1 or 0.
    """

    view: Any
    arrays: list[tuple[int, IndexArray]]
    axis: int
    flags: tuple[bool, ...]


def as_index_array(value: Any, device: Any, where: str, masks: bool = True) -> IndexArray:
    """Return an array, a list, an int or a bool as indices for an array on `device`."""
    listed = is_scalar_or_list(value)
    if isinstance(value, (np.ndarray, np.generic)) or listed:
        refuse_mask(value, where)
        try:
            index: Any = read_by_numpy(value)
        except (ValueError, TypeError) as error:  # of ragged lists, and of lists of arrays on a GPU
            raise IndexKindError(where=where, expected="index lists whose parts have equal lengths",
                                 got=f"{short_repr(value)}: {error}",
                                 fix="pass equal lengths, or an index array for each axis") from None  # fmt: skip
    else:
        source = value if isinstance(value, _core.Array) else as_input_array(value, None, where)
        array = results.plain(source)
        if array.device.type == "cpu":
            index = as_numpy_view(array, where)
        elif array.device == device:
            index = array
        else:
            raise devices_differ(where, device, array.device)
    if index.size == 0 and index.dtype == np.float64 and listed:
        index = index.astype(np.int64)  # NumPy's dtype for an empty list is float64
    if index.dtype.kind not in ("iub" if masks else "iu"):
        got = f"dtype {index.dtype}"
        if masks:
            fix = "pass ints or bools" if listed else "convert it: key.astype('int64')"
            raise _not_indices(where, got, fix)
        fix = "pass ints" if listed else "cast them: indices.astype('int64')"
        raise ArgumentTypeError(where=where, expected="integer indices", got=got,
                                fix=f"{fix}, or index with a mask: x[mask]")  # fmt: skip
    if isinstance(index, np.ndarray) and not has_core_layout(index):
        as_input_array(index, None, where)  # raises
    return IndexArray(index, listed, live=isinstance(value, _core.Array))


def _no_index(where: str, item: Any) -> IndexKindError:
    """Return the error for an object that is no index, with a conversion that may make it one."""
    fix = "pass ints: an array has no named fields"
    if not isinstance(item, (str, bytes)):
        fix = "pass ints or slices"
        convert = next((f for f, m in _CONVERSIONS.items() if hasattr(type(item), m)), None)
        fix = f"convert it: {convert}(key)" if convert else fix
    return _not_indices(where, type_name(item), fix)


_CONVERSIONS = {"list": "__iter__", "int": "__int__"}


def _not_indices(where: str, got: str, fix: str) -> IndexKindError:
    return IndexKindError(
        where=where, got=got, fix=fix,
        expected="ints, slices, Ellipsis, None, arrays of integers or bools, and tuples of them as key",
    )  # fmt: skip


def _part(item: Any, device: Any, where: str) -> Any:
    """Return a part of a key as None, Ellipsis, a slice, an int, a bool or an `IndexArray`."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return bool(item)
    if isinstance(item, (int, np.integer)):
        return operator.index(item)
    known = isinstance(item, (_core.Array, np.ndarray, list, tuple))
    if not known and not any(interfaces_of(item)):
        try:
            return operator.index(item)
        except TypeError:
            raise _no_index(where, item) from None
    try:
        array = as_index_array(item, device, where)
    except ConversionTypeError:
        raise _no_index(where, item) from None
    if array.shape == ():
        value = array.values.item()
        return value if isinstance(value, bool) else int(value)
    return array


def _consumed(part: Any) -> int:
    """Return the number of axes that a part of the key indexes."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return len(part.shape) if isinstance(part, IndexArray) and part.is_mask else 1


def read_key(x: Any, key: Any, where: str = WHERE) -> IndexExpression:
    """Read a key by NumPy's rules; raise for one that fits no array of this shape."""
    source = results.plain(x)
    parts = [_part(k, source.device, where) for k in (key if isinstance(key, tuple) else (key,))]
    consumed = [_consumed(part) for part in parts]
    indexed, rank = sum(consumed), source.ndim
    if indexed > rank:
        raise too_many_indices(where, indexed, source.shape)
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise ArrayIndexError(where=where, expected="at most one Ellipsis", got=f"{len(ellipses)} of them",
                              fix="write the others as slices")  # fmt: skip
    if indexed < rank and ellipses:
        at = ellipses[0]
        parts[at : at + 1] = [slice(None)] * (rank - indexed)
        consumed[at : at + 1] = [1] * (rank - indexed)
    basic: list[Any] = []
    arrays: list[tuple[int, IndexArray]] = []
    flags: list[bool] = []
    advanced: list[int] = []  # places in the key; ints are index arrays too if the key has arrays
    before = axis = dimension = 0
    for position, (part, count) in enumerate(zip(parts, consumed, strict=True)):
        if isinstance(part, (int, IndexArray)):  # bools are ints
            before = before if advanced else axis
            advanced.append(position)
        if isinstance(part, IndexArray):
            if part.is_mask:
                _require_shape(part, source.shape[dimension : dimension + count], dimension, where)
            part.axis = dimension
            arrays.append((axis, part))
            basic += [slice(None)] * count
            axis += count
        elif isinstance(part, bool):
            flags.append(part)
        elif part is not Ellipsis:  # which separates index arrays even if it stands for no axis
            n = source.shape[dimension] if type(part) is int else 0
            if type(part) is int and not -n <= part < n:
                raise index_out_of_range(where, n, f"index {part}", dimension)
            basic.append(part)
            axis += not isinstance(part, int)
        dimension += count
    together = not advanced or advanced[-1] - advanced[0] + 1 == len(advanced)
    whole = all(type(part) is slice and part == slice(None) for part in basic)
    with reraise_from(where):
        view = source if whole else source[tuple(basic)]
    return IndexExpression(view, arrays, before if together else 0, tuple(flags))


def _require_shape(mask: IndexArray, shape: tuple[int, ...], axis: int, where: str) -> None:
    # As in NumPy an axis without elements fits every length.
    if any(m not in (n, 0) for m, n in zip(mask.shape, shape, strict=True)):
        raise ArrayIndexError(
            where=where, expected=f"a mask of shape {shape}, the length of the axes that it indexes",
            got=f"a mask of shape {mask.shape}", axis=axis,
            fix="reshape the mask, or write slices for the axes before it: x[:, mask]",
        )  # fmt: skip


def block_shape(shapes: Sequence[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """Return the shape to which index arrays broadcast."""
    try:
        return _core.broadcast_shapes(shapes, where)
    except GpuInteropError as error:
        raise ArrayIndexError(
            where=where, expected="index arrays whose shapes broadcast", got=error.got, fix=error.fix
        ) from None  # fmt: skip

"""Sort along an axis, in NumPy's order: NaN last, -0.0 equal to 0.0, complex numbers by their real parts first.

Every sort is stable. On "cpu" NumPy sorts the memory: host_lines.py says how; lines.py has the kernels of a GPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import WORKING, name_of
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.elementwise import results
from gpuinterop.errors import ArgumentTypeError, DTypeError, ShapeError, short_repr
from gpuinterop.errors.arguments import read_counts, require_bool
from gpuinterop.errors.messages import not_one_of
from gpuinterop.index.getitem import writable

from .host_lines import FEW, is_ordinary, sort_values, sorted_places, sorted_values
from .lines import fits_block, needs_keys, plan_of_lines, sorted_lines

_MOST_SORTED_AXES = 32  # by NumPy 2.1; arrays with more have axes of one element
_KINDS = ("quicksort", "heapsort", "mergesort", "stable")


def plan_of(
    indices: bool, x: Any, axis: Any = -1, kind: Any = None, order: Any = None, stable: Any = None,
    descending: Any = False,
) -> Any:  # fmt: skip
    """Return the plan of a sort on a GPU; None for what is not one plan over the last axis."""
    _check_options(kind, order, stable, "argsort" if indices else "sort")
    source = results.plain(x)
    if axis is None and source.is_c_contiguous():
        source, axis = source.reshape(-1), -1
    known = type(axis) is int and axis in (-1, source.ndim - 1) and isinstance(descending, bool)
    if not known or name_of(x.dtype) not in WORKING or needs_keys(x.dtype):
        return None
    if not source.size or not source.ndim or not source.is_c_contiguous():
        return None
    return plan_of_lines(source.device.index, source.dtype, source.shape, indices, descending)


@_core.planned(partial(plan_of, False), "x axis kind order * stable descending")
@_core.by_numpy(np.sort, "x axis", fixed={"kind": "stable"}, most=FEW)
def sort(
    x: Any, axis: int | None = -1, kind: str | None = None, order: None = None, *,
    stable: bool | None = None, descending: bool = False,
) -> Any:  # fmt: skip
    """Return a sorted copy of x along `axis`; None flattens x first.

    NaN is last, and -0.0 equals 0.0. Every sort is stable: equal elements keep their order for each `kind`, also with
    `descending`. The result is a new C-ordered array on the device of x. On a GPU the sort runs on the current stream.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.sort([3, 1, 2]).tolist(), gpuinterop.sort([3, 1, 2], descending=True).tolist()
    ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    """
    return _sorted(x, axis, kind, order, stable, descending, "sort")


@_core.planned(partial(plan_of, True), "x axis kind order * stable descending")
@_core.by_numpy(np.argsort, "x axis", fixed={"kind": "stable"}, most=FEW)
def argsort(
    x: Any, axis: int | None = -1, kind: str | None = None, order: None = None, *,
    stable: bool | None = None, descending: bool = False,
) -> Any:  # fmt: skip
    """Return the indices that sort x along `axis`, as int64; None flattens x first.

    The order is that of `sort`; indices of equal elements ascend.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.argsort([3, 1, 2, 1]).tolist()
    [1, 3, 2, 0]
    """
    return _sorted(x, axis, kind, order, stable, descending, "argsort")


def sort_in_place(
    x: Any, axis: int = -1, kind: str | None = None, order: None = None, *,
    stable: bool | None = None, descending: bool = False,
) -> None:  # fmt: skip
    """Sort x itself, as `x.sort()` does."""
    target = writable(x, "sort")
    found = _sorted(target, axis, kind, order, stable, descending, "sort", in_place=True)
    if found is not target:
        _core.copy_into(target, found, where="sort", uncounted=True)


def partition_in_place(x: Any, kth: Any, axis: int = -1) -> None:
    """Partition x itself, as `x.partition()` does."""
    target = writable(x, "partition")
    found = _partitioned(target, kth, axis, "partition")
    _core.copy_into(target, found, where="partition", uncounted=True)


def _sorted(
    x: Any,
    axis: Any,
    kind: Any,
    order: Any,
    stable: Any,
    descending: Any,
    where: str,
    in_place: bool = False,
) -> Any:
    """Return the sorted elements or indices; with `in_place` they may be in x itself, which is then the result."""
    _check_options(kind, order, stable, where)
    descending = require_bool(descending, "descending", where)
    (x,) = results.as_operands(where, x)
    source = results.plain(x)
    indices = where == "argsort"
    if axis is None or (indices and _is_number(source, axis)):
        source, axis = source.reshape(-1), 0
    along = _core.read_axis(axis, source.ndim, where)
    require_ordered(source.dtype, where)
    dtype = np.dtype(np.int64) if indices else source.dtype
    if source.device.type == "cpu":
        if in_place and not descending and source.is_c_contiguous() and x.ndim <= _MOST_SORTED_AXES:
            _sort_memory(as_numpy_view(source, where, written=True), along)
            return x
        found = results.new_like(source, source.shape, dtype, where, type(x))
        order = partial(_sort_by_numpy, along=along, indices=indices, descending=descending)
        return results.fill_by_numpy(found, order, source, where=where)
    if in_place and along == source.ndim - 1 and fits_block(source):
        _core._prepare_write(source, where)
        sorted_lines(source, indices, descending, where, source)
        _core._note_write(source)
        return x
    lines = sorted_lines(source.swapaxes(along, -1), indices, descending, where)
    if along != source.ndim - 1:
        lines = lines.swapaxes(along, -1)._copied(where)
    return _core.view(results.class_for(type(x), dtype), lines)


def _is_number(x: Any, axis: Any) -> bool:
    """Return whether x is 0-d and `axis` one of a vector: NumPy orders it as a vector, but refuses to sort it."""
    return not x.ndim and axis in (0, -1)


def _sort_memory(values: Any, along: int) -> None:
    def work() -> None:
        with np.errstate(all="ignore"):  # no operation warns
            sort_values(values, along)

    results.record_or_run(work)


def _check_options(kind: Any, order: Any, stable: Any, where: str) -> None:
    """Refuse options that NumPy refuses; those that it accepts have no effect, because every sort is stable."""
    if kind is not None and kind not in _KINDS:
        raise not_one_of(where, "kind", _KINDS, kind)
    if order is not None:
        raise ArgumentTypeError(where=where, expected="order=None, because arrays have no fields",
                                got=f"order={short_repr(order)}", fix="omit order")  # fmt: skip
    if stable is not None:
        require_bool(stable, "stable", where)
        if kind is not None:
            raise ShapeError(where=where, expected="kind or stable", got="both", fix="omit kind")


def require_ordered(dtype: np.dtype[Any], where: str) -> None:
    """Refuse a dtype whose elements have no order on a GPU."""
    if name_of(dtype) not in WORKING:
        raise DTypeError(where=where, expected="a dtype with which GPUs compute", got=name_of(dtype),
                         fix='cast first: x.astype("float32")')  # fmt: skip


def _sort_by_numpy(values: Any, along: int, indices: bool, descending: bool) -> Any:
    if values.ndim > _MOST_SORTED_AXES:
        single = tuple(i for i, n in enumerate(values.shape) if n == 1 and i != along)
        inner = along - sum(i < along for i in single)
        return _sort_by_numpy(values.squeeze(single), inner, indices, descending).reshape(
            values.shape
        )
    # The reverse of a descending order that keeps equal elements in place is an ascending one of the reverse.
    given = np.flip(values, along) if descending else values
    if indices:
        found = sorted_places(given, along)
        return values.shape[along] - 1 - np.flip(found, along) if descending else found
    ordered = sorted_values(given, along)
    return np.flip(ordered, along) if descending else ordered


@_core.by_numpy(np.ndarray.partition, "x kth axis", copied=True)
def partition(x: Any, kth: Any, axis: int | None = -1) -> Any:
    """Return a copy of x whose element at `kth` along `axis` is that of the sorted array.

    Smaller elements are before it, larger ones behind it, in any order. On a GPU they are sorted too.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.partition([3, 1, 2], 1).tolist()
    [1.0, 2.0, 3.0]
    """
    return _partitioned(x, kth, axis, "partition")


@_core.by_numpy(np.argpartition, "x kth axis")
def argpartition(x: Any, kth: Any, axis: int | None = -1) -> Any:
    """Return the indices of `partition`, as int64.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.argpartition([3, 1, 2], 1).tolist()
    [1, 2, 0]
    """
    return _partitioned(x, kth, axis, "argpartition")


def _partitioned(x: Any, kth: Any, axis: Any, where: str) -> Any:
    (x,) = results.as_operands(where, x)
    indices = where == "argpartition"
    if indices and _is_number(x, axis):
        axis = None
    along = 0 if axis is None else _core.read_axis(axis, x.ndim, where)
    length = x.size if axis is None else x.shape[along]
    places = read_counts(kth, where, "kth")
    for place in places:
        if length and not -length <= place < length:  # any place of an empty axis, as in NumPy
            raise ShapeError(where=where, expected=f"positions from {-length} to {length - 1}", got=f"kth={place}",
                             fix="pass a position in the axis")  # fmt: skip
    if (
        not places
        or x.device.type != "cpu"
        or x.ndim > _MOST_SORTED_AXES
        or not is_ordinary(x.dtype)
    ):
        return _sorted(x, axis, None, None, None, False, "argsort" if indices else "sort")
    source = results.plain(x.reshape(-1) if axis is None else x)
    dtype = np.dtype(np.int64) if indices else source.dtype
    found = results.new_like(source, source.shape, dtype, where, type(x))
    function = partial(np.argpartition if indices else np.partition, kth=places, axis=along)
    return results.fill_by_numpy(found, function, source, where=where)

"""The functions that index: take, put, nonzero and similar ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.numpy_views import as_numpy_view, to_host_array
from gpuinterop.arrays.scalars import PIECE
from gpuinterop.elementwise import results
from gpuinterop.elementwise.functions import cast
from gpuinterop.errors import ShapeError, short_repr
from gpuinterop.errors.arguments import read_counts
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import not_one_of

from .elements import MODES, Elements, ElementsAlongAxis
from .getitem import as_assigned_values, read, unshared_indices, writable, write
from .keys import IndexArray, as_index_array
from .masks import MOST, may_wait, places, plan_of_compressed, plan_of_places, repeated_places


@_core.planned(plan_of_places, "x", tuple=tuple)
@_core.served
def nonzero(x: Any) -> tuple[Any, ...]:
    """Return the indices of the elements that are not zero: one int64 array for each axis.

    The host waits for their number, so a capture cannot record it. ``x[nonzero(x)]`` are these elements.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.asarray([[0, 7], [8, 0]], device="cpu")
    >>> [places.tolist() for places in gpuinterop.nonzero(x)]
    [[0, 1], [1, 0]]
    """
    (x,) = results.as_operands("nonzero", x)
    mask = _as_mask(x, "nonzero")
    if mask.ndim == 0:
        raise ShapeError(where="nonzero", expected="an array of at least one dimension", got="a 0-d array",
                         fix="reshape it: x.reshape(1)")  # fmt: skip
    return tuple(places(mask, "nonzero"))


@_core.planned(partial(plan_of_places, apart=False), "x")
@_core.served
def argwhere(x: Any) -> Any:
    """Return the indices of the elements that are not zero: one row for each element, one column for each axis.

    The result is a new int64 array. The host waits for its length, as in `nonzero`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.argwhere(gpuinterop.asarray([[0, 7], [8, 0]], device="cpu")).tolist()
    [[0, 1], [1, 0]]
    """
    (x,) = results.as_operands("argwhere", x)
    mask = _as_mask(x, "argwhere")
    if mask.ndim == 0:  # one row without columns, or none
        return places(mask.reshape(1), "argwhere", apart=False)[:, :0]
    return places(mask, "argwhere", apart=False)


@_core.planned(partial(plan_of_places, flat=True), "x")
@_core.served
def flatnonzero(x: Any) -> Any:
    """Return the indices of the elements that are not zero in the flattened array.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.flatnonzero(gpuinterop.asarray([0, 7, 8], device="cpu")).tolist()
    [1, 2]
    """
    (x,) = results.as_operands("flatnonzero", x)
    return places(_as_mask(x, "flatnonzero").ravel(), "flatnonzero")[0]


def _as_mask(x: Any, where: str) -> Any:
    """Return whether the elements of x are not zero."""
    view = results.plain(x)
    _core._require_set(where, view)
    return view if view.dtype == np.bool_ else cast(view, np.bool_)


# ---- take and similar functions ---------------------------------------------------------------------


def _read_mode(mode: Any, where: str) -> int:
    if not isinstance(mode, str) or mode not in MODES:
        raise not_one_of(where, "mode", ("raise", "wrap", "clip"), mode)
    return MODES[mode]


@_core.served
def take(
    x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise",
    max_threads: int = 1,
) -> Any:  # fmt: skip
    """Return the elements of x at `indices` along `axis`, or of the flattened x if `axis` is None.

    `mode` determines the effect of an index out of range: "raise" IndexError, "wrap" around, or
    "clip" to the ends. Negative indices count from the end with "raise". The result is a new
    C-ordered array, or `out`. Indices on a GPU are checked there while the elements are read, and with
    "raise" the call waits for the result; "wrap" and "clip" do not wait.
    `max_threads` is accepted for old programs and has no effect.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.take([10, 20, 30], [2, 0]).tolist()
    [30.0, 10.0]
    """
    number = _read_mode(mode, "take")
    (x,) = results.as_operands("take", x)
    source = results.plain(x)
    if axis is None:
        source = source.reshape(-1)
    if source.ndim == 0:
        source = source.reshape(1)
    along = _core.read_axis(0 if axis is None else axis, source.ndim, "take")
    array = as_index_array(indices, source.device, "take", masks=False)
    return read(Elements(source, [(along, array)], along, "take", number), x, out)


@_core.served
@_core.by_numpy(np.take_along_axis, "x indices axis", 2, mixed=True)
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """Return the elements of x at `indices` along `axis`, matched with the other axes.

    `indices` has as many axes as x and broadcasts with it along the others, as in
    ``numpy.take_along_axis``: the result of `argsort` or of `argmax` with its axis kept sorts or reduces.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.asarray([[3, 1], [2, 4]], device="cpu")
    >>> gpuinterop.take_along_axis(x, [[1], [0]], axis=1).tolist()
    [[1.0], [2.0]]
    """
    (x,) = results.as_operands("take_along_axis", x)
    return read(_along_axis(x, indices, axis, "take_along_axis"), x)


def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Set the elements of x at `indices` along `axis`, which match the other axes: see `take_along_axis`.

    Nothing is written if an index is out of range.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros((2, 2), device="cpu")
    >>> gpuinterop.put_along_axis(x, [[1], [0]], 5, axis=1)
    >>> x.tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    target = writable(x, "put_along_axis")
    elements = _along_axis(target, indices, axis, "put_along_axis", target=x)
    write(elements, as_assigned_values(values, x, "put_along_axis"), x)


def _along_axis(
    x: Any, indices: Any, axis: int | None, where: str, target: Any = None
) -> ElementsAlongAxis:
    source = results.plain(x)
    array = as_index_array(indices, source.device, where, masks=False)
    if axis is None:
        source, axis = source.reshape(-1, copy=False if target is not None else None), 0
    along = _core.read_axis(axis, source.ndim, where)
    if len(array.shape) != source.ndim:
        raise ShapeError(where=where, expected=f"indices of {source.ndim} dimensions, as many as x has",
                         got=f"indices of shape {array.shape}",
                         fix="add axes of length 1: indices[..., None]")  # fmt: skip
    return ElementsAlongAxis(source, unshared_indices(array, target), along, where)


def put(x: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Set the elements of the flattened x at `ind` to those of `v`, which is repeated as often as needed.

    Nothing is written if an index is out of range. If an index is repeated, it is undefined which of its
    values remains.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros(4, device="cpu")
    >>> gpuinterop.put(x, [0, 2, 3], [7, 8])
    >>> x.tolist()
    [7.0, 0.0, 8.0, 7.0]
    """
    number = _read_mode(mode, "put")
    target = writable(x, "put")
    array = as_index_array(ind, target.device, "put", masks=False)
    values, count = as_assigned_values(v, x, "put").ravel(), array.values.size
    if not count or not values.size:
        return
    if not target.is_c_contiguous():
        ordered = target._copied("put")
        put(ordered, ind, values, mode)
        target[...] = ordered
        return
    flat = IndexArray(unshared_indices(array, x).values.reshape(-1), array.listed, array.live)
    elements = Elements(target.reshape(-1), [(0, flat)], 0, "put", number)
    if 1 < values.size != count:
        times = -(-count // values.size)
        values = values[None].broadcast_to((times, values.size)).reshape(-1)[:count]
    write(elements, values, x)


@_core.planned(plan_of_compressed, "condition x axis", 2)
@_core.by_numpy(np.compress, "condition x axis", 2, mixed=True)
def compress(condition: Any, x: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the parts of x along `axis` for which the 1-d `condition` is true; None flattens x first.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.asarray([[1, 2, 3], [4, 5, 6]], device="cpu")
    >>> gpuinterop.compress([True, False, True], x, axis=1).tolist()
    [[1.0, 3.0], [4.0, 6.0]]
    """
    (x,) = results.as_operands("compress", x)
    source = results.plain(x)
    if axis is None:
        source, axis = source.reshape(-1), 0
    along = _core.read_axis(axis, source.ndim, "compress")
    selector = as_index_array(condition, source.device, "compress")
    mask = _as_mask(selector.to_device_of(source, "compress"), "compress")
    if mask.ndim != 1:
        raise ShapeError(where="compress", expected="a condition of one dimension", got=f"shape {mask.shape}",
                         fix="index with the condition: x[condition]")  # fmt: skip
    found = IndexArray(places(mask, "compress")[0], inside=mask.size <= source.shape[along])
    return read(Elements(source, [(along, found)], along, "compress"), x, out)


@_core.served
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Return an array with each element of x along `axis` repeated; None flattens x first.

    `repeats` is a number for all, or one for each element along the axis. If they are an array on a GPU,
    the host waits for their sum, because it determines the shape.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.repeat(gpuinterop.asarray([3, 4], device="cpu"), [2, 1]).tolist()
    [3.0, 3.0, 4.0]
    """
    (x,) = results.as_operands("repeat", x)
    if isinstance(repeats, _core.Array):
        result = _repeat_on_device(x, repeats, axis)
        if result is not None:
            return result
        repeats = to_host_array(repeats, "repeat")
    with reraise_from("repeat"):
        # Not one by one, which would take long for an array.
        of_ints = (
            isinstance(repeats, np.ndarray) and repeats.dtype.kind in "iu" and repeats.ndim == 1
        )
        counts = np.asarray(repeats if of_ints else read_counts(repeats, "repeat", "repeats"))
        if counts.dtype != object:
            counts = counts.astype(np.intp, copy=False)  # not uint64, nor the float64 of []
    x = x.ravel() if axis is None else x
    along = _core.read_axis(0 if axis is None else axis, x.ndim, "repeat")
    n = x.shape[along]
    if counts.dtype == object or len(counts) not in (1, n) or counts.min(initial=0) < 0:
        raise ShapeError(
            where="repeat", expected=f"one count of 0 or more, or {n} of them",
            got=short_repr(counts.tolist()), fix="pass a count for each element along the axis, or one for all",
        )  # fmt: skip
    before, after = x.shape[:along], x.shape[along + 1 :]
    if len(counts) != 1:
        # Python adds where int64 might wrap around.
        exact = counts.sum(dtype=np.float64) < 1 << 62
        total = int(counts.sum()) if exact else sum(counts.tolist())
        if x.device.type != "cpu" and x.size and total < MOST:
            return take(x, np.repeat(np.arange(n), counts), along)
        output = results.new_like(x, (*before, total, *after), x.dtype, "repeat", type(x))
        if output.size:
            source, target = as_numpy_view(x, "repeat"), as_numpy_view(output, written=True)
            results.record_or_run(lambda: _repeat_on_host(source, counts, along, target))
        return output
    count = int(counts[0])
    spread = x.expand_dims(along + 1).broadcast_to((*before, n, count, *after))
    return spread.copy().reshape((*before, n * count, *after))


def _repeat_on_device(x: Any, repeats: Any, axis: int | None) -> Any:
    """Return x repeated by several counts on its GPU, or None if `repeats` are not that or not valid."""
    counts, x = core_view(repeats), x.ravel() if axis is None else x
    along = _core.read_axis(0 if axis is None else axis, x.ndim, "repeat")
    fits = 1 < counts.size == x.shape[along] and counts.ndim == 1 and counts.dtype.kind in "iu"
    if (
        not fits
        or not x.size
        or counts.device.type == "cpu"
        or counts.device != x.device
        or not may_wait(x.device)
    ):
        return None
    found = repeated_places(counts, "repeat")
    if found is None:
        return None
    elements = [(along, IndexArray(found, inside=True))]
    return read(Elements(results.plain(x), elements, along, "repeat"), x)


def _repeat_on_host(source: Any, counts: Any, along: int, target: Any) -> None:
    """Fill `target` in pieces of about `PIECE` elements, so that temporary arrays stay small."""
    source, target, start = np.moveaxis(source, along, 0), np.moveaxis(target, along, 0), 0
    step = max(1, PIECE * len(target) // max(target.size, 1))
    for begin in range(0, len(counts) if target.size else 0, step):
        ends, first = start + np.cumsum(counts[begin : begin + step], dtype=np.intp), begin
        while start < ends[-1]:
            last = max(begin + int(np.searchsorted(ends, start + step, "right")), first + 1)
            part, end = source[first:last], int(ends[last - 1 - begin])
            # One element is broadcast.
            target[start:end] = part if last == first + 1 else np.repeat(part, counts[first:last], 0)  # fmt: skip
            first, start = last, end

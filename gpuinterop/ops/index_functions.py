"""``x[key]`` and ``x[key] = value`` with index arrays and masks, and the functions that index: take, put, nonzero."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_assigned_array, is_scalar_or_list
from gpuinterop.error_context import reraise_from
from gpuinterop.error_messages import (
    not_an_array,
    not_one_of,
    read_only,
    shapes_do_not_broadcast,
    type_name,
)
from gpuinterop.errors import ShapeError, short_repr
from gpuinterop.host_views import as_numpy_view, to_host_array
from gpuinterop.layout import broadcast_shapes, core_view
from gpuinterop.option_values import read_counts
from gpuinterop.views import read_axis

from . import output_arrays
from .casting import cast
from .compaction import Selection
from .core_callbacks import CALLS, FUNCTIONS
from .index_expression import (
    WHERE,
    IndexArray,
    IndexExpression,
    as_index_array,
    read_key,
    upload,
)
from .indexing import MODES, RAISE, Elements, ElementsAlongAxis
from .operand_conversion import viewed

ASSIGNMENT = "x[key] = value"


# ---- x[key] -----------------------------------------------------------------------------------------


def getitem(x: Any, key: Any) -> Any:
    """Return ``x[key]`` for a key with index arrays: a new array."""
    expression = read_key(x, key)
    if _is_one_mask(expression) and expression.view.ndim == len(expression.arrays[0][1].shape):
        mask = expression.arrays[0][1].beside(expression.view, WHERE)
        return Selection(mask, WHERE).read(expression.view, type(x))
    return _read(_elements(expression, WHERE), x)


def setitem(x: Any, key: Any, value: Any) -> None:
    """Carry out ``x[key] = value`` for a key with index arrays."""
    if core_view(x).readonly:
        raise read_only(ASSIGNMENT)
    expression = read_key(x, key)
    values = _assigned(value, x, ASSIGNMENT)
    if _is_one_mask(expression):
        _assign_masked(expression, values)
    else:
        _write(_elements(expression, ASSIGNMENT, x), values, x)


def add_at(x: Any, indices: Any, values: Any) -> None:
    """Add values to the elements of x at ``x[indices]``, each as often as its index occurs.

    ``x[indices] += values`` adds once to an element whose index is repeated. `indices` is any key. The
    additions of one element have no order on a GPU, so sums of floats may differ by rounding from run to
    run.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros(3, device="cpu")
    >>> gpuinterop.add.at(x, [0, 2, 0], 1)
    >>> x.tolist()
    [2.0, 0.0, 1.0]
    """
    where = "add.at"
    _writable(x, where)
    expression = read_key(x, indices, where)
    values = _assigned(values, x, where)
    if not expression.arrays:  # no element twice
        target = _flagged(expression)
        if values.device != target.device:  # one element, in host memory
            number = as_numpy_view(values).reshape(-1)[0]
            values = output_arrays.new_like(target, (), target.dtype, where)
            values[...] = number
        FUNCTIONS["add"](target, values, out=target)
        return
    _write(_elements(expression, where, x), values, x, adds=True)


def _is_one_mask(expression: IndexExpression) -> bool:
    """Whether one mask indexes the view, and its result lies where its axes do."""
    if expression.flags or len(expression.arrays) != 1:
        return False
    first, array = expression.arrays[0]
    return array.is_mask and expression.axis == first


def _elements(expression: IndexExpression, where: str, written: Any = None) -> Elements:
    """The elements that the key addresses; masks are replaced by the indices that they select."""
    view = expression.view
    if not expression.arrays:
        view = _flagged(expression)
    arrays: list[tuple[int, IndexArray]] = []
    for first, array in expression.arrays:
        if array.is_mask:
            selection = Selection(array.beside(view, where), where)
            places = [IndexArray(p, inside=True) for p in selection.places()]
            arrays += [(first + i, p) for i, p in enumerate(places)]
        else:
            arrays.append((first, _unshared(array, written)))
    block = [(int(flag),) for flag in expression.flags] if expression.arrays else []
    return Elements(view, arrays, expression.axis, where, RAISE, block)


def _flagged(expression: IndexExpression) -> Any:
    """The view of a key with bools and without arrays: an axis of length 1, or 0 if one is False."""
    view, axis = expression.view, expression.axis
    if expression.flags:
        view = view[(slice(None),) * axis + (None,)]
        view = view[(slice(None),) * axis + (slice(0 if False in expression.flags else 1),)]
    return view


def _read(elements: Elements, x: Any, out: Any = None) -> Any:
    seen = elements.view
    if out is None:
        device = seen.device
        target = _core.empty(type(x), elements.shape, seen.dtype, device.type_code, device.index,
                             where=elements.where)  # fmt: skip
    else:
        target = out
        output_arrays.check_out(out, elements.shape, seen.dtype, seen, elements.where)
        if _core._may_overlap(out, seen):
            elements.view = _copy_of(seen, elements.where)
        elements.arrays = [
            a.copy() if isinstance(a, _core.Array) and _core._may_overlap(out, a) else a
            for a in elements.arrays
        ]
    if elements.axes:
        elements.read(target, keeps=out is not None)
    elif 0 not in elements.shape:
        _core.copy_into(target, seen, where=elements.where, uncounted=True)
    return target


def _write(elements: Elements, values: Any, x: Any, adds: bool = False) -> None:
    if isinstance(values, _core.Array) and _core._may_overlap(values, x):
        values = _copy_of(values, elements.where)
    fitted = _fitted(values, elements.shape, elements.where)
    if elements.axes:
        _core._prepare_write(elements.view, elements.where)
        elements.write(fitted, adds)
    else:
        elements.view[...] = fitted


def _copy_of(x: Any, where: str) -> Any:
    """A copy, because the operation writes to memory that `x` shares."""
    made = _core.empty(type(x), x.shape, x.dtype, x.device.type_code, x.device.index, where=where)
    _core.copy_into(made, x, where=where)
    return made


def _assigned(value: Any, x: Any, where: str) -> Any:
    """The assigned value in the dtype of `x`, beside it; one element may stay in host memory."""
    target = output_arrays.plain(x)
    found = value if isinstance(value, _core.Array) and value.dtype == target.dtype else None
    if type(value) in (bool, int, float) and _core._recording() is None:
        found = _core.empty(_core.Array, (), target.dtype, 1, 0)  # on "cpu"
        found[...] = value  # the core converts Python scalars
    elif found is None:
        found = as_assigned_array(value, target.dtype, type(x), where)
    found = output_arrays.plain(found)
    if found.device == target.device or (found.size == 1 and found.device.type == "cpu"):
        return found
    made = _core.empty(type(found), found.shape, found.dtype, target.device.type_code,
                       target.device.index, where=where)  # fmt: skip
    _core.copy_into(made, found, where=where, uncounted=is_scalar_or_list(value))
    return made


def _fitted(values: Any, shape: tuple[int, ...], where: str) -> Any:
    """The values broadcast to `shape`; leading axes of length 1 are dropped, as in NumPy."""
    while values.ndim > len(shape) and values.shape[0] == 1:
        values = values[0]
    if broadcast_shapes([values.shape, shape], where) != shape:
        raise shapes_do_not_broadcast(where, values.shape, shape)
    return (
        values if values.size == 1 and values.device.type == "cpu" else values.broadcast_to(shape)
    )


# ---- masks ------------------------------------------------------------------------------------------


def _assign_masked(expression: IndexExpression, values: Any) -> None:
    """x[..., mask, ...] = values, without the number of selected elements where the values do not need it."""
    view, (first, array) = expression.view, expression.arrays[0]
    mask = array.beside(view, ASSIGNMENT)
    count_axes = mask.ndim
    after = view.ndim - first - count_axes
    while values.ndim > view.ndim - count_axes + 1 and values.shape[0] == 1:
        values = values[0]
    along = values.ndim - 1 - after  # the axis of the values along which the selected elements lie
    if along < 0 or values.shape[along] == 1:
        spread = values if along < 0 else values[(slice(None),) * along + (0,)]
        if along >= 0:
            spread = spread[(slice(None),) * along + (None,) * count_axes]
        fitted = _fitted(spread, view.shape, ASSIGNMENT)
        whole = mask[(Ellipsis,) + (None,) * after].broadcast_to(view.shape)
        _fill_selected(view, whole, fitted)
        return
    selection = Selection(mask, ASSIGNMENT)
    if count_axes == view.ndim and view.device.type != "cpu":
        if _core._may_overlap(values, view):
            values = _copy_of(values, ASSIGNMENT)
        fitted = _fitted(values, (selection.count,), ASSIGNMENT)
        _core._prepare_write(view, ASSIGNMENT)
        selection.assign(view, fitted)
        return
    arrays = [(first + i, IndexArray(p, inside=True)) for i, p in enumerate(selection.places())]
    _write(Elements(view, arrays, expression.axis, ASSIGNMENT), values, view)


def _fill_selected(view: Any, mask: Any, values: Any) -> None:
    if view.size == 0:
        return
    if _core._may_overlap(values, view):
        values = _copy_of(values, ASSIGNMENT)
    if _core._may_overlap(mask, view):
        mask = _copy_of(mask, ASSIGNMENT)
    _core._prepare_write(view, ASSIGNMENT)
    if view.device.type != "cpu":
        _core._assign_masked(view, mask, values, ASSIGNMENT)
        return
    target, chosen = as_numpy_view(view, written=True), as_numpy_view(mask)
    source = np.broadcast_to(as_numpy_view(values), view.shape)
    output_arrays.record_or_run(lambda: np.copyto(target, source, where=chosen))


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
    (x,) = output_arrays.taken("nonzero", x)
    mask = _as_mask(x)
    if mask.ndim == 0:
        raise ShapeError(where="nonzero", expected="an array of at least one dimension", got="a 0-d array",
                         fix="make it 1-d: x.reshape(1)")  # fmt: skip
    return tuple(Selection(mask, "nonzero").places())


def flatnonzero(x: Any) -> Any:
    """Return the indices of the elements that are not zero in the flattened array.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.flatnonzero(gpuinterop.asarray([0, 7, 8], device="cpu")).tolist()
    [1, 2]
    """
    (x,) = output_arrays.taken("flatnonzero", x)
    return Selection(_as_mask(x).ravel(), "flatnonzero").places()[0]


def _as_mask(x: Any) -> Any:
    plain = output_arrays.plain(x)
    return plain if plain.dtype == np.bool_ else cast(plain, np.bool_)


# ---- take and its like ------------------------------------------------------------------------------


def _read_mode(mode: Any, where: str) -> int:
    if not isinstance(mode, str) or mode not in MODES:
        raise not_one_of(where, "mode", ("raise", "wrap", "clip"), mode)
    return MODES[mode]


def take(
    x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise",
    max_threads: int = 1,
) -> Any:  # fmt: skip
    """Return the elements of x at `indices` along `axis`, of the flattened x when it is None.

    `mode` determines the effect of an index out of range: "raise" IndexError, "wrap" around, or
    "clip" to the ends. Negative indices count from the end with "raise". The result is a new
    C-ordered array, or `out`. Indices on a GPU are checked there while the elements are read, and with
    "raise" the call waits for the result; "wrap" and "clip" do not wait.
    `max_threads` is accepted for old programs and has no effect.
    """
    number = _read_mode(mode, "take")
    (x,) = output_arrays.taken("take", x)
    source = output_arrays.plain(x)
    if axis is None:
        source = source.reshape(-1)
    if source.ndim == 0:
        source = source.reshape(1)
    along = read_axis(0 if axis is None else axis, source.ndim, "take")
    array = as_index_array(indices, source.device, "take", masks=False)
    return _read(Elements(source, [(along, array)], along, "take", number), x, out)


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
    (x,) = output_arrays.taken("take_along_axis", x)
    return _read(_along_axis(x, indices, axis, "take_along_axis"), x)


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
    target = _writable(x, "put_along_axis")
    elements = _along_axis(target, indices, axis, "put_along_axis", written=x)
    _write(elements, _assigned(values, x, "put_along_axis"), x)


def _along_axis(
    x: Any, indices: Any, axis: int | None, where: str, written: Any = None
) -> ElementsAlongAxis:
    source = output_arrays.plain(x)
    array = as_index_array(indices, source.device, where, masks=False)
    if axis is None:
        source, axis = source.reshape(-1, copy=False if written is not None else None), 0
    along = read_axis(axis, source.ndim, where)
    if len(array.shape) != source.ndim:
        raise ShapeError(where=where, expected=f"indices of {source.ndim} dimensions, as many as x has",
                         got=f"indices of shape {array.shape}",
                         fix="add axes of length 1: indices[..., None]")  # fmt: skip
    return ElementsAlongAxis(source, _unshared(array, written), along, where)


def _writable(x: Any, where: str) -> Any:
    if not isinstance(x, _core.Array):
        raise not_an_array(where, "x", type_name(x), fix="share its memory: gpuinterop.asarray(x)")
    if core_view(x).readonly:
        raise read_only(where)
    return output_arrays.plain(x)


def _unshared(array: IndexArray, written: Any) -> IndexArray:
    """The indices, or a copy of them if a write to `written` would change them."""
    if written is None or not array.overlaps(written):
        return array
    return IndexArray(array.values.copy(), array.listed, array.live, array.inside)


def put(x: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Set the elements of the flattened x at `ind` to those of `v`, which is repeated as often as needed.

    Nothing is written if an index is out of range. Which of several values a repeated index gets is
    undefined.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros(4, device="cpu")
    >>> gpuinterop.put(x, [0, 2, 3], [7, 8])
    >>> x.tolist()
    [7.0, 0.0, 8.0, 7.0]
    """
    number = _read_mode(mode, "put")
    target = _writable(x, "put")
    array = as_index_array(ind, target.device, "put", masks=False)
    values, count = _assigned(v, x, "put").ravel(), array.values.size
    if not count or not values.size:
        return
    if not target.is_c_contiguous():
        ordered = _copy_of(target, "put")
        put(ordered, ind, values, mode)
        target[...] = ordered
        return
    if 1 < values.size != count:
        times = -(-count // values.size)
        values = values[None].broadcast_to((times, values.size)).reshape(-1)[:count]
    flat = IndexArray(_unshared(array, x).values.reshape(-1), array.listed, array.live)
    _write(Elements(target.reshape(-1), [(0, flat)], 0, "put", number), values, x)


def compress(condition: Any, x: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the parts of x along `axis` for which the 1-d `condition` is true; of the flattened x for None.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.asarray([[1, 2, 3], [4, 5, 6]], device="cpu")
    >>> gpuinterop.compress([True, False, True], x, axis=1).tolist()
    [[1.0, 3.0], [4.0, 6.0]]
    """
    (x,) = output_arrays.taken("compress", x)
    source = output_arrays.plain(x)
    if axis is None:
        source, axis = source.reshape(-1), 0
    along = read_axis(axis, source.ndim, "compress")
    mask = _condition(condition, source)
    if mask.ndim != 1:
        raise ShapeError(where="compress", expected="a condition of one dimension", got=f"shape {mask.shape}",
                         fix="index with it: x[condition]")  # fmt: skip
    places = IndexArray(
        Selection(mask, "compress").places()[0], inside=mask.size <= source.shape[along]
    )
    return _read(Elements(source, [(along, places)], along, "compress"), x, out)


def _condition(condition: Any, x: Any) -> Any:
    """A condition as a mask on the device of x."""
    if isinstance(condition, (list, tuple)):
        condition = np.asarray(condition, dtype=bool)
        return (
            upload(condition, x.device, True, "compress")
            if x.device.type != "cpu"
            else IndexArray(condition).beside(x, "compress")
        )
    found = viewed(condition, x, "compress")
    if found is None:
        raise not_an_array(
            "compress", "condition", type_name(condition), fix="pass bools, or an array of them"
        )
    return _as_mask(found)


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Return an array with each element of x along `axis` repeated, of the flattened x for None.

    `repeats` is a number for all, or one for each element along the axis. The host reads those of an
    array on a GPU, and waits for them, because they determine the shape.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.repeat(gpuinterop.asarray([3, 4], device="cpu"), [2, 1]).tolist()
    [3.0, 3.0, 4.0]
    """
    (x,) = output_arrays.taken("repeat", x)
    if isinstance(repeats, _core.Array):
        repeats = to_host_array(repeats, "repeat").tolist()
    with reraise_from("repeat"):
        counts = read_counts(repeats)
    x = x.ravel() if axis is None else x
    along = read_axis(0 if axis is None else axis, x.ndim, "repeat")
    n = x.shape[along]
    if len(counts) not in (1, n) or any(count < 0 for count in counts):
        raise ShapeError(
            where="repeat", expected=f"one number of repetitions, or {n}, of 0 or more",
            got=short_repr(counts), fix="count for each element along the axis, or one for all",
        )  # fmt: skip
    if len(counts) != 1:
        return take(x, np.repeat(np.arange(n), counts).tolist(), along)
    before, after = x.shape[:along], x.shape[along + 1 :]
    spread = x.expand_dims(along + 1).broadcast_to((*before, n, counts[0], *after))
    return spread.copy().reshape((*before, n * counts[0], *after))


CALLS.update(getitem=getitem, setitem=setitem)

"""``x[key]`` and ``x[key] = value`` for keys with index arrays and masks, additions at them, and numpy.copyto."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.arrays.numpy_views import as_numpy_view, read_by_numpy
from gpuinterop.arrays.scalars import is_scalar_or_list, scalars_to_array
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import CALLS, FUNCTIONS
from gpuinterop.elementwise.functions import cast
from gpuinterop.elementwise.operands import on_device_of
from gpuinterop.errors import DTypeError, GpuInteropError, short_repr, type_name
from gpuinterop.errors.arguments import require_casting
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import not_an_array, read_only, shapes_do_not_broadcast
from gpuinterop.exchange.incoming import as_assigned_array, as_source

from .elements import RAISE, Elements, addition
from .keys import WHERE, IndexArray, IndexExpression, read_key
from .masks import Selection, places, plan_of_selected, selected

ASSIGNMENT = "x[key] = value"


# ---- x[key] -----------------------------------------------------------------------------------------


@_core.planned(plan_of_selected, "x key", 2)
def getitem(x: Any, key: Any) -> Any:
    """Return ``x[key]`` for a key with index arrays, as a new array."""
    expression = read_key(x, key)
    if _is_one_mask(expression) and expression.view.ndim == len(expression.arrays[0][1].shape):
        mask = expression.arrays[0][1].to_device_of(expression.view, WHERE)
        return selected(mask, expression.view, WHERE, type(x))
    return read(_elements(expression, WHERE), x)


def setitem(x: Any, key: Any, value: Any) -> None:
    """Carry out ``x[key] = value`` for a key with index arrays."""
    if core_view(x).readonly:
        raise read_only(ASSIGNMENT)
    expression = read_key(x, key, ASSIGNMENT)
    values = as_assigned_values(value, x, ASSIGNMENT)
    if _is_one_mask(expression):
        _assign_masked(expression, values)
    else:
        write(_elements(expression, ASSIGNMENT, x), values, x)


def add_at(x: Any, indices: Any, values: Any) -> None:
    """Carry out ``gpuinterop.add.at``."""
    where = "add.at"
    target = writable(x, where)
    program = addition(dtype_id(target.dtype)) if target.device.type == "cpu" else None
    if _core._add_at(x, indices, values, program):
        return
    expression = read_key(x, indices, where)
    values = as_assigned_values(values, x, where)
    if not expression.arrays:  # no element twice
        target, values = (
            _with_flag_axis(expression),
            values.astype(results.plain(x).dtype, copy=False),
        )
        if values.device != target.device:  # one element, in host memory
            number = as_numpy_view(values, where).reshape(-1)[0]
            values = results.new_like(target, (), target.dtype, where)
            values[...] = number
        with reraise_from(where):
            FUNCTIONS["add"](target, values, out=target)
        return
    write(_elements(expression, where, x), values, x, adds=True)


def _is_one_mask(expression: IndexExpression) -> bool:
    """Return whether one mask indexes the view, and its axes become one axis at their position."""
    if expression.flags or len(expression.arrays) != 1:
        return False
    first, array = expression.arrays[0]
    return array.is_mask and expression.axis == first


def _elements(expression: IndexExpression, where: str, target: Any = None) -> Elements:
    """Return the elements that the key addresses; masks are replaced by the indices that they select."""
    view = expression.view
    if not expression.arrays:
        view = _with_flag_axis(expression)
    arrays: list[tuple[int, IndexArray]] = []
    for first, array in expression.arrays:
        if array.is_mask:
            found = places(array.to_device_of(view, where), where)
            arrays += [(first + i, IndexArray(p, inside=True)) for i, p in enumerate(found)]
        else:
            arrays.append((first, unshared_indices(array, target)))
    block = [(int(flag),) for flag in expression.flags] if expression.arrays else []
    return Elements(view, arrays, expression.axis, where, RAISE, block)


def _with_flag_axis(expression: IndexExpression) -> Any:
    """Return the view of a key with bools but no arrays: it has an axis of length 1, or 0 if a bool is False."""
    view, axis = expression.view, expression.axis
    if expression.flags:
        view = view[(slice(None),) * axis + (None,)]
        view = view[(slice(None),) * axis + (slice(0 if False in expression.flags else 1),)]
    return view


def read(elements: Elements, x: Any, out: Any = None) -> Any:
    """Return the elements as a new array of the class of `x`, or in `out`."""
    view = elements.view
    if out is None:
        target = results.new_like(view, elements.shape, view.dtype, elements.where, type(x))
    else:
        target = out
        results.check_out(out, elements.shape, view.dtype, view, elements.where)
        if _core._may_overlap(out, view):
            elements.view = view._copied(elements.where)
        elements.arrays = [
            a.copy() if isinstance(a, _core.Array) and _core._may_overlap(out, a) else a
            for a in elements.arrays
        ]
    if elements.axes:
        elements.read(target, keeps=out is not None)
    elif 0 not in elements.shape:
        _core.copy_into(target, view, where=elements.where, uncounted=True)
    return target


def write(elements: Elements, values: Any, x: Any, adds: bool = False) -> None:
    """Set the elements, which belong to `x`, to values that broadcast to them, or add the values."""
    if isinstance(values, _core.Array) and _core._may_overlap(values, x):
        values = values._copied(elements.where)
    broadcast_values = _fit(values, elements.shape, elements.where)
    if elements.axes:
        _core._prepare_write(elements.view, elements.where)
        elements.write(broadcast_values, adds)
    else:
        elements.view[...] = broadcast_values


def unshared_copy(x: Any, written: Any, where: str) -> Any:
    """Return `x`, or a copy of it if a write to `written` would change it."""
    return x._copied(where) if _core._may_overlap(x, written) else x


def as_assigned_values(value: Any, x: Any, where: str) -> Any:
    """Return the assigned value on the device of `x`, in its dtype.

    One element may stay in host memory.
    """
    target = results.plain(x)
    array = value if isinstance(value, _core.Array) and value.dtype == target.dtype else None
    if type(value) in (bool, int, float) and _core._recording() is None:
        array = _core.empty(_core.Array, (), target.dtype, 1, 0)  # on "cpu"
        try:
            array[...] = value  # the core converts Python scalars
        except GpuInteropError as error:
            raise error.changed(where=where) from None
    elif array is None:
        array = as_assigned_array(value, target, type(x), where)
    array = results.plain(array)
    array = cast(array, target.dtype, copy=False)  # neither kernels nor loops that scatter cast
    if array.device == target.device or (array.size == 1 and array.device.type == "cpu"):
        return array
    moved = results.new_like(target, array.shape, array.dtype, where)
    _core.copy_into(moved, array, where=where, uncounted=is_scalar_or_list(value))
    return moved


def _fit(values: Any, shape: tuple[int, ...], where: str) -> Any:
    """Return the values broadcast to `shape`; leading axes of length 1 are dropped, as in NumPy."""
    while values.ndim > len(shape) and values.shape[0] == 1:
        values = values[0]
    if _core.broadcast_shapes([values.shape, shape], where) != shape:
        raise shapes_do_not_broadcast(where, values.shape, shape)
    return (
        values if values.size == 1 and values.device.type == "cpu" else values.broadcast_to(shape)
    )


# ---- masks ------------------------------------------------------------------------------------------


def _assign_masked(expression: IndexExpression, values: Any) -> None:
    """Carry out x[..., mask, ...] = values."""
    view, (first, array) = expression.view, expression.arrays[0]
    mask = array.to_device_of(view, ASSIGNMENT)
    mask, values = (unshared_copy(x, view, ASSIGNMENT) for x in (mask, values))
    after = view.ndim - first - mask.ndim
    while values.ndim > first + 1 + after and values.shape[0] == 1:
        values = values[0]
    along = values.ndim - 1 - after  # the axis of the values along which the selected elements lie
    if along < 0:
        _fill_selected(view, mask, after, values, ASSIGNMENT)
    elif values.shape[along] == 1:
        before = (slice(None),) * along
        for part in ((0,), (None,) * mask.ndim):
            values = values[before + part]
        _fill_selected(view, mask, after, values, ASSIGNMENT)
    else:
        _assign_each(view, first, Selection(mask, ASSIGNMENT), values)


def _fill_selected(view: Any, mask: Any, after: int, values: Any, where: str) -> None:
    """Assign values that do not depend on the number of selected elements, so the host need not wait for it."""
    values = _fit(values, view.shape, where)
    if view.size == 0 or mask.size == 0:
        return
    mask = mask[(Ellipsis,) + (None,) * after].broadcast_to(view.shape)
    _core._prepare_write(view, where)
    _core._assign_masked(view, mask, values, where)


def _assign_each(view: Any, first: int, selection: Selection, values: Any) -> None:
    """Assign one value to each selected element."""
    axes = selection.mask.ndim
    shape = (*view.shape[:first], selection.count, *view.shape[first + axes :])
    values = _fit(values, shape, ASSIGNMENT)
    if axes == view.ndim:
        if values.ndim == 0:
            values = values.broadcast_to((selection.count,))
        _core._prepare_write(view, ASSIGNMENT)
        selection.assign(view, values)
    else:
        found = places(selection.mask, ASSIGNMENT)
        arrays = [(first + i, IndexArray(p, inside=True)) for i, p in enumerate(found)]
        write(Elements(view, arrays, first, ASSIGNMENT), values, view)


def writable(x: Any, where: str) -> Any:
    """Return `x` as a `GpuArray`; raise if it is not an array, or is read-only."""
    if not isinstance(x, _core.Array):
        raise not_an_array(where, "x", type_name(x), fix="share its memory: gpuinterop.from_any(x)")
    if core_view(x).readonly:
        raise read_only(where)
    return results.plain(x)


def unshared_indices(array: IndexArray, target: Any) -> IndexArray:
    """Return the indices, or a copy of them if a write to `target` would change them."""
    if target is None or not array.overlaps(target):
        return array
    return replace(array, values=array.values.copy())


# ---- numpy.copyto -----------------------------------------------------------------------------------

COPYTO = "numpy.copyto"


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Set the elements of `dst` that `where` selects, of either library, to those of `src`."""
    require_casting(casting, COPYTO)
    if not isinstance(dst, _core.Array):
        sources = (
            results.plain(x).get() if isinstance(x, _core.Array) else x for x in (src, where)
        )
        values, mask = sources
        np.copyto(dst, values, casting=casting, where=mask)  # type: ignore[arg-type]
        return
    target = results.plain(dst)
    value = _source(src, target, casting)
    if where is True:
        target[...] = value
        return
    mask = results.as_mask(where, target, COPYTO)
    value = cast(value, target.dtype, copy=False)
    mask, value = (unshared_copy(x, target, COPYTO) for x in (mask, value))
    _fill_selected(target, mask, 0, value, COPYTO)


def _source(src: Any, target: Any, casting: str) -> Any:
    """Return the source as an array on the target's device, of any dtype that `casting` allows."""
    dtype = target.dtype
    number = type(src) in (bool, int, float, complex)
    if isinstance(src, (list, tuple)):
        src = read_by_numpy(src)
    if not number and not isinstance(src, (_core.Array, np.generic)):
        src = as_source(src, None, COPYTO)
    source_dtype = np.result_type(src) if number else src.dtype
    # Python scalars have a kind but no size.
    allowed = np.can_cast(source_dtype, dtype, casting)  # type: ignore[arg-type]
    if not (allowed or (number and np.result_type(src, dtype) == dtype)):
        raise DTypeError(
            where=COPYTO, expected=f"elements that casting={casting!r} allows to cast to {dtype}",
            got=short_repr(src) if number else f"dtype {source_dtype}", fix='pass casting="unsafe"',
        )  # fmt: skip
    if number or isinstance(src, np.generic):
        # Fill instead of uploading, because a capture records a fill.
        value = results.new_like(target, (), dtype, COPYTO)
        value[...] = scalars_to_array(src, dtype, COPYTO).item()
        return value
    source = on_device_of(src, target, COPYTO)
    results.require_arrays(COPYTO, target, source)
    return source


CALLS.update({"getitem": getitem, "setitem": setitem, "add at": add_at})

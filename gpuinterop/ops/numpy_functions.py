"""What NumPy's functions of shapes, layout and equality do with arrays of this library.

Each is made of views, copies and the operations; none is worth a kernel of its own.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_input_array
from gpuinterop.dtypes import as_supported_dtype
from gpuinterop.error_context import reraise_from
from gpuinterop.errors import ArgumentTypeError, ShapeError, short_repr
from gpuinterop.layout import broadcast_shapes, core_view
from gpuinterop.ops import blas, concat_split, equality, output_arrays
from gpuinterop.ops.copying import copyto
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.ops.equality import ours
from gpuinterop.ops.gather import take
from gpuinterop.ops.numpy_tables import NUMPY_FUNCTIONS
from gpuinterop.option_values import is_index, read_counts, read_shape
from gpuinterop.views import read_axes, read_axis

__all__ = ["FUNCTIONS_OF_SHAPE"]


# ---- new arrays -------------------------------------------------------------------------------------


def _like(name: str, value: Any) -> Callable[..., Any]:
    def call(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
    ) -> Any:
        return _made(name, a, value, dtype, order, shape)

    return call


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Any:  # fmt: skip
    return _made("full_like", a, fill_value, dtype, order, shape)


def _made(name: str, a: Any, value: Any, dtype: Any, order: str, shape: Any) -> Any:
    output_arrays.require_arrays(f"numpy.{name}", a)
    if order not in ("C", "A", "K"):
        raise ShapeError(where=f"numpy.{name}", expected="order 'C': new arrays are C-ordered",
                         got=f"order={order!r}", fix="transpose an array of the reversed shape")  # fmt: skip
    seen = core_view(a)
    extents = seen.shape if shape is None else tuple(read_shape(shape))
    kind = seen.dtype if dtype is None else as_supported_dtype(dtype, f"numpy.{name}")
    made = output_arrays.new_like(a, extents, kind)
    if value is not None:
        made[...] = value
    return made


# ---- putting together and taking apart --------------------------------------------------------------


def _at_least(x: Any, ndim: int) -> Any:
    """NumPy's view of at least so many axes: a vector is a row, and a matrix a layer."""
    if x.ndim >= ndim:
        return x
    if ndim == 3 and x.ndim in (1, 2):
        return x.expand_dims((0, 2) if x.ndim == 1 else 2)
    return x.reshape((1,) * (ndim - x.ndim) + x.shape)


def _at_least_each(name: str, ndim: int) -> Callable[..., Any]:
    def call(*arrays: Any) -> Any:
        output_arrays.require_arrays(f"numpy.{name}", *arrays)
        views = tuple(_at_least(x, ndim) for x in arrays)
        return views[0] if len(views) == 1 else views

    return call


def _together(where: str, parts: list[Any], axis: Any) -> Any:
    with reraise_from(where):
        return concat_split.concatenate(parts, axis)


def _vstack(tup: Any) -> Any:
    parts = [_at_least(x, 2) for x in concat_split.listed(tup, "numpy.vstack")]
    return _together("numpy.vstack", parts, 0)


def _hstack(tup: Any) -> Any:
    parts = [_at_least(x, 1) for x in concat_split.listed(tup, "numpy.hstack")]
    return _together("numpy.hstack", parts, 0 if parts[0].ndim == 1 else 1)


def _dstack(tup: Any) -> Any:
    parts = [_at_least(x, 3) for x in concat_split.listed(tup, "numpy.dstack")]
    return _together("numpy.dstack", parts, 2)


def _column_stack(tup: Any) -> Any:
    parts = concat_split.listed(tup, "numpy.column_stack")
    columns = [x if x.ndim > 1 else x.reshape((-1, 1)) for x in parts]
    return _together("numpy.column_stack", columns, 1)


def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    like = arr if isinstance(arr, _core.Array) else values
    parts = [ours(v, like, "numpy.append") for v in (arr, values)]
    return _together("numpy.append", parts, axis)


def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    output_arrays.require_arrays("numpy.array_split", ary)
    if not is_index(indices_or_sections):
        return concat_split.split(ary, indices_or_sections, axis)
    count, n = (
        operator.index(indices_or_sections),
        ary.shape[read_axis(axis, ary.ndim, "array_split")],
    )
    if count < 1:
        raise ShapeError(where="numpy.array_split", expected="a number of parts of 1 or more",
                         got=str(count), fix="pass the indices to cut at")  # fmt: skip
    return concat_split.split(
        ary, [i * (n // count) + min(i, n % count) for i in range(1, count)], axis
    )


def _vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    if ary.ndim < 2:
        raise ShapeError(where="numpy.vsplit", expected="an array of two axes or more",
                         got=f"shape {ary.shape}", fix="numpy.split(x, parts)")  # fmt: skip
    return concat_split.split(ary, indices_or_sections, 0)


def _unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    along = read_axis(axis, x.ndim, "numpy.unstack")
    return tuple(x[(slice(None),) * along + (i,)] for i in range(x.shape[along]))


def _tile(A: Any, reps: Any) -> Any:
    counts = read_shape(reps)
    x = A.reshape((1,) * (len(counts) - A.ndim) + A.shape)
    counts = (1,) * (x.ndim - len(counts)) + tuple(counts)
    # Each axis as (repetition, element): one strided copy.
    source = x.expand_dims(tuple(2 * i for i in range(x.ndim)))
    pairs = [n for pair in zip(counts, x.shape, strict=True) for n in pair]
    out = output_arrays.new_like(
        A, tuple(r * n for r, n in zip(counts, x.shape, strict=True)), x.dtype
    )
    output_arrays.plain(out).reshape(tuple(pairs))[...] = source.broadcast_to(tuple(pairs))
    return out


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    with reraise_from("numpy.repeat"):
        counts = read_counts(repeats)
    x = a.ravel() if axis is None else a
    along = read_axis(0 if axis is None else axis, x.ndim, "numpy.repeat")
    if len(counts) not in (1, x.shape[along]) or any(n < 0 for n in counts):
        raise ShapeError(
            where="numpy.repeat", expected=f"one number of repetitions, or {x.shape[along]}, of 0 or more",
            got=short_repr(counts), fix="count for each element along the axis, or one for all",
        )  # fmt: skip
    if len(counts) != 1:
        return take(x, np.repeat(np.arange(len(counts)), counts), along)
    count = counts[0]
    shape, n = list(x.shape), x.shape[along]
    spread = [*shape[:along], n, count, *shape[along + 1 :]]
    shape[along] = n * count
    out = output_arrays.new_like(a, tuple(shape), x.dtype)
    output_arrays.plain(out).reshape(tuple(spread))[...] = x.expand_dims(along + 1).broadcast_to(
        tuple(spread)
    )
    return out


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return _roll(a.ravel(), shift, 0).reshape(a.shape)
    cuts: dict[int, int] = {}
    for by, one in _pairs(shift, axis):
        along = read_axis(one, a.ndim, "numpy.roll")
        cuts[along] = cuts.get(along, 0) - by
    cuts = {along: cut % a.shape[along] if a.shape[along] else 0 for along, cut in cuts.items()}
    out = output_arrays.new_like(a, a.shape, a.dtype)
    target = output_arrays.plain(out)
    # Each axis in two parts that change places: a view for each combination, copied once.
    halves = [
        [(slice(None), slice(None))]
        if not cuts.get(along)
        else [
            (slice(cuts[along], None), slice(n - cuts[along])),
            (slice(cuts[along]), slice(n - cuts[along], None)),
        ]
        for along, n in enumerate(a.shape)
    ]
    for parts in itertools.product(*halves):
        source, place = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
        target[place] = output_arrays.plain(a)[source]
    return out


def _pairs(shift: Any, axis: Any) -> list[tuple[int, Any]]:
    """Shifts with their axes: one of either stands for as many as there are of the other."""
    try:
        shifts, axes = np.broadcast_arrays(np.asarray(shift), np.asarray(axis))
        if shifts.ndim > 1:
            raise ValueError("more than one dimension")
        return [
            (operator.index(s), operator.index(i))
            for s, i in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True)
        ]
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            where="numpy.roll", expected="as many shifts as axes, or one of either, all ints",
            got=f"shift={short_repr(shift)}, axis={short_repr(axis)}: {error}",
            fix="pass roll(x, (1, 2), (0, 1)) for two axes",
        ) from None  # fmt: skip


# ---- views ------------------------------------------------------------------------------------------


def _flip(m: Any, axis: Any = None) -> Any:
    turned = read_axes(axis, m.ndim, "numpy.flip")
    return m[tuple(slice(None, None, -1 if i in turned else 1) for i in range(m.ndim))]


def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    taken = read_axes(source, a.ndim, "numpy.moveaxis")
    places = read_axes(destination, a.ndim, "numpy.moveaxis")
    if len(taken) != len(places):
        raise ShapeError(where="numpy.moveaxis", expected="as many places as axes",
                         got=f"{source} to {destination}", fix="name a place for each axis")  # fmt: skip
    order = [i for i in range(a.ndim) if i not in taken]
    for place, axis in sorted(zip(places, taken, strict=True)):
        order.insert(place, axis)
    return a.transpose(order)


def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    output_arrays.require_arrays("numpy.broadcast_arrays", *args)
    shape = broadcast_shapes([x.shape for x in args], "numpy.broadcast_arrays")
    return tuple(x.broadcast_to(shape) for x in args)


def _size(a: Any, axis: Any = None) -> Any:
    return math.prod(a.shape[i] for i in read_axes(axis, a.ndim, "numpy.size"))


# ---- questions --------------------------------------------------------------------------------------


def _may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    first, second = (
        as_input_array(x, None, "numpy.may_share_memory", copyif=False) for x in (a, b)
    )
    return bool(_core._may_overlap(first, second))


def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return FUNCTIONS["logical_and"](a, True).sum(axis, keepdims=keepdims)


# ---- the rest ---------------------------------------------------------------------------------------


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    like = a if isinstance(a, _core.Array) else b
    return blas.ger(*(ours(x, like, "numpy.outer").ravel() for x in (a, b)), out=out)


def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    try:
        times = operator.index(n)
    except TypeError:
        raise ArgumentTypeError(where="numpy.diff", expected="an int as the number of times", got=repr(n),
                                fix="pass n=1 for the differences") from None  # fmt: skip
    if times < 0:
        raise ShapeError(where="numpy.diff", expected="a number of times of 0 or more", got=str(times),
                         fix="pass n=1 for the differences")  # fmt: skip
    along = read_axis(axis, a.ndim, "numpy.diff")
    before = (slice(None),) * along
    later, earlier = (*before, slice(1, None)), (*before, slice(-1))
    name = "not_equal" if a.dtype == np.bool_ else "subtract"
    for _ in range(times):
        a = FUNCTIONS[name](a[later], a[earlier])
    return a


def _where(condition: Any, *choices: Any) -> Any:
    if len(choices) != 2:
        raise ArgumentTypeError(
            where="numpy.where", expected="a condition and both choices: how many places there are "
            "depends on the values", got="a condition" if not choices else "one choice",
            fix="numpy.nonzero(condition.get()), or where(condition, x, y)",
        )  # fmt: skip
    return FUNCTIONS["where"](condition, *choices)


FUNCTIONS_OF_SHAPE: dict[Callable[..., Any], Callable[..., Any]] = {
    np.empty_like: _like("empty_like", None),
    np.zeros_like: _like("zeros_like", 0),
    np.ones_like: _like("ones_like", 1),
    np.full_like: _full_like,
    np.concatenate: concat_split.concatenate,
    np.stack: concat_split.stack,
    np.vstack: _vstack,
    np.hstack: _hstack,
    np.dstack: _dstack,
    np.column_stack: _column_stack,
    np.append: _append,
    np.split: lambda ary, indices_or_sections, axis=0: concat_split.split(ary, indices_or_sections, axis),
    np.array_split: _array_split,
    np.vsplit: _vsplit,
    np.hsplit: lambda ary, indices_or_sections: concat_split.split(
        ary, indices_or_sections, 0 if ary.ndim <= 1 else 1
    ),
    np.unstack: _unstack,
    np.tile: _tile,
    np.repeat: _repeat,
    np.roll: _roll,
    np.flip: _flip,
    np.flipud: lambda m: _flip(m, 0),
    np.fliplr: lambda m: _flip(m, 1),
    np.moveaxis: _moveaxis,
    np.transpose: lambda a, axes=None: a.transpose(axes) if axes is not None else a.T,
    np.matrix_transpose: lambda x: x.swapaxes(-1, -2),
    np.reshape: lambda a, shape, order="C", *, copy=None: a.reshape(shape, order=order, copy=copy),
    np.ravel: lambda a, order="C": a.ravel(order),
    np.squeeze: lambda a, axis=None: a.squeeze(axis),
    np.expand_dims: lambda a, axis: a.expand_dims(axis),
    np.swapaxes: lambda a, axis1, axis2: a.swapaxes(axis1, axis2),
    np.broadcast_to: lambda array, shape, subok=False: array.broadcast_to(shape),
    np.broadcast_arrays: _broadcast_arrays,
    np.atleast_1d: _at_least_each("atleast_1d", 1),
    np.atleast_2d: _at_least_each("atleast_2d", 2),
    np.atleast_3d: _at_least_each("atleast_3d", 3),
    np.diagonal: lambda a, offset=0, axis1=0, axis2=1: a.diagonal(offset, axis1, axis2),
    np.trace: lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: (
        a.diagonal(offset, axis1, axis2).sum(-1, dtype, out)
    ),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: _size,
    np.copy: lambda a, order="K", subok=False: a.copy() if order in "KA" else a.copy(order),
    np.copyto: copyto,
    np.astype: lambda x, dtype, /, *, copy=True: x.astype(dtype, copy=copy),
    np.around: lambda a, decimals=0, out=None: NUMPY_FUNCTIONS[np.round](a, decimals, out),
    np.ptp: lambda a, axis=None, out=None, keepdims=False: FUNCTIONS["subtract"](
        a.max(axis, keepdims=keepdims), a.min(axis, keepdims=keepdims), out=out
    ),
    np.isclose: equality.isclose,
    np.allclose: equality.allclose,
    np.array_equal: equality.array_equal,
    np.array_equiv: equality.array_equiv,
    np.count_nonzero: _count_nonzero,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.result_type: lambda *given: np.result_type(
        *(x.dtype if isinstance(x, _core.Array) else x for x in given)
    ),
    np.may_share_memory: _may_share_memory,
    np.array_repr: lambda arr: repr(arr),
    np.array_str: lambda a: str(a),
    np.outer: _outer,
    np.diff: _diff,
    np.where: _where,
}  # fmt: skip

NUMPY_FUNCTIONS.update(FUNCTIONS_OF_SHAPE)

"""NumPy's functions and the methods of its ufuncs for gpuinterop arrays.

Reductions and products are those of the package. The others consist of views, copies and operations.
"""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from gpuinterop import _core, fft, linalg
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.arrays.numpy_views import read_by_numpy, to_host_array
from gpuinterop.arrays.scalars import is_scalar_or_list
from gpuinterop.creation import asarray
from gpuinterop.elementwise import functions, results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.elementwise.operands import as_operand
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ShapeError, short_repr
from gpuinterop.errors.arguments import is_index
from gpuinterop.exchange.incoming import as_input_array
from gpuinterop.fusion.fuse import fuse
from gpuinterop.index import getitem, join_split, take_put
from gpuinterop.ndarray import GpuArray
from gpuinterop.numpy_calls.top_level import VIEWS, by_numpy
from gpuinterop.product import functions as products
from gpuinterop.reduce.functions import FUNCTIONS_OF_AXES
from gpuinterop.reduce.table import REDUCTIONS, Reduction
from gpuinterop.sorting import scan, search, sort

from . import build, contractions, equality, polynomials

# ---- new arrays -------------------------------------------------------------------------------------


def _like(value: Any) -> Callable[..., Any]:
    """Return the function that makes an array of another one's shape and fills it with a value; None: it does not."""

    def call(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
    ) -> Any:
        results.require_arrays("numpy", a)
        if order not in ("C", "A", "K"):
            raise TypeError(f"order={short_repr(order)}, although new arrays are C-ordered")
        view = core_view(a)
        extents = view.shape if shape is None else _core.read_ints(shape)
        kind = view.dtype if dtype is None else as_supported_dtype(dtype)
        array = results.new_like(a, extents, kind)
        if value is not None:
            array[...] = value
        return array

    return call


def read_like(like: Any, function: Any, value: Any, dtype: Any = None, **options: Any) -> Any:
    """Return `numpy.array`, `asarray` or `asanyarray` of a value with ``like=`` an array on a GPU, on that GPU.

    NumPy reads host values, which are then uploaded. Arrays on a GPU stay there.
    """
    if not isinstance(value, _core.Array) or core_view(value).device.type == "cpu":
        if options.get("copy") is False:
            raise ValueError("copy=False, which an upload needs")
        host = function(value, dtype=dtype, **options)
        return _core.view(GpuArray, asarray(host, device=like.device))
    copied = options.pop("copy", True if function is np.array else None)
    if options:
        raise TypeError(f"{', '.join(options)} is not supported for arrays on a GPU")
    return asarray(value, dtype, device=like.device, copy=copied)


def _without_bools(axis: Any) -> Any:
    """Return axes with 1 and 0 for True and False, for the functions in which NumPy accepts them."""
    if isinstance(axis, (tuple, list)):
        return tuple(map(_without_bools, axis))
    return int(axis) if isinstance(axis, bool) else axis


# ---- splitting and repeating ------------------------------------------------------------------------


def _unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    along = _core.read_axis(_without_bools(axis), x.ndim, "numpy.unstack")
    return tuple(x[(slice(None),) * along + (i,)] for i in range(x.shape[along]))


_FEW_TILES = 16  # which take less time as a list


def _tile(A: Any, reps: Any) -> Any:
    if not isinstance(A, _core.Array):
        raise TypeError("the array that is repeated is no gpuinterop array")
    counts = _core.read_ints(reps)
    x: Any = A if len(counts) <= A.ndim else A.reshape((1,) * (len(counts) - A.ndim) + A.shape)
    counts = (1,) * (x.ndim - len(counts)) + tuple(counts)
    axes = [axis for axis, n in enumerate(counts) if n != 1]
    if len(axes) == 1 and 1 < counts[axes[0]] <= _FEW_TILES and x.device.type == "cpu":
        return join_split.concatenate([x] * counts[axes[0]], axes[0])
    # Each axis as (repetition, element): one strided copy.
    pairs = tuple(n for pair in zip(counts, x.shape, strict=True) for n in pair)
    spread = x.expand_dims(tuple(2 * i for i in range(x.ndim))).broadcast_to(pairs)
    return spread.copy().reshape(tuple(r * n for r, n in zip(counts, x.shape, strict=True)))


@_core.served
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Return numpy.roll of an array: its elements moved along axes, those beyond an end to the other end."""
    pairs = np.broadcast(shift, 0 if axis is None else axis)
    if pairs.ndim > 1:
        raise TypeError(f"shifts and axes of {pairs.ndim} axes")
    if axis is None:
        return roll(a.ravel(), np.sum(shift), 0).reshape(a.shape)
    shifts = [0] * a.ndim
    for by, one in pairs:
        shifts[_core.read_axis(operator.index(one), a.ndim, "numpy.roll")] += operator.index(by)
    cuts = [by % n if n else 0 for by, n in zip(shifts, a.shape, strict=True)]
    moves = [((slice(cut, None), slice(n - cut)), (slice(cut), slice(n - cut, None)))[: 2 if cut else 1]
             for cut, n in zip(cuts, a.shape, strict=True)]  # fmt: skip
    rolled = results.new_like(a, a.shape, a.dtype)
    target, source = map(results.plain, (rolled, a))
    for parts in itertools.product(*moves):
        to, part = (tuple(pair[i] for pair in parts) for i in (0, 1))
        _core.copy_into(target[to], source[part], where="numpy.roll", uncounted=True)
    return rolled


# ---- views ------------------------------------------------------------------------------------------


_BYTE = np.zeros(1, np.uint8)


def _of_views(function: Any) -> Callable[..., Any]:
    """Return a function of NumPy that makes views, for gpuinterop arrays.

    NumPy's function runs on an array with the same shape and strides, whose memory it does not read.
    """
    first = next(iter(inspect.signature(function).parameters))

    def call(*args: Any, **options: Any) -> Any:
        x, *args = args or (options.pop(first, None),)  # type: ignore[assignment]
        if not isinstance(x, _core.Array):
            raise TypeError("the array that is viewed is no gpuinterop array")
        seen = core_view(x)
        stand_in = np.lib.stride_tricks.as_strided(_BYTE, seen.shape, seen._strides)
        # The values of other arrays count, such as the indices at which numpy.split cuts.
        others = [np.asarray(a) if isinstance(a, _core.Array) else a for a in args]
        options = {
            name: np.asarray(a) if isinstance(a, _core.Array) else a for name, a in options.items()
        }
        views = function._implementation(stand_in, *others, **options)
        if isinstance(views, np.generic):  # NumPy's view of a 0-d array
            return x.view()
        if isinstance(views, np.ndarray):
            return _same_view(x, views)
        return type(views)(_same_view(x, view) for view in views)

    return call


def _same_view(x: Any, view: np.ndarray[Any, Any]) -> Any:
    """Return the view of x that a view of its placeholder is."""
    offset = view.ctypes.data - _BYTE.ctypes.data if view.size else 0
    return x._restrided(view.shape, view.strides, offset)


def _readable(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else read_by_numpy(value)  # keeps subclasses


def _at_least(function: Any) -> Callable[..., Any]:
    views = _of_views(function)

    def call(*arys: Any) -> Any:
        made = tuple(
            views(x) if isinstance(x, _core.Array) else function(_readable(x)) for x in arys
        )
        return made if len(made) > 1 else made[0]

    return call


def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """Return a view of each operand: of NumPy's class for those that are not gpuinterop arrays."""
    parts: list[Any] = [
        x if isinstance(x, _core.Array) else np.array(_readable(x), copy=None, subok=subok)
        for x in args
    ]
    shape = _core.broadcast_shapes([x.shape for x in parts], "numpy.broadcast_arrays")
    return tuple(
        x.view() if tuple(x.shape) == tuple(shape) else np.broadcast_to(x, shape, subok=subok)
        for x in parts
    )


def _where(condition: Any, *choices: Any) -> Any:
    return FUNCTIONS["where"](condition, *choices) if choices else take_put.nonzero(condition)


def _size(a: Any, axis: Any = None) -> Any:
    return math.prod(a.shape[i] for i in _core.read_axes(axis, a.ndim, "numpy.size"))


# ---- tests ------------------------------------------------------------------------------------------


def _may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    first, second = (
        as_input_array(x, None, "numpy.may_share_memory", copyif=False) for x in (a, b)
    )
    return bool(_core._may_overlap(first, second))


# ---- other functions --------------------------------------------------------------------------------


def _differences(a: Any, n: int, axis: Any) -> Callable[[Any], Any]:
    """Return the function of the n-th differences along an axis of arrays of the shape and dtype of `a`."""
    before = (slice(None),) * _core.read_axis(_without_bools(axis), a.ndim, "numpy.diff")
    later, earlier = (*before, slice(1, None)), (*before, slice(-1))
    subtract = FUNCTIONS["not_equal" if a.dtype == np.bool_ else "subtract"]
    if n == 1:
        return lambda a: subtract(a[later], a[earlier])

    def call(a: Any) -> Any:
        for _ in range(n):
            a = subtract(a[later], a[earlier])
        return a

    return call


def _diff_of(a: Any, n: int = 1, axis: int = -1, **ends: Any) -> Any:
    return None if ends or type(n) is not int or n < 1 else _differences(a, n, axis)


@_core.prepared(_diff_of, "a n axis prepend append", "a")
def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue
) -> Any:
    if not is_index(n) or n < 0:
        raise ShapeError(where="numpy.diff", expected="an int of 0 or more as the number of times",
                         got=short_repr(n), fix="pass n=1 for the differences")  # fmt: skip
    like = next(x for x in (a, prepend, append) if isinstance(x, _core.Array))
    a = as_operand(a, like, "numpy.diff")
    only = getattr(type(a), "_only", None)  # the dtype of numbers beside a CudaNdarray
    along = _core.read_axis(_without_bools(axis), a.ndim, "numpy.diff")
    ends = [
        ()
        if end is np._NoValue or not n
        else (_of_length_1(as_operand(end, like, "numpy.diff"), a, along),)
        for end in (np.asarray(x, only) if is_scalar_or_list(x) else x for x in (prepend, append))
    ]
    if any(ends):
        a = join_split.concatenate([*ends[0], a, *ends[1]], along)
    return _differences(a, n, along)(a)


def _of_length_1(end: Any, a: Any, along: int) -> Any:
    """Return a number as an array that continues `a` along an axis, an array as it is."""
    return end if end.ndim else end.broadcast_to((*a.shape[:along], 1, *a.shape[along + 1 :]))


def _ptp_of(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return None if out is not None else lambda a: _range(a, axis, None, keepdims)


@_core.prepared(_ptp_of, "a axis out keepdims", "a")
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return _range(a, axis, out, keepdims)


def _range(a: Any, axis: Any, out: Any, keepdims: bool) -> Any:
    least = a.min(axis, keepdims=keepdims)  # first, because `out` may overlap a
    most = a.max(axis, out=out, keepdims=keepdims)
    return FUNCTIONS["subtract"](most, least, out=most)


def _trace_of(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    return lambda a: a.diagonal(offset, axis1, axis2).sum(-1, dtype)


@_core.prepared(_trace_of, "a offset axis1 axis2 dtype out", "a")
def _trace(a: Any, *args: Any, **options: Any) -> Any:
    return a.trace(*args, **options)


def _clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None,
    max: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    low, high = a_min if min is None else min, a_max if max is None else max
    if dtype is None:
        return functions.clip(a, low, high, out)
    dtype = as_supported_dtype(dtype, "numpy.clip")
    return _clip_in_dtype(a, *functions.effective_bounds(dtype, low, high), dtype, out=out)


_clip_in_dtype = fuse(lambda a, low, high, dtype: functions.clip(a.astype(dtype), low, high))


# ---- distinct elements ------------------------------------------------------------------------------


def _unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    if axis is not None and isinstance(ar, _core.Array) and ar.device.type != "cpu":
        raise TypeError(f"axis={short_repr(axis)} on {ar.device}")  # CuPy has it
    return search.unique(
        ar, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan, sorted=sorted
    )


# ---- reductions -------------------------------------------------------------------------------------


def _passed_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the caller passed; NumPy has a sentinel value for the others."""
    return {
        # Reductions refuse where=None; for other arguments None is the default.
        k: v
        for k, v in options.items()
        if v is not np._NoValue and (v is not None or k == "where")
    }


def _numpy_reduction(row: Reduction) -> Callable[..., Any]:
    """Return the implementation of NumPy's function, with the parameters of the method in the same order."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        return FUNCTIONS_OF_AXES[row.name](x, *args, **_passed_arguments(options))

    return call


def _ufunc_reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
             **options: Any) -> Any:  # fmt: skip
        keywords = _passed_arguments(options)
        if out is not None:
            keywords["out"] = out
        # Reductions without a dtype raise for it themselves.
        if dtype is not None:
            keywords["dtype"] = dtype
        return function(x, axis, keepdims=keepdims, **keywords)

    return call


def _of_files(function: Any) -> Callable[..., Any]:
    """Return a function of NumPy that writes arrays to a file, for gpuinterop arrays, which it downloads."""
    where = f"numpy.{function.__name__}"

    def host(x: Any) -> Any:
        return to_host_array(x, where, memory=True) if isinstance(x, _core.Array) else x

    def call(*args: Any, **options: Any) -> Any:
        return function(*map(host, args), **{name: host(x) for name, x in options.items()})

    return call


# numpy.where -> the function for gpuinterop arrays.
NUMPY_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.clip: _clip,
    np.round: functions.round,
    np.around: functions.round,
    np.take: lambda a, indices, axis=None, out=None, mode="raise": take_put.take(a, indices, axis, out, mode),
    np.take_along_axis: lambda arr, indices, axis=-1: take_put.take_along_axis(arr, indices, axis),
    np.put_along_axis: lambda arr, indices, values, axis: (
        take_put.put_along_axis(arr, indices, values, axis)
    ),
    **{function: _of_files(function) for function in (np.save, np.savez, np.savez_compressed, np.savetxt)},
    np.sort: sort.sort,
    np.argsort: sort.argsort,
    np.partition: lambda a, kth, axis=-1: sort.partition(a, kth, axis),
    np.argpartition: lambda a, kth, axis=-1: sort.argpartition(a, kth, axis),
    np.cumsum: lambda a, axis=None, dtype=None, out=None: scan.cumsum(a, axis, dtype, out),
    np.cumprod: lambda a, axis=None, dtype=None, out=None: scan.cumprod(a, axis, dtype, out),
    np.cumulative_sum: scan.cumulative_sum,
    np.cumulative_prod: scan.cumulative_prod,
    np.searchsorted: lambda a, v, side="left", sorter=None: search.searchsorted(a, v, side, sorter),
    np.unique: _unique,
    np.unique_values: search.unique_values,
    np.unique_all: search.unique_all,
    np.unique_counts: search.unique_counts,
    np.unique_inverse: search.unique_inverse,
    np.isin: search.isin,
    np.put: lambda a, ind, v, mode="raise": take_put.put(a, ind, v, mode),
    np.compress: lambda condition, a, axis=None, out=None: (
        take_put.compress(condition, a, axis, out)
    ),
    np.nonzero: lambda a: take_put.nonzero(a),
    np.argwhere: lambda a: take_put.argwhere(a),
    np.flatnonzero: lambda a: take_put.flatnonzero(a),
    np.dot: products.dot,
    np.vdot: products.vdot,
    np.inner: products.inner,
    np.matmul: products.matmul,
    np.empty_like: _like(None),
    np.zeros_like: _like(0),
    np.ones_like: _like(1),
    np.full_like: lambda a, fill_value, *given, **options: (
        _like(fill_value)(a, *given, **options)
    ),
    np.concatenate: join_split.concatenate,
    np.stack: join_split.stack,
    np.vstack: join_split.vstack,
    np.hstack: join_split.hstack,
    np.dstack: join_split.dstack,
    np.column_stack: join_split.column_stack,
    np.append: join_split.append,
    np.unstack: _unstack,
    np.tile: _tile,
    np.repeat: lambda a, repeats, axis=None: take_put.repeat(a, repeats, axis),
    np.roll: roll,
    np.rot90: lambda m, k=1, axes=(0, 1): _of_views(np.rot90)(m, k, tuple(axes)),
    np.transpose: lambda a, axes=None: a.transpose(axes) if axes is not None else a.T,
    np.matrix_transpose: lambda x: x.swapaxes(-1, -2),
    np.reshape: lambda a, shape, order="C", *, copy=None: a.reshape(
        a.shape if shape is None else shape, order=order, copy=copy
    ),
    np.ravel: lambda a, order="C": a.ravel(order),
    np.squeeze: lambda a, axis=None: a.squeeze(axis),
    np.expand_dims: lambda a, axis: a.expand_dims(_without_bools(axis)),
    np.swapaxes: lambda a, axis1, axis2: a.swapaxes(axis1, axis2),
    np.broadcast_to: lambda array, shape, subok=False: array.broadcast_to(shape),
    np.broadcast_arrays: _broadcast_arrays,
    np.diagonal: lambda a, offset=0, axis1=0, axis2=1: a.diagonal(offset, axis1, axis2),
    np.trace: _trace,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: _size,
    np.copy: lambda a, order="K", subok=False: a.copy(order),
    np.copyto: getitem.copyto,
    np.astype: lambda x, dtype, /, *, copy=True: x.astype(dtype, copy=copy),
    np.ptp: _ptp,
    np.isclose: equality.isclose,
    np.allclose: equality.allclose,
    np.array_equal: equality.array_equal,
    np.array_equiv: equality.array_equiv,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.real: lambda val: val.real,
    np.imag: lambda val: val.imag,
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.result_type: lambda *given: common_dtype(
        [x.dtype if hasattr(x, "__array_function__") else x for x in given], "numpy.result_type"
    ),
    np.may_share_memory: _may_share_memory,
    np.array_repr: lambda arr: repr(arr),
    np.array_str: lambda a: str(a),
    np.outer: contractions.outer,
    np.einsum: contractions.einsum,
    np.tensordot: contractions.tensordot,
    np.kron: contractions.kron,
    np.convolve: polynomials.convolve,
    np.roots: polynomials.roots,
    np.cross: contractions.cross,
    np.diff: _diff,
    np.meshgrid: build.meshgrid,
    np.tril: build.tril,
    np.triu: build.triu,
    np.diag: build.diag,
    np.pad: build.pad,
    np.nan_to_num: build.nan_to_num,
    np.fill_diagonal: build.fill_diagonal,
    np.average: build.average,
    np.fix: lambda x, out=None: FUNCTIONS["trunc"](x, out=out),
    np.where: _where,
    **{
        function: _of_views(function)
        for function in (
            np.split, np.array_split, np.vsplit, np.hsplit, np.dsplit,
            np.flip, np.flipud, np.fliplr, np.moveaxis, np.rollaxis,
        )
    },
    **{getattr(np.linalg, name): getattr(linalg, name) for name in linalg.__all__ if name != "LinAlgError"},
    **{getattr(np.fft, name): getattr(fft, name) for name in fft.__all__ if not name.endswith("freq")},
    **{function: _at_least(function) for function in (np.atleast_1d, np.atleast_2d, np.atleast_3d)},
}  # fmt: skip

# The views that the core has.
_VIEWS = """
    array_split diagonal dsplit expand_dims flip hsplit matrix_transpose moveaxis permute_dims ravel reshape rollaxis
    rot90 split swapaxes transpose unstack vsplit
""".split()
# The core carries these out without Python; calls that it declines go to the functions above.
_core._set_numpy_functions(
    {f: own for f, own in NUMPY_FUNCTIONS.items() if isinstance(own, (BuiltinFunctionType, type(roll)))}
    | {(f := getattr(np, name)): by_numpy(name)(NUMPY_FUNCTIONS[f]) for name in VIEWS}
    | {(f := getattr(np, name)): _core.served(NUMPY_FUNCTIONS[f], name) for name in _VIEWS}
    | {np.broadcast_arrays: _core._broadcasting(_broadcast_arrays)}
    | {getattr(np, name): FUNCTIONS_OF_AXES[row.name]
       for row in REDUCTIONS.values() for name in (row.name, *row.aliases) if hasattr(np, name)}
    | {np.where: FUNCTIONS["where"], np.matmul: products.matmul, np.searchsorted: search.searchsorted,
       np.take_along_axis: take_put.take_along_axis, np.compress: take_put.compress, np.unique: search.unique,
       np.partition: sort.partition, np.argpartition: sort.argpartition, np.cumsum: scan.cumsum,
       np.cumprod: scan.cumprod, np.argwhere: take_put.argwhere, np.flatnonzero: take_put.flatnonzero,
       np.nonzero: take_put.nonzero, np.take: take_put.take}
    | {getattr(np, name): getattr(contractions, name) for name in ("vecdot", "matvec") if hasattr(np, name)},
    np._NoValue,
)  # fmt: skip

_ROWS = [row for row in REDUCTIONS.values() if row.doc]
NUMPY_FUNCTIONS.update({
    getattr(np, name): _numpy_reduction(row)
    for row in REDUCTIONS.values() for name in (row.name, *row.aliases) if hasattr(np, name)
})  # fmt: skip
# (numpy.add, "reduce") -> the function for gpuinterop arrays.
UFUNC_METHODS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {
    (row.ufunc, "reduce"): _ufunc_reduce(FUNCTIONS_OF_AXES[row.name])
    for row in _ROWS
    if row.ufunc is not None
}
UFUNC_METHODS |= {
    (scan.ufunc_of(name), "accumulate"): partial(scan.accumulate, name) for name in scan.JOINS
}
UFUNC_METHODS[np.add, "at"] = getitem.add_at
# Ufuncs that are combinations: the key's method is a call.
# matvec and vecmat are NumPy's from 2.2 on.
UFUNC_METHODS.update({
    (getattr(np, name), "__call__"): getattr(contractions, name)
    for name in ("vecdot", "matvec", "vecmat") if hasattr(np, name)
})  # fmt: skip

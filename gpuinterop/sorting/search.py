"""Search in sorted arrays, and the distinct elements of an array: NumPy on "cpu", a sort and a search on a GPU."""

from __future__ import annotations

import math
import struct
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import LETTERS, STORAGE, WORKING, dtype_id, name_of
from gpuinterop.arrays.numpy_views import as_numpy_view, wrap_numpy
from gpuinterop.arrays.scalars import LISTS, is_scalar_or_list
from gpuinterop.elementwise import results
from gpuinterop.elementwise.functions import cast
from gpuinterop.elementwise.operands import list_operand
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ArgumentTypeError, ShapeError, short_repr
from gpuinterop.errors.messages import not_one_of
from gpuinterop.index.masks import require_waiting
from gpuinterop.index.take_put import take
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import kernels_of
from gpuinterop.jit.texts import program
from gpuinterop.reduce.codegen import SCRATCH, KernelLaunch, Output

from .distinct import unique_plan
from .lines import (
    FIRST_INPUT,
    FIRST_OUTPUT,
    SECOND_INPUT,
    Pieces,
    needs_keys,
    patches,
    sort_launches,
)
from .sort import argsort, require_ordered, sort

# ---- searchsorted ---------------------------------------------------------------------------------

_THREADS = 256

# The types of their overloads are those of constants.
_SEARCHSORTED: Any = np.searchsorted
_UNIQUE: Any = np.unique


_LEFT, _RIGHT, _FOUND, _MISSING = range(4)  # GI_RESULT of search.cuh
_INT64, _BOOL = dtype_id(np.dtype(np.int64)), dtype_id(np.dtype(np.bool_))


def plan_of(x: Any, v: Any, side: str = "left") -> Any:
    """Return the plan of a search on a GPU; None for arrays that have to be converted first, or refused."""
    if side not in ("left", "right") or results.plain(x).ndim != 1 or not _are_ordinary(x, v):
        return None
    return _plan(x.device.index, x.dtype, x.size, v.shape, _RIGHT if side == "right" else _LEFT)


def _are_ordinary(x: Any, y: Any) -> bool:
    """Return whether two arrays have one dtype with an order, and the second one has elements, without gaps."""
    x, y = results.plain(x), results.plain(y)
    known = x.dtype == y.dtype and name_of(x.dtype) in WORKING and y.size
    return bool(known and x.is_c_contiguous() and y.is_c_contiguous())


@lru_cache(maxsize=1024)
def _plan(
    device: int,
    dtype: np.dtype[Any],
    n: int,
    shape: tuple[int, ...],
    result: int,
    sorts: bool = False,
) -> Any:
    """Return the plan that searches n ordered elements, the first operand; for `isin` the second one.

    With `sorts` it sorts them before.
    """
    scratch, size = Pieces(SCRATCH), math.prod(shape)
    launches: list[KernelLaunch] = []
    places = result in (_LEFT, _RIGHT)
    x, values = (FIRST_INPUT, SECOND_INPUT) if places else (SECOND_INPUT, FIRST_INPUT)
    if sorts:
        ordered = scratch.take(n * dtype.itemsize)
        launches = sort_launches(device, dtype, (n,), (0, False), x, ordered, scratch)
        x = ordered
    params = bytes(24) + struct.pack("<2q", n, size)
    (kernel,) = kernels_of(device, ("gi_search",), search_text, name_of(dtype), result)
    at = patches(x, values, FIRST_OUTPUT)
    launches.append(KernelLaunch(kernel, (-(-size // _THREADS), 1), _THREADS, params, at))
    made = Output(_core.gpuarray_class(), _INT64 if places else _BOOL, shape)
    return _core.make_plan(device, launches, scratch.end, [made])


@_core.planned(plan_of, "x v side", 2)
@_core.served
@_core.by_numpy(np.ndarray.searchsorted, "x v side", 2)
def searchsorted(x: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Return where to insert the elements of v into the sorted 1-d x to keep it sorted, as int64.

    With `side` "left" a value is inserted before equal elements, with "right" behind them. `sorter` has the
    indices that sort x. The result is a new array of the shape of v on the device of x. On a GPU it does not wait.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.searchsorted([1, 2, 2, 3], [2, 5]).tolist()
    [1, 4]
    """
    where = "searchsorted"
    if side not in ("left", "right"):
        raise not_one_of(where, "side", ("left", "right"), side)
    x, values = _operands(where, x, v)
    if x.ndim != 1:
        raise ShapeError(where=where, expected="a sorted array of one axis", got=f"shape {x.shape}",
                         fix="flatten it: x.ravel()")  # fmt: skip
    if sorter is not None:
        if isinstance(sorter, LISTS):
            sorter = np.asarray(sorter)  # integers, which would be floats beside an x of floats
        x, sorter = results.as_operands(where, x, sorter)
        if sorter.dtype.kind not in "iu" or sorter.shape != x.shape:
            raise ShapeError(where=where, expected=f"sorter= of {x.size} integers",
                             got=f"dtype {sorter.dtype}, shape {sorter.shape}",
                             fix="pass gpuinterop.argsort(x)")  # fmt: skip
        x = take(x, sorter)
    found = results.new_like(x, values.shape, np.int64, where)
    if x.device.type == "cpu":
        return results.fill_by_numpy(
            found, partial(_SEARCHSORTED, side=side), x, values, where=where
        )
    if values.size:
        x, values = (one if one.is_c_contiguous() else one._copied(where) for one in (x, values))
        plan_of(x, values, side).run((x, values), (found,))
    return found


def _operands(where: str, x: Any, v: Any) -> list[Any]:
    """Return two operands as arrays of one dtype on one device; numbers and lists take a dtype that fits the other."""
    like = next((one for one in (x, v) if isinstance(one, _core.Array)), None)
    arrays: list[Any] = []
    for one in (x, v):
        if isinstance(one, LISTS):
            one = list_operand(one, like, where)
        elif is_scalar_or_list(one):
            one = list_operand([one], like, where).reshape(())
        arrays.append(one)
        like = one if like is None and isinstance(one, _core.Array) else like
    arrays = [results.plain(one) for one in results.as_operands(where, *arrays)]
    dtype = common_dtype([one.dtype for one in arrays], where)
    require_ordered(dtype, where)
    return [one if one.dtype == dtype else cast(one, dtype) for one in arrays]


def search_text(dtype: str, result: int) -> str:
    """Return the program of the kernel of `searchsorted` and `isin`; see search.cuh for `result`."""
    values = {"THREADS": _THREADS, "RESULT": result, "PARTS": int(LETTERS[dtype] == "c")}
    return program(values, f"typedef {STORAGE[dtype]} Stored;", kernel_text("sorting/search.cuh"))


# ---- distinct elements ----------------------------------------------------------------------------


# NumPy's tuples with names.
UniqueAll: Any = type(np.unique_all(()))
UniqueCounts: Any = type(np.unique_counts(()))
UniqueInverse: Any = type(np.unique_inverse(()))


def unique_plan_of(
    x: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Return the plan of `unique` on a GPU; None for arrays that have to be sorted or copied first, or refused."""
    source = results.plain(x)
    known = axis is None and name_of(x.dtype) in WORKING and not needs_keys(x.dtype)
    if not known or not source.size or not source.is_c_contiguous():
        return None
    wanted = bool(return_index), bool(return_inverse), bool(return_counts)
    return unique_plan(source.device.index, source.dtype, source.shape, wanted, bool(equal_nan))


@_core.planned(
    unique_plan_of, "x return_index return_inverse return_counts axis * equal_nan sorted"
)
@_core.by_numpy(np.unique, "x * return_counts equal_nan")
def unique(
    x: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Return the sorted distinct elements of x, and on request more arrays, in this order.

    `return_index`: the index in the flattened x where each occurs first. `return_inverse`: for each element of x, the
    index of its value in the result. `return_counts`: how often each occurs. They are int64. `axis` compares whole
    parts of x along an axis, on "cpu" only. NaN are equal unless `equal_nan` is false. The host waits for the number of
    distinct elements, because it determines the shape, so a capture cannot record it.

    Examples
    --------
    >>> import gpuinterop
    >>> values, counts = gpuinterop.unique([3, 1, 3], return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1.0, 3.0], [1, 2])
    """
    where = "unique"
    (x,) = results.as_operands(where, x)
    wanted = bool(return_index), bool(return_inverse), bool(return_counts)
    source = results.plain(x)
    require_waiting(source.device, where)
    if source.device.type != "cpu" and axis is not None:
        raise ArgumentTypeError(where=where, expected="axis=None for an array on a GPU", got=f"axis={short_repr(axis)}",
                                fix="call it on the host: gpuinterop.unique(x.cpu(), axis=0)")  # fmt: skip
    if source.device.type == "cpu":
        found = _unique_on_host(source, wanted, axis, equal_nan)
    else:
        found = _unique_on_device(source, wanted, equal_nan)
    found[0] = _core.view(results.class_for(type(x), x.dtype), found[0])
    return tuple(found) if len(found) > 1 else found[0]


def _unique_on_host(source: Any, wanted: tuple[bool, ...], axis: Any, equal_nan: bool) -> list[Any]:
    along = None if axis is None else _core.read_axis(axis, source.ndim, "unique")
    with_indices, *rest = wanted
    # With indices NumPy's sort is stable, and slower. It determines the inverse of distinct NaN.
    has_distinct = not equal_nan and source.dtype.kind not in "biu"
    stable = with_indices or (wanted[1] and has_distinct)
    made = _UNIQUE(as_numpy_view(source, "unique"), stable, *rest, along, equal_nan=equal_nan)
    arrays = list(made) if isinstance(made, tuple) else [made]
    if stable and not with_indices:
        del arrays[1]
    return [_core.adopt(_core.gpuarray_class(), wrap_numpy(one)) for one in arrays]


def _unique_on_device(source: Any, wanted: tuple[bool, bool, bool], equal_nan: bool) -> list[Any]:
    if not source.size:
        shapes = ((0,), source.shape, (0,))
        empty = [results.new_like(source, (0,), source.dtype, "unique")]
        return empty + [
            results.new_like(source, shape, np.int64, "unique")
            for wants, shape in zip(wanted, shapes, strict=True)
            if wants
        ]
    x = source if source.is_c_contiguous() else source._copied("unique")
    operands, sorts = [x], not needs_keys(x.dtype)
    if not sorts:
        operands.append((argsort if wanted[0] or wanted[1] else sort)(x, None))
    plan = unique_plan(x.device.index, x.dtype, x.shape, wanted, equal_nan, sorts)
    found = plan.run(tuple(operands))
    return list(found) if isinstance(found, tuple) else [found]


@_core.planned(partial(unique_plan_of, equal_nan=False), "x /")
@_core.by_numpy(np.unique, "x", fixed={"equal_nan": False})
def unique_values(x: Any, /) -> Any:
    """Return the sorted distinct elements of x; each NaN is distinct. See `unique`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.unique_values([3, 1, 3]).tolist()
    [1.0, 3.0]
    """
    return unique(x, equal_nan=False)


@_core.planned(
    partial(unique_plan_of, equal_nan=False, return_counts=True), "x /", tuple=UniqueCounts
)
@_core._distinct(_core.COUNTS, UniqueCounts)
@_core.by_numpy(np.unique_counts, "x")
def unique_counts(x: Any, /) -> Any:
    """Return the sorted distinct elements of x, and how often each occurs; each NaN is distinct.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.unique_counts([3, 1, 3]).counts.tolist()
    [1, 2]
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


@_core.planned(
    partial(unique_plan_of, equal_nan=False, return_inverse=True), "x /", tuple=UniqueInverse
)
@_core._distinct(_core.INVERSE, UniqueInverse)
def unique_inverse(x: Any, /) -> Any:
    """Return the sorted distinct elements of x, and for each element of x the index of its value.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.unique_inverse([3, 1, 3]).inverse_indices.tolist()
    [1, 0, 1]
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False))


@_core.planned(
    partial(
        unique_plan_of, equal_nan=False, return_index=True, return_inverse=True, return_counts=True
    ),
    "x /",
    tuple=UniqueAll,
)
@_core._distinct(_core.INDICES | _core.INVERSE | _core.COUNTS, UniqueAll)
@_core.by_numpy(np.unique_all, "x")
def unique_all(x: Any, /) -> Any:
    """Return the sorted distinct elements of x with their first indices, the inverse indices and the counts.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.unique_all([3, 1, 3]).indices.tolist()
    [1, 0]
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False))


def isin_plan_of(x: Any, tests: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return the plan of `isin` on a GPU; None for arrays that have to be converted or sorted first, or refused."""
    if not _are_ordinary(x, tests) or not x.size or needs_keys(x.dtype):
        return None
    result = _MISSING if invert else _FOUND
    return _plan(x.device.index, x.dtype, tests.size, x.shape, result, True)


@_core.planned(isin_plan_of, "element test_elements assume_unique invert", 2)
@_core.served
@_core.by_numpy(np.isin, "element test_elements assume_unique invert", 2)
def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> Any:
    """Return for each element whether it is among `test_elements`, or, with `invert`, whether it is not.

    `assume_unique` and `kind` are NumPy's, and have an effect on "cpu" only. The result is a new array of bools of the
    shape of `element`. On a GPU it does not wait.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.isin([1, 2, 3], [3, 1]).tolist()
    [True, False, True]
    """
    where = "isin"
    inverted = bool(invert)
    if kind not in (None, "sort", "table"):
        raise not_one_of(where, "kind", ("sort", "table"), kind)
    x, tests = _operands(where, element, test_elements)
    if x.device.type == "cpu":
        found = results.new_like(x, x.shape, np.bool_, where)
        test = partial(np.isin, assume_unique=assume_unique, invert=inverted, kind=kind)
        return results.fill_by_numpy(found, test, x, tests, where=where)
    if not tests.size or not x.size:
        found = results.new_like(x, x.shape, np.bool_, where)
        found.fill(inverted)
        return found
    x, tests = (one if one.is_c_contiguous() else one._copied(where) for one in (x, tests))
    sorts = not needs_keys(x.dtype)
    if not sorts:
        tests = sort(tests, None)
    result = _MISSING if inverted else _FOUND
    return _plan(x.device.index, x.dtype, tests.size, x.shape, result, sorts).run((x, tests))

"""NumPy's functions that build an array from views of others: meshgrid, tril, triu, diag, pad and their relatives.

Views, assignments and operations of the package compute them on both devices, without a transfer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.elementwise.operands import as_operand
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ShapeError, short_repr
from gpuinterop.fusion.fuse import fuse
from gpuinterop.index import join_split, take_put
from gpuinterop.index.masks import may_wait


@_core._meshing
def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Any, ...]:
    """Return numpy.meshgrid: the coordinates of a grid, one array for each axis."""
    if indexing not in ("xy", "ij"):
        raise ShapeError(where="numpy.meshgrid", expected="indexing 'xy' or 'ij'",
                         got=short_repr(indexing), fix="pass indexing='ij' for the order of the arguments")  # fmt: skip
    like = next(x for x in xi if isinstance(x, _core.Array))
    vectors = [as_operand(x, like, "numpy.meshgrid").ravel() for x in xi]
    order = [*range(len(xi))]
    if indexing == "xy" and len(xi) > 1:
        order[:2] = 1, 0
    grids = [
        v.reshape([v.size if axis == i else 1 for axis in range(len(xi))])
        for i, v in zip(order, vectors, strict=True)
    ]
    if not sparse:
        shape = _core.broadcast_shapes([x.shape for x in grids], "numpy.meshgrid")
        grids = [x.broadcast_to(shape) for x in grids]
    return tuple(x.copy() for x in grids) if copy else tuple(grids)


# ---- diagonals and triangles --------------------------------------------------------------------


def _triangle_of(upper: bool, m: Any, k: int = 0) -> Any:
    """Return the function of matrices of the shape and dtype of `m`."""
    if m.ndim < 2 or not m.size:
        return None
    inside = k - 1 if upper else k + 1
    return partial(FUNCTIONS["where"], _triangle_mask(m, inside, not upper), False)


@_core.prepared(partial(_triangle_of, False), "m k", "m")
@_core.served
def tril(m: Any, k: int = 0) -> Any:
    """Return numpy.tril: a copy with zeros above the k-th diagonal."""
    return _triangle(m, k, "numpy.tril", False)


@_core.prepared(partial(_triangle_of, True), "m k", "m")
@_core.served
def triu(m: Any, k: int = 0) -> Any:
    """Return numpy.triu: a copy with zeros below the k-th diagonal."""
    return _triangle(m, k, "numpy.triu", True)


def _triangle(m: Any, k: int, where: str, upper: bool) -> Any:
    x = m.broadcast_to((*m.shape, *m.shape)) if m.ndim == 1 else m  # as NumPy does for a vector
    if x.ndim < 2:
        raise ShapeError(
            where=where,
            expected="one axis or more",
            got="a 0-d array",
            fix="reshape it: x.reshape(1)",
        )
    if not x.size:
        return x.copy()
    return FUNCTIONS["where"](_triangle_mask(x, k, upper), x, x.dtype.type(0))


def _triangle_mask(x: Any, k: int, upper: bool) -> Any:
    """Return a mask of the k-th diagonal with what is above it; without `upper`, with what is below it."""
    rows, columns = x.shape[-2:]
    # Element (i, j) of the mask is element rows - 1 - i + j of a vector, so no index is computed.
    vector = results.new_like(x, (rows + columns - 1,), np.dtype(np.bool_))
    first = max(rows - 1 + (k if upper else k + 1), 0)
    vector[:first], vector[first:] = not upper, upper
    return vector._restrided((rows, columns), (-1, 1), rows - 1)


def _diag_of(v: Any, k: int = 0) -> Any:
    """Return the function of arrays of the shape and dtype of `v`."""
    if v.ndim == 2:
        return lambda v: v.diagonal(k).copy()
    if v.ndim != 1:
        raise ShapeError(where="numpy.diag", expected="a vector or a matrix", got=f"shape {v.shape}",
                         fix="call numpy.diagonal(x)")  # fmt: skip
    n, dtype = v.size + abs(k), v.dtype

    def call(v: Any) -> Any:
        made = results.new_like(v, (n, n), dtype)
        made[...] = 0
        made.diagonal(k)[...] = v
        return made

    return call


@_core.prepared(_diag_of, "v k", "v")
def diag(v: Any, k: int = 0) -> Any:
    """Return numpy.diag: a matrix with the vector on its k-th diagonal, or a copy of a matrix's diagonal."""
    return _diag_of(v, k)(v)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Set the diagonal of a square array, or of equal axes, as numpy.fill_diagonal."""
    if a.ndim != 2 or wrap:
        raise TypeError(f"an array of {a.ndim} axes" if a.ndim != 2 else "wrap=True")
    target = a.diagonal()
    if np.ndim(val):
        val = as_operand(val, a, "numpy.fill_diagonal").ravel()
        if val.size != target.size:
            val = take_put.take(val, np.arange(target.size) % max(val.size, 1))
    target[...] = val


# ---- padding --------------------------------------------------------------------------------------


def _pad_of(array: Any, pad_width: Any, mode: Any = "constant") -> Any:
    """Return the function of arrays of one shape with zeros or edges around them; None for other modes."""
    widths = [n for pair in _pairs(pad_width, array.ndim) for n in pair]
    if mode not in ("constant", "edge") or not array.size or min(widths, default=-1) < 0:
        return None
    return partial(_core._padded, widths=widths, edge=mode == "edge")


@_core.prepared(_pad_of, "array pad_width mode", "array")
@_core.by_numpy(np.pad, "array pad_width mode")
def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """Return numpy.pad in the modes that take elements of the array, or constants."""
    widths = _pairs(pad_width, array.ndim)
    if any([low < 0 or high < 0 for low, high in widths]):
        raise ValueError("index can't contain negative values")
    if mode == "constant":
        return _pad_with(array, widths, options)
    if mode not in ("edge", "wrap", "empty", "reflect", "symmetric"):
        raise TypeError(f"mode={short_repr(mode)}")
    if {*options} - {"reflect_type"} or options.get("reflect_type", "even") != "even":
        raise TypeError(f"the options {short_repr(options)}")
    if mode == "empty":
        made, inside = _padded(array, widths)
        made[inside] = array
        return made
    padded = array
    for axis, (low, high) in enumerate(widths):
        if low or high:
            padded = _extended(padded, axis, low, high, mode)
    return array.copy() if padded is array else padded


def _pairs(given: Any, ndim: int) -> list[tuple[int, int]]:
    """Return two integers for each axis, from the forms that NumPy takes."""
    if type(given) is int:
        return [(given, given)] * ndim
    if isinstance(given, dict):
        pairs: list[Any] = [given.get(i, given.get(i - ndim, 0)) for i in range(ndim)]
        given = [(p, p) if np.ndim(p) == 0 else p for p in pairs]
    widths: Any = np.asarray(given)
    if widths.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    return [(low, high) for low, high in np.broadcast_to(widths, (ndim, 2)).tolist()]


def _extended(x: Any, axis: int, low: int, high: int, mode: str) -> Any:
    """Return x with elements of its own before and behind it along an axis."""
    n, before = x.shape[axis], (slice(None),) * axis

    def part(start: int, stop: int, step: int = 1) -> Any:
        chosen, order = (*before, slice(start, stop)), (*before, slice(None, None, step))
        return x[chosen] if step == 1 else x[chosen][order]

    if n and mode == "edge":
        shapes = [(*x.shape[:axis], width, *x.shape[axis + 1 :]) for width in (low, high)]
        ends = [part(i, i + 1).broadcast_to(s) for i, s in zip((0, n - 1), shapes, strict=True)]
    elif max(low, high) > n - (mode == "reflect") or mode == "edge":
        # NumPy says which element goes where.
        return take_put.take(x, np.pad(np.arange(n), (low, high), mode), axis)  # type: ignore[call-overload]
    elif mode == "wrap":
        ends = [part(n - low, n), part(0, high)]
    else:
        skipped = int(mode == "reflect")
        ends = [part(skipped, low + skipped, -1), part(n - high - skipped, n - skipped, -1)]
    return join_split.concatenate([ends[0], x, ends[1]], axis)


def _padded(array: Any, widths: list[tuple[int, int]]) -> tuple[Any, tuple[slice, ...]]:
    """Return a new array with space around the elements, and where they go."""
    shape = tuple([n + low + high for n, (low, high) in zip(array.shape, widths, strict=True)])
    inside = tuple([slice(low, low + n) for n, (low, _) in zip(array.shape, widths, strict=True)])
    return results.new_like(array, shape, array.dtype), inside


def _pad_with(array: Any, widths: list[tuple[int, int]], options: dict[str, Any]) -> Any:
    values = options.pop("constant_values", 0)
    if options:
        raise TypeError(f"the options {short_repr(options)}")
    made, inside = _padded(array, widths)
    one = np.ndim(values) == 0
    if one:
        made[...] = (
            0
            if type(values) is int and not values
            else np.asarray(values).astype(array.dtype).item()
        )
    made[inside] = array
    if one:
        return made
    values = np.broadcast_to(np.asarray(values), (array.ndim, 2))
    for axis, (n, (low, _)) in enumerate(zip(array.shape, widths, strict=True)):
        # Earlier axes with their borders, later ones without: so the later value fills the corner.
        for value, part in zip(values[axis], (slice(low), slice(low + n, None)), strict=True):
            region = made[(slice(None),) * axis + (part, *inside[axis + 1 :])]
            if region.size:
                region[...] = value.astype(array.dtype).item()
    return made


# ---- values ---------------------------------------------------------------------------------------


_replaced = fuse(
    lambda x, nan, above, below: FUNCTIONS["where"](
        FUNCTIONS["isnan"](x), nan,
        FUNCTIONS["where"](x == np.inf, above, FUNCTIONS["where"](x == -np.inf, below, x)),
    )
)  # fmt: skip


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Return numpy.nan_to_num: NaN and infinities replaced by numbers."""
    if x.dtype.kind not in "fc":
        return x.copy() if copy else x
    if x.dtype.kind == "c":
        found = x.copy() if copy else x
        for part in (np.real(found), np.imag(found)):
            nan_to_num(part, False, nan, posinf, neginf)
        return found
    most = float(np.finfo(x.dtype).max)
    above, below = most if posinf is None else posinf, -most if neginf is None else neginf
    return _replaced(x, nan, above, below, **({} if copy else {"out": x}))


def _average_of(
    a: Any, weights: Any, axis: Any = None, returned: Any = False, keepdims: Any = False
) -> Any:
    """Return the function of an array and weights of its shape; None for other calls."""
    if a.shape != weights.shape or returned is not False or type(keepdims) is not bool:
        return None
    dtype = _average_dtype(a, weights)
    return lambda a, weights: _weighted_mean(a, weights, axis, dtype, keepdims)[0]


def _average_dtype(a: Any, w: Any) -> np.dtype[Any]:
    dtypes = a.dtype, w.dtype, *([np.float64] if a.dtype.kind in "biu" else [])
    return common_dtype(dtypes, "numpy.average")


def _weighted_mean(
    a: Any, w: Any, axis: Any, dtype: np.dtype[Any], keepdims: bool
) -> tuple[Any, Any]:
    """Return the mean with weights, and the sum of these."""
    total = w.sum(axis, dtype, keepdims=keepdims)
    if a.device.type == "cpu" and may_wait(a.device) and not total.all():
        raise ZeroDivisionError(
            "numpy.average: expected weights that do not sum to 0\n  fix: pass other weights"
        )
    weighted = FUNCTIONS["multiply"](a.astype(dtype, copy=False), w.astype(dtype, copy=False))
    return weighted.sum(axis, dtype, keepdims=keepdims) / total, total


@_core.prepared(_average_of, "a axis weights returned * keepdims", "a weights")
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """Return numpy.average: the mean with weights.

    Weights that sum to 0 raise ZeroDivisionError on "cpu". On a GPU that would wait, and the mean is NaN or infinite.
    """
    keepdims = keepdims is not np._NoValue and keepdims
    if weights is None:
        found = np.mean(a, axis=axis, keepdims=keepdims)
        if not returned:
            return found
        total = results.new_like(found, found.shape, found.dtype)
        total[...] = a.size / found.size
        return found, total
    a, w = (
        as_operand(x, a if isinstance(a, _core.Array) else weights, "numpy.average")
        for x in (a, weights)
    )
    if w.shape != a.shape:
        if axis is None or w.ndim != 1 or np.ndim(axis):
            raise TypeError(f"weights of shape {w.shape} for shape {a.shape}")
        along = _core.read_axis(axis, a.ndim, "numpy.average")
        if w.size != a.shape[along]:
            raise ShapeError(where="numpy.average", expected=f"{a.shape[along]} weights", got=f"{w.size}",
                             fix="pass a weight for each element along the axis")  # fmt: skip
        w = w.reshape([-1 if i == along else 1 for i in range(a.ndim)]).broadcast_to(a.shape)
    found, total = _weighted_mean(a, w, axis, _average_dtype(a, w), keepdims)
    return (found, total) if returned else found

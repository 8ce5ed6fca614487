"""Running sums and products, and `accumulate` of NumPy's ufuncs.

NumPy computes them on "cpu". On a GPU a thread scans a line of few elements (scan_few.cuh), a block scans columns
(scan_columns.cuh), and contiguous lines are cut into tiles (scan_tiles.cuh): a first kernel computes the totals of the
tiles, a second one their running totals, a third one the results. So the order of additions depends on the shape alone,
and results are reproducible. Floats of 16 bits or less are accumulated in float32.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import (
    ACCUMULATORS,
    LETTERS,
    STORAGE,
    WORKING,
    as_supported_dtype,
    dtype_id,
    name_of,
)
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.elementwise import results
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.errors.arguments import require_bool
from gpuinterop.errors.messages import undefined_for_dtypes
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import loaded_kernels, multiprocessors
from gpuinterop.jit.texts import program
from gpuinterop.reduce.codegen import INPUT, OUTPUT, SCRATCH, KernelLaunch, Output, Patch
from gpuinterop.reduce.table import REDUCTIONS

_RANKS = {"b": 0, "u": 0, "i": 0, "f": 1, "c": 2}
_EXTREME = "a {} b || a != a ? a : b"  # NaN stays
# By the name of a reduction that is a ufunc: the CUDA expression that joins two values `a` and `b`, by the letter of
# the result's dtype. The row of `REDUCTIONS` has the ufunc, whose `accumulate` the host calls, and the result's dtype.
JOINS: dict[str, dict[str, str]] = {
    "sum": {"i": "gi_add(a, b)", "f": "a + b", "c": "a + b"},
    "prod": {"i": "gi_mul(a, b)", "f": "a * b", "c": "a * b"},
    "max": {"i": "a >= b ? a : b", "f": _EXTREME.format(">=")},
    "min": {"i": "a <= b ? a : b", "f": _EXTREME.format("<=")},
    "any": {"i": "a | b"},
    "all": {"i": "a & b"},
}


def ufunc_of(name: str) -> Any:
    """Return the ufunc of NumPy whose `accumulate` a scan is."""
    return REDUCTIONS[name].ufunc


# ---- functions ------------------------------------------------------------------------------------


def plan_of(name: str, x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Return the plan of a scan of an array on a GPU; None if one plan is not enough."""
    source = results.plain(x)
    if not source.size or not source.is_c_contiguous():
        return None
    if axis is None or not source.ndim:
        source, axis = source.reshape(-1), axis or 0
    along = _core.read_axis(axis, source.ndim, name)
    if dtype is not None:
        dtype = as_supported_dtype(dtype, name)
    dtype = _dtype_of_result(name, source.dtype, dtype, name)
    n, inner = source.shape[along], math.prod(source.shape[along + 1 :])
    if _has_few_columns(source, n, inner):
        return None
    return _plan_for(name, source, n, inner, dtype, source.ptr % 16 == 0)


def _plan_of_cumulative(name: str, x: Any, axis: Any = None, dtype: Any = None) -> Any:
    return None if axis is None and x.ndim > 1 else plan_of(name, x, axis, dtype)


@_core.planned(partial(plan_of, "sum"), "x axis dtype")
@_core.served
@_core.by_numpy(np.add.accumulate, "x axis dtype")
@_core.by_numpy(np.ndarray.cumsum, "x axis dtype")  # which flattens too
def cumsum(x: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running sums of x along `axis`; None flattens x first.

    Sums of integers are int64 or uint64 unless `dtype` is given, as in NumPy. The result is a new C-ordered array on
    the device of x, or `out`. Results on a GPU are the same in every run.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.cumsum([[1, 2], [3, 4]], axis=0).tolist()
    [[1.0, 2.0], [4.0, 6.0]]
    """
    return _scan("sum", x, axis, dtype, out, "cumsum")


@_core.planned(partial(plan_of, "prod"), "x axis dtype")
@_core.served
@_core.by_numpy(np.multiply.accumulate, "x axis dtype")
@_core.by_numpy(np.ndarray.cumprod, "x axis dtype")  # which flattens too
def cumprod(x: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running products of x along `axis`; None flattens x first. See `cumsum`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.cumprod([2, 3, 4]).tolist()
    [2.0, 6.0, 24.0]
    """
    return _scan("prod", x, axis, dtype, out, "cumprod")


@_core.planned(partial(_plan_of_cumulative, "sum"), "x * axis dtype")
@_core.served
@_core.by_numpy(np.add.accumulate, "x * axis dtype")
def cumulative_sum(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    include_initial: bool = False,
) -> Any:
    """Return the running sums of x along `axis`, which only arrays of one axis may omit.

    With `include_initial` the result begins with 0 and is longer by one. See `cumsum`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.cumulative_sum([1, 2, 3], include_initial=True).tolist()
    [0.0, 1.0, 3.0, 6.0]
    """
    return _cumulative("sum", x, axis, dtype, out, include_initial, "cumulative_sum")


@_core.planned(partial(_plan_of_cumulative, "prod"), "x * axis dtype")
@_core.served
@_core.by_numpy(np.multiply.accumulate, "x * axis dtype")
def cumulative_prod(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    include_initial: bool = False,
) -> Any:
    """Return the running products of x along `axis`, which only arrays of one axis may omit.

    With `include_initial` the result begins with 1 and is longer by one. See `cumsum`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.cumulative_prod([2, 3], include_initial=True).tolist()
    [1.0, 2.0, 6.0]
    """
    return _cumulative("prod", x, axis, dtype, out, include_initial, "cumulative_prod")


def accumulate(name: str, x: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """Return ``ufunc.accumulate(x)`` for the ufunc of an entry of `JOINS`."""
    where = f"numpy.{ufunc_of(name).__name__}.accumulate"
    (x,), axis = results.as_operands(where, x), _without_tuple(axis)
    if not x.ndim or axis is None:
        raise ArgumentTypeError(where=where, expected="one axis of an array of one axis or more",
                                got=f"axis {axis} of shape {x.shape}", fix="reshape it: x.reshape(-1)")  # fmt: skip
    return _scan(name, x, axis, dtype, out, where)


def _without_tuple(axis: Any) -> Any:
    """Return the axis of a tuple of one, which NumPy's `accumulate` accepts."""
    return axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis


def _cumulative(
    name: str, x: Any, axis: Any, dtype: Any, out: Any, include_initial: Any, where: str
) -> Any:
    (x,), axis = results.as_operands(where, x), _without_tuple(axis)
    if axis is None and x.ndim > 1:
        raise ShapeError(where=where, expected="axis=, because x has several axes", got=f"shape {x.shape}",
                         fix="pass axis=0, or flatten it: x.ravel()")  # fmt: skip
    if not require_bool(include_initial, "include_initial", where):
        return _scan(name, x, axis, dtype, out, where)
    scanned = _scan(name, x, axis, dtype, None, where)
    along = _core.read_axis(0 if axis is None else axis, scanned.ndim, where)
    shape = tuple(n + (i == along) for i, n in enumerate(scanned.shape))
    if out is None:
        out = results.new_like(scanned, shape, scanned.dtype, where)
    target = results.check_out(out, shape, scanned.dtype, scanned, where).swapaxes(0, along)
    target[:1] = REDUCTIONS[name].identity
    _core.copy_into(target[1:], scanned.swapaxes(0, along), where=where, uncounted=True)
    return out


def _scan(name: str, x: Any, axis: Any, dtype: Any, out: Any, where: str) -> Any:
    (x,) = results.as_operands(where, x)
    source = results.plain(x)
    if axis is None or not source.ndim:
        source = source.reshape(-1)
        axis = 0 if axis is None else axis
    along = _core.read_axis(axis, source.ndim, where)
    if dtype is None and isinstance(out, _core.Array):
        # Elements are cast before they are joined. Without fractions or imaginary parts that would give other results,
        # so such an `out` is refused.
        ranks = [_RANKS[LETTERS[name_of(one.dtype)]] for one in (source, out)]
        dtype = out.dtype if ranks[0] <= ranks[1] else None
    if dtype is not None:
        dtype = as_supported_dtype(dtype, where)
    dtype = _dtype_of_result(name, source.dtype, dtype, where)
    target = None if out is None else results.check_out(out, source.shape, dtype, source, where)
    if source.device.type != "cpu" and source.size:
        found = _on_device(
            name, source, along, dtype, results.class_for(type(x), dtype), target, where
        )
        return found if out is None else out
    if out is None:
        out = target = results.new_like(source, source.shape, dtype, where, type(x))
    if source.device.type == "cpu":
        _on_host(ufunc_of(name), source, along, target, where)
    return out


@lru_cache(maxsize=1024)
def _dtype_of_result(name: str, source: np.dtype[Any], dtype: Any, where: str) -> np.dtype[Any]:
    """Return the dtype of the result; refuse dtypes for which there is no kernel, on both devices."""
    known = name_of(source) in ACCUMULATORS
    found: np.dtype[Any] = (
        REDUCTIONS[name].result(source) if dtype is None and known else dtype or source
    )
    letter = LETTERS[name_of(found)]
    known = known and name_of(found) in ACCUMULATORS
    if not known or ("i" if letter in "bu" else letter) not in JOINS[name]:
        got = name_of(found if known else source)
        raise undefined_for_dtypes(where, where, got, "cast first: x.astype('float32')")
    return found


def _on_host(ufunc: np.ufunc, source: Any, along: int, target: Any, where: str) -> None:
    values, written = as_numpy_view(source, where), as_numpy_view(target, written=True)
    results.record_or_run(
        lambda: (
            ufunc.accumulate(values, along, written.dtype, out=written) if written.size else None
        )
    )


# ---- kernels --------------------------------------------------------------------------------------

FEW = 32  # elements of a line that one thread joins
_COLUMNS = 32  # of a block
_RUNNING = 1024  # threads of gi_scan_running_totals
_LONG = 1 << 22  # elements, of which the largest tiles make enough blocks
# By the bytes of an element: threads of a block, and vectors of a thread. The first whose tile holds a line scans it.
FORMS = {
    4: ((32, 1), (128, 1), (256, 4), (256, 8), (512, 8)),
    8: ((32, 1), (128, 2), (256, 4), (256, 8), (512, 8)),
    16: ((32, 1), (128, 2), (256, 4)),
}
# The tiles of lines that have several, and those of long lines.
TILES = {4: ((256, 4), (256, 8)), 8: ((256, 4), (256, 8)), 16: ((128, 2), (256, 4))}


def accumulator(dtype: str) -> str:
    """Return the CUDA type in which results of a dtype are accumulated."""
    letter = LETTERS[dtype]
    if letter in "bui" and np.dtype(dtype).itemsize < 4:
        return "u32" if letter == "u" else "i32"
    return WORKING[dtype]


def text(
    file: str, name: str, source: str, dtype: str, threads: int = 256, chunks: int = 1, vector: int = 1,
    aligned: bool = False,
) -> str:  # fmt: skip
    """Return the program of the kernels in a file."""
    letter = LETTERS[dtype]
    values = {"THREADS": threads, "CHUNKS": chunks, "V": vector, "ALIGNED": int(aligned)}
    types = f"typedef {STORAGE[source]} In;\ntypedef {STORAGE[dtype]} Out;\ntypedef {accumulator(dtype)} Acc;"
    join = f"GI_FN Acc gi_join(Acc a, Acc b) {{ return {JOINS[name]['i' if letter in 'bu' else letter]}; }}"
    return program(
        values, types, join, *(kernel_text(f"sorting/{part}.cuh") for part in ("scan", file))
    )


def _on_device(
    name: str, source: Any, along: int, dtype: np.dtype[Any], cls: Any, target: Any, where: str
) -> Any:
    """Return the results in `target`, or in a new array of class `cls`."""
    if not source.is_c_contiguous():
        source = source._copied(where)
    shape = source.shape
    n, inner = shape[along], math.prod(shape[along + 1 :])
    if target is None:
        target = results.new_like(source, shape, dtype, where, cls)
    if _has_few_columns(source, n, inner):
        lines = source.swapaxes(along, -1)._copied(where)
        scanned = _run(name, lines, n, 1, results.new_like(lines, lines.shape, dtype, where))
        scanned = scanned.swapaxes(along, -1)
    elif target.is_c_contiguous() and not _core._may_overlap(source, target):
        return _run(name, source, n, inner, target)
    else:
        scanned = _run(name, source, n, inner, results.new_like(source, shape, dtype, where))
    _core.copy_into(target, scanned, where=where, uncounted=True)
    return target


def _has_few_columns(source: Any, n: int, inner: int) -> bool:
    """Return whether an array has too few columns for the kernel of columns."""
    groups = source.size // (n * inner) * -(-inner // _COLUMNS)
    few = 2 * inner < _COLUMNS or 2 * groups < multiprocessors(source.device.index)
    return inner > 1 and n > FEW and few


def _run(name: str, source: Any, n: int, inner: int, out: Any) -> Any:
    """Scan the middle axis of a C-contiguous array of shape (..., n, inner) into another one."""
    aligned = source.ptr % 16 == 0 and out.ptr % 16 == 0
    return _plan_for(name, source, n, inner, out.dtype, aligned).run((source,), (out,))


def _plan_for(
    name: str, source: Any, n: int, inner: int, dtype: np.dtype[Any], aligned: bool
) -> Any:
    device = source.device.index
    return _plan(device, name, source.dtype, dtype, source.shape, n, inner, aligned)


@lru_cache(maxsize=1024)
def _plan(
    device: int, name: str, source: np.dtype[Any], dtype: np.dtype[Any], shape: tuple[int, ...], n: int,
    inner: int, aligned: bool,
) -> Any:  # fmt: skip
    """Return the `_core.Plan` of a scan."""
    of_text, lines = (name, name_of(source), name_of(dtype)), math.prod(shape) // n
    patches, scratch = [Patch(0, INPUT), Patch(8, OUTPUT)], 0
    if n > FEW and inner == 1:
        wide = max(source.itemsize, dtype.itemsize, 4)
        threads, chunks, vector = _form(n, wide)
        tile = threads * chunks * vector
        tiles = -(-n // tile)
        kernels, blocks = ["gi_scan_tiles"], [(lines * tiles, threads)]
        patches.append(Patch(16, SCRATCH))
        if tiles > 1:
            kernels = ["gi_scan_totals", "gi_scan_running_totals", *kernels]
            blocks = [*blocks, (lines, _RUNNING), *blocks]
        scratch = 16 * lines * tiles  # the totals of tiles
        numbers = lines, n, tiles
        made = text("scan_tiles", *of_text, threads, chunks, vector, aligned and n % vector == 0)
    else:
        few = n <= FEW
        kernels = ["gi_scan_few" if few else "gi_scan_columns"]
        blocks = [
            (-(-lines // 256), 256) if few else (lines // inner * -(-inner // _COLUMNS), 1024)
        ]
        numbers = lines, n, inner
        made = text("scan_few" if few else "scan_columns", *of_text)
    params = bytes(8 * len(patches)) + struct.pack("<3q", *numbers)
    launches = [
        KernelLaunch(kernel, (grid, 1), threads, params, patches)
        for kernel, (grid, threads) in zip(
            loaded_kernels(device, made, kernels), blocks, strict=True
        )
    ]
    return _core.make_plan(device, launches, scratch, [Output(None, dtype_id(dtype), shape)])


def _form(n: int, wide: int) -> tuple[int, int, int]:
    """Return the threads of a block, the vectors of a thread, and the elements of a vector."""
    vector = 16 // wide
    fitting = [form for form in FORMS[wide] if n <= form[0] * form[1] * vector]
    threads, chunks = fitting[0] if fitting else TILES[wide][n >= _LONG]
    return threads, chunks, vector

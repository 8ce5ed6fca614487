"""softmax and its logarithm of rows: one kernel on a GPU, which reads and writes each element once; steps on "cpu"."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import STORAGE, WORKING, dtype_id, name_of
from gpuinterop.elementwise.host_program import HostProgram, HostValue, row_program, row_results
from gpuinterop.elementwise.table import TABLE
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import loaded_kernels
from gpuinterop.jit.texts import program

from .codegen import INPUT, OUTPUT, KernelLaunch, Output, Patch
from .host_program import cast_stages, host_stages

Function = TypeVar("Function")
DTYPES = frozenset(map(np.dtype, ("float16", "float32", "float64")))
# Threads of a block, and elements of a thread; shorter rows would leave most threads of many blocks without work.
FORMS = ((32, 1), (64, 2), (128, 4), (256, 4), (512, 8), (512, 16))
_SHORT, _FEW = 24, 4096
_LONGEST = 4096  # elements of a row on "cpu"


def text(dtype: str, logarithm: bool, threads: int, items: int) -> str:
    """Return the program of the kernel."""
    values = {"THREADS": threads, "ITEMS": items, "LOG": int(logarithm)}
    types = f"typedef {STORAGE[dtype]} Stored;\ntypedef {WORKING[dtype]} Acc;"
    return program(values, types, kernel_text("reduce/softmax.cuh"))


def rows_by_core(logarithm: bool) -> Callable[[Function], Function]:
    """Return the decorator of softmax, or of its logarithm, by which the core carries out calls for rows."""
    return _core.planned(partial(_plan_of, logarithm), "x axis", on_host=True)


def softmax_of_rows(logarithm: bool, x: Any, axis: Any) -> Any:
    """Return softmax, or its logarithm, along an axis; None if another way is necessary or faster."""
    plan = _plan_of(logarithm, x, axis)
    return None if plan is None else plan.run((x,), None)


def _plan_of(logarithm: bool, x: Any, axis: Any = -1) -> Any:
    axes, seen = _core.read_axes(axis, x.ndim, "softmax"), core_view(x)
    if axes != (seen.ndim - 1,) or x.dtype not in DTYPES or not seen.is_c_contiguous():
        return None
    if seen.device.type == "cpu":
        return _plan_on_host(logarithm, dtype_id(x.dtype), tuple(seen.shape))
    return _plan(seen.device.index, logarithm, x.dtype, tuple(seen.shape))


@lru_cache(maxsize=1024)
def _plan(device: int, logarithm: bool, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Return the `_core.Plan`, None if another way is faster."""
    n = shape[-1] if shape else 0
    rows = int(np.prod(shape[:-1], dtype=object)) if n else 0
    form = next(((t, k) for t, k in FORMS if n <= t * k), None)
    if not rows or form is None or rows >= 1 << 31 or (n < _SHORT and rows > _FEW):
        return None
    made = text(name_of(dtype), logarithm, *form)
    (kernel,) = loaded_kernels(device, made, ("gi_softmax_rows",))
    params, patches = bytes(16) + struct.pack("<q", n), [Patch(0, INPUT), Patch(8, OUTPUT)]
    launch = KernelLaunch(kernel, (rows, 1), form[0], params, patches)
    return _core.make_plan(device, [launch], 0, [Output(None, dtype_id(dtype), shape)])


# ---- "cpu" ----------------------------------------------------------------------------------------

_X, _RESULT, _LARGEST, _SUM = range(
    4
)  # values of a row, as native/reduce/host_program.hpp numbers them


class RowStep(NamedTuple):
    """One step for _core.make_host_rows: a `stage` that reduces a row, or a `program` of rows and numbers."""

    stage: Any
    program: Any
    reads: tuple[int, ...]
    writes: int


@lru_cache(maxsize=1024)
def _plan_on_host(logarithm: bool, dtype: int, shape: tuple[int, ...]) -> Any:
    """Return the `_core.Plan`, None if fused operations are faster."""
    n = shape[-1] if shape else 0
    rows = math.prod(shape[:-1])
    # Long rows leave the cache between two steps; many short ones are reduced side by side.
    if not n or not rows or n > _LONGEST or (n < 16 and n < rows):
        return None
    return _core.make_host_rows(_steps(logarithm, dtype), rows, n, Output(None, dtype, shape))


@cache
def _steps(logarithm: bool, dtype: int) -> list[RowStep]:
    """Return the steps, which rows of any length share."""

    def apply(name: str, *reads: int, writes: int = _RESULT) -> RowStep:
        types = (dtype,) * len(reads)
        return RowStep(None, row_program(TABLE[name], types, types, (dtype,), True), reads, writes)

    def exponentials(program: HostProgram, inputs: Sequence[HostValue]) -> HostValue:
        return row_results(program, TABLE["exp"], inputs, (dtype,))[0] if logarithm else inputs[0]

    largest = RowStep(cast_stages("max", dtype, dtype, dtype, 1, 0.0)[0], None, (_X,), _LARGEST)
    (total,) = host_stages("sum", (dtype,), exponentials, dtype, dtype, 1)
    shared = [largest, apply("subtract", _X, _LARGEST)]
    summed = RowStep(total, None, (_RESULT,), _SUM)
    if logarithm:
        return [*shared, summed, apply("log", _SUM, writes=_SUM), apply("subtract", _RESULT, _SUM)]
    return [*shared, apply("exp", _RESULT), summed, apply("divide", _RESULT, _SUM)]

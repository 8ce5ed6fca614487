"""Reductions in host memory as programs of inner loops: one joins the elements, one computes the results.

Floats of 16 and 32 bits are accumulated in float64, so that both devices have the same accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpuinterop.arrays.dtypes import (
    LETTERS,
    NAMES,
    dtype_from_id,
    dtype_id,
    is_complex,
)
from gpuinterop.arrays.scalars import element_words
from gpuinterop.elementwise.host_program import HostProgram, HostValue
from gpuinterop.elementwise.promotion import is_extended

from .table import REDUCTIONS, Reduction

_BOOL, _FLOAT32, _FLOAT64, _COMPLEX128 = (
    NAMES.index(name) for name in ("bool", "float32", "float64", "complex128")
)
_LEAST = (np.minimum, np.fmin)
# Adds to a program of these inputs the value that is reduced.
Elements = Callable[[HostProgram, Sequence[HostValue]], HostValue]


class HostStage(NamedTuple):
    """One stage for _core.make_host_reduction; see native/reduce/host_program.hpp."""

    join: Any
    finish: Any
    initial: tuple[int, int]
    accumulator: int
    value: int


@lru_cache(maxsize=1024)
def cast_stages(
    op: str, dtype: int, source: int, result: int, count: int, ddof: float
) -> list[HostStage]:
    """Return the stages of a reduction of the elements of an array of `dtype`, each cast to `source`."""
    return host_stages(
        op, (dtype,), lambda program, inputs: program.cast(inputs[0], source), source, result, count, ddof
    )  # fmt: skip


def selected_stages(op: str, dtypes: tuple[int, ...], source: int, result: int) -> list[HostStage]:
    """Return the stage of a reduction that starts from a given value, of the elements that a mask, if any, selects."""
    row = REDUCTIONS[op]
    assert row.loops is not None
    neutral = _initial(row.loops.ufunc, source)

    def elements(program: HostProgram, inputs: Sequence[HostValue]) -> HostValue:
        value = program.cast(inputs[0], source)
        return (
            program.choose(inputs[1], value, program.constant(neutral, source))
            if inputs[1:]
            else value
        )

    return host_stages(op, dtypes, elements, source, result, 1)


def host_stages(
    op: str, inputs: Sequence[int], elements: Elements, source: int, result: int, count: int,
    ddof: float = 0.0,
) -> list[HostStage]:  # fmt: skip
    """Return the stages of a reduction, for `_core.make_host_reduction`.

    Parameters
    ----------
    op : the name of the reduction.
    inputs : the dtypes of the operands.
    elements : adds the values that are reduced, of dtype `source`, to a program of these inputs.
    result : the dtype of the result.
    count : the number of elements from which one result is computed.
    """
    row = REDUCTIONS[op]
    stages = []
    if row.shifted:  # by the mean
        mean = _COMPLEX128 if LETTERS[NAMES[source]] == "c" else _FLOAT64
        stages.append(_stage(REDUCTIONS["mean"], inputs, elements, mean, mean, count, ddof))
        joined = [*inputs, mean]
    else:
        joined = [*inputs]
    accumulator = _accumulator(row, source, result)
    stages.append(_stage(row, joined, elements, accumulator, result, count, ddof))
    return stages


def _accumulator(row: Reduction, source: int, result: int) -> int:
    assert row.loops is not None
    if row.loops.ufunc in (np.logical_or, np.logical_and):
        return _BOOL
    if row.loops.dtype is not None:
        return dtype_id(row.loops.dtype)
    if row.needs_elements:
        return _FLOAT32 if is_extended(source) else source
    if is_complex(dtype_from_id(source)):
        return _COMPLEX128
    narrow = LETTERS[NAMES[result]] == "f" and dtype_from_id(result).itemsize <= 4
    return _FLOAT64 if narrow else result


def _stage(
    row: Reduction, inputs: Sequence[int], elements: Elements, accumulator: int, result: int,
    count: int, ddof: float,
) -> HostStage:  # fmt: skip
    assert row.loops is not None
    initial = _initial(row.loops.ufunc, accumulator)
    program = HostProgram(inputs)
    value = elements(program, program.inputs)
    if row.loops.element is not None:
        value = row.loops.element(program, value, program.inputs[-1])
    join = program.finish_joined(row.loops.ufunc, value, accumulator)
    after = HostProgram([accumulator])
    found = after.inputs[0]
    if row.loops.after is not None:
        found = row.loops.after(after, found, count, ddof)
    finish = after.finish([found], [result], False)
    return HostStage(join, finish, element_words(initial), accumulator, result)


def _initial(ufunc: np.ufunc, accumulator: int) -> Any:
    """Return the initial value of the accumulator."""
    dtype = dtype_from_id(accumulator)
    if ufunc is np.add:
        return np.zeros((), dtype)
    if ufunc in (np.multiply, np.logical_and):
        return np.ones((), dtype)
    if ufunc is np.logical_or or dtype.kind == "b":
        return np.asarray(ufunc in _LEAST, dtype)
    sign = 1 if ufunc in _LEAST else -1
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.asarray(limits.max if sign > 0 else limits.min, dtype)
    if ufunc in (np.fmin, np.fmax):
        return np.asarray(np.nan, dtype)
    value = complex(sign * np.inf, sign * np.inf) if dtype.kind == "c" else sign * np.inf
    return np.asarray(value, dtype)

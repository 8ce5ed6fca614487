"""Functions of the package that are small graphs: round, casts of operands, reductions with where=."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from gpuinterop.arrays import dtypes
from gpuinterop.elementwise.calls import CALLS
from gpuinterop.elementwise.table import TABLE
from gpuinterop.fusion.builder import Expression
from gpuinterop.fusion.graph import Value
from gpuinterop.reduce.table import REDUCTIONS


@cache
def _rounding(up: str, down: str) -> Any:
    """Return the operation that rounds x, given a factor."""
    graph = Expression()
    x, factor = graph.input(), graph.input()
    whole_numbers = graph.apply("rint", graph.apply(up, x, factor))
    return graph.compile([graph.apply(down, whole_numbers, factor)], "round")


@lru_cache(maxsize=256)
def _of_cast_operands(name: str, dtypes: tuple[np.dtype[Any] | None, ...]) -> Any:
    graph = Expression()
    operands = [
        graph.input() if dtype is None else graph.cast(graph.input(), dtype) for dtype in dtypes
    ]
    results = [graph.apply(name, *operands, result=i) for i in range(TABLE[name].results)]
    return graph.compile(results, name)


def _function_of_cast_operands(name: str, dtypes: Any, operands: tuple[Any, ...]) -> Any:
    """Return the operation called `name` with a kernel that first casts its operands to `dtypes`; None: no cast."""
    return _of_cast_operands(name, dtypes).operation(operands)


@lru_cache(maxsize=256)
def _of_selected(
    op: str, axes: tuple[int, ...], keepdims: bool, of: np.dtype[Any], dtype: Any, ddof: float
) -> Any:
    """Return the reduction of elements of dtype `of` that a mask selects; others are replaced."""
    row, graph = REDUCTIONS[op], Expression()
    elements, mask = graph.input(), graph.input()
    x = elements if dtype is None else graph.cast(elements, dtype)
    source = of if dtype is None else dtype

    def total(value: Value) -> Value:
        return graph.reduce("sum", graph.apply("where", mask, value, 0), axes, keepdims)

    if row.ufunc is not None:
        other: Any = row.identity
        if other is None:
            other = graph.input()
        elif source == np.bool_:
            other = bool(other)
        reduced = graph.reduce(op, graph.apply("where", mask, x, other), axes, keepdims)
        result = row.result(of) if dtype is None else dtype
        if result == row.result(source):  # the memory of a cast result is its own
            return graph.compile([reduced], op)
    else:
        # The counts of a variance are also those of the means, which keep the axes.
        keepdims = keepdims or row.shifted
        result, count = row.result(source), graph.reduce("sum", mask, axes, keepdims)
        if op == "mean":  # the sum and the count
            # Sums in small floats would overflow.
            wide = result if result.itemsize > 2 else np.float32
            return graph.compile([total(graph.cast(x, wide)), count], op)
        wide = np.complex128 if source.kind == "c" else np.float64
        mean = graph.apply("divide", total(graph.cast(x, wide)), count)
        away = graph.apply("subtract", x, mean)
        if source.kind == "c":
            away = graph.apply("absolute", away)
        degrees = graph.apply("maximum", graph.apply("subtract", count, ddof), 0)
        reduced = graph.apply("divide", total(graph.apply("square", away)), degrees)
        reduced = graph.apply("sqrt", reduced) if op == "std" else reduced
    return graph.compile([graph.cast(reduced, result)], op)


@lru_cache(maxsize=256)
def _from_start(
    op: str, axes: tuple[int, ...], keepdims: bool, result: np.dtype[Any], masked: bool
) -> Any:
    """Return the sum or product of inexact elements and a start, combined before they are rounded to `result`."""
    row, graph = REDUCTIONS[op], Expression()
    wide = np.complex128 if dtypes.is_complex(result) else np.float64
    x, start = graph.cast(graph.cast(graph.input(), result), wide), graph.input()
    if op == "prod":
        # A product of many elements may be infinite; with a zero it is zero.
        x = graph.apply("where", graph.apply("equal", start, 0), graph.apply("multiply", x, 0), x)
    assert row.ufunc is not None
    assert row.identity is not None
    if masked:
        x = graph.apply("where", graph.input(), x, row.identity or 0)
    reduced = graph.reduce(op, x, axes, keepdims)
    joined = graph.apply(row.ufunc.__name__, reduced, graph.cast(start, wide))
    return graph.compile([graph.cast(joined, result)], op)


CALLS["rounding"] = _rounding
CALLS["function of cast operands"] = _function_of_cast_operands
CALLS["selected reduction"] = _of_selected
CALLS["from start"] = _from_start

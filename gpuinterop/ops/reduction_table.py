"""The reductions: result dtypes, accumulators, identities. One row an operation.

Result dtypes are NumPy's. Floating sums of 16 and 32 bits are accumulated in float32 with their
rounding errors kept apart (reduce_ops.cuh, FloatSum), 64-bit ones likewise in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuinterop.dtypes import ACCUMULATORS, WORKING
from gpuinterop.errors import DTypeError, ShapeError
from gpuinterop.ops.reduction_codegen import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REDUCTIONS", "Reduction", "recipe_for"]


@dataclass(frozen=True)
class Reduction:
    """One row: what comes out, what the GPU does, what is refused."""

    name: str
    result: Callable[[np.dtype], np.dtype]  # of the input's dtype
    # (input name, result name) -> (value type, map, accumulator)
    kernel: Callable[[str, str], tuple[str, str, str]]
    needs_elements: bool = False  # refuses empty axes
    is_place: bool = False  # a position among the reduced elements, in C order
    shifted: bool = False  # variance: a second input carries the shift


def _kind(name: str) -> str:
    return "f" if name == "bfloat16" else np.dtype(name).kind


def _sum_dtype(dtype: np.dtype) -> np.dtype:
    kind = _kind(dtype.name)
    if kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if kind == "u" else dtype


def _mean_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if _kind(dtype.name) in "biu" else dtype


def _real_dtype(dtype: np.dtype) -> np.dtype:
    if _kind(dtype.name) == "c":
        return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    return _mean_dtype(dtype)


# The kernels: the C++ type of a mapped element, the map of an element x0, and the accumulator.


def _sum(source: str, result: str) -> tuple[str, str, str]:
    accumulator = ACCUMULATORS[result]
    if _kind(result) == "c":
        return WORKING[result], "x0", f"ComplexSum<{accumulator}, 0>"
    if _kind(result) in "iu":
        return "int" if source == "bool" else WORKING[source], "x0", f"IntegerSum<{accumulator}>"
    return accumulator, "x0", f"FloatSum<{accumulator}>"


def _mean(source: str, result: str) -> tuple[str, str, str]:
    accumulator = ACCUMULATORS[result]
    if _kind(result) == "c":
        return WORKING[result], "x0", f"ComplexSum<{accumulator}, 1>"
    return accumulator, "x0", f"FloatMean<{accumulator}>"


def _prod(source: str, result: str) -> tuple[str, str, str]:
    # Products of 16- and 32-bit floats are kept in float64: no overflow on the way, one rounding.
    value = "double" if _kind(result) == "f" else WORKING[result]
    return value, "x0", f"Product<{value}>"


def _extreme(op: str, sign: int) -> Callable[[str, str], tuple[str, str, str]]:
    def kernel(source: str, result: str) -> tuple[str, str, str]:
        value = "u8" if source == "bool" else WORKING[source]
        return value, "x0", f"{op}<{value}, {sign}>"

    return kernel


def _logical(op: str) -> Callable[[str, str], tuple[str, str, str]]:
    return lambda source, result: (WORKING[source], "x0", op)


def _variance(root: int) -> Callable[[str, str], tuple[str, str, str]]:
    def kernel(source: str, result: str) -> tuple[str, str, str]:
        if _kind(source) == "c":
            return "c128", "gi_to<c128>(x0) - gi_to<c128>(x1)", f"ComplexVariance<{root}>"
        return "double", "double(x0) - double(x1)", f"Variance<{root}>"

    return kernel


def _norm(source: str, result: str) -> tuple[str, str, str]:
    # Squares of float32 fit a float64, so nothing overflows on the way.
    square = "double(x0) * double(x0)"
    if _kind(source) == "c":
        square = "double(x0.re) * double(x0.re) + double(x0.im) * double(x0.im)"
    return "double", square, "FloatNorm<double>"


def _magnitude(source: str) -> str:
    if _kind(source) == "c":
        return "hypot(double(x0.re), double(x0.im))"
    return "fabs(double(x0))"


def _norm1(source: str, result: str) -> tuple[str, str, str]:
    return "double", _magnitude(source), "FloatSum<double>"


def _norm_inf(sign: int) -> Callable[[str, str], tuple[str, str, str]]:
    return lambda source, result: ("double", _magnitude(source), f"Extreme<double, {sign}>")


def _same(dtype: np.dtype) -> np.dtype:
    return dtype


def _bool(_: np.dtype) -> np.dtype:
    return np.dtype(np.bool_)


def _int64(_: np.dtype) -> np.dtype:
    return np.dtype(np.int64)


REDUCTIONS: dict[str, Reduction] = {
    row.name: row
    for row in (
        Reduction("sum", _sum_dtype, _sum),
        Reduction("prod", _sum_dtype, _prod),
        Reduction("mean", _mean_dtype, _mean),
        Reduction("min", _same, _extreme("Extreme", 1), needs_elements=True),
        Reduction("max", _same, _extreme("Extreme", -1), needs_elements=True),
        Reduction("argmin", _int64, _extreme("ArgExtreme", 1), needs_elements=True, is_place=True),
        Reduction("argmax", _int64, _extreme("ArgExtreme", -1), needs_elements=True, is_place=True),
        Reduction("any", _bool, _logical("AnyTrue")),
        Reduction("all", _bool, _logical("AllTrue")),
        Reduction("var", _real_dtype, _variance(0), shifted=True),
        Reduction("std", _real_dtype, _variance(1), shifted=True),
        Reduction("norm2", _real_dtype, _norm),
        Reduction("norm1", _real_dtype, _norm1),
        Reduction("norm_max", _real_dtype, _norm_inf(-1), needs_elements=True),
        Reduction("norm_min", _real_dtype, _norm_inf(1), needs_elements=True),
    )
}


def recipe_for(
    op: str, dtype: np.dtype, result: np.dtype, *, shift: np.dtype | None = None
) -> Recipe:
    """The kernel that computes `op` of `dtype` into `result`."""
    row = REDUCTIONS[op]
    for given in (dtype, result):
        if given.name not in ACCUMULATORS:
            raise DTypeError(
                where=op,
                expected="a number type that GPUs compute with",
                got=given.name,
                fix='x.astype("float32") first',
            )
    value, mapped, accumulator = row.kernel(dtype.name, result.name)
    inputs = (dtype.name, shift.name) if shift is not None else (dtype.name,)
    return Recipe(inputs, value, mapped, accumulator, (result.name,))


def check_not_empty(
    op: str, reduced: int, shape: tuple[int, ...], where: str | None = None
) -> None:
    if REDUCTIONS[op].needs_elements and reduced == 0:
        raise ShapeError(
            where=where or op,
            expected="at least one element along the reduced axes: there is no identity",
            got=f"shape {shape}",
            fix="test x.size first",
        )

"""The reductions: result dtypes, accumulators, identities. One entry for each operation.

Result dtypes are NumPy's. On a GPU sums of 16- and 32-bit floats are accumulated in float32 with their
rounding errors kept separately (kernels/accumulators.cuh, FloatSum), those of 64-bit floats likewise in float64.
On "cpu" host_program.py accumulates them in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuinterop.arrays.dtypes import ACCUMULATORS, LETTERS, NAMES, STORAGE, WORKING
from gpuinterop.errors import DTypeError, ShapeError

from .codegen import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinterop.elementwise.host_program import HostProgram, HostValue

__all__ = ["FUSED", "REDUCTIONS", "Reduction", "recipe_for"]


@dataclass(frozen=True)
class Loops:
    """A reduction as inner loops of NumPy's ufuncs.

    Attributes
    ----------
    ufunc : joins elements to the accumulator.
    element : adds to a program the value that is joined, of an element and the mean (if `shifted`).
    after : adds to a program the result of the accumulator, for a number of elements and `ddof`.
    dtype : of the accumulator, if it does not follow from the operand and the result.
    """

    ufunc: np.ufunc
    element: Callable[[HostProgram, HostValue, HostValue], HostValue] | None = None
    after: Callable[[HostProgram, HostValue, int, float], HostValue] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Reduction:
    """One entry defines a reduction: on CUDA, on the host, as a method, as a function and in `fuse`.

    Attributes
    ----------
    name : of the method and of the function.
    result : the dtype of the result for the dtype of the operand.
    kernel : for the names of both, the type that is accumulated, the CUDA expression of an element x0, and
        the accumulator, a class of gpuinterop/reduce/kernels/accumulators.cuh.
    loops : how the core computes on the host; made of `ufunc` by default. Positions have none.
    parameters : NumPy's, in its order; those after ``*`` are given by name.
    doc : the docstring. Without one the reduction is neither a method nor a function.
    ufunc : its method reduce is the reduction, and it joins an initial value.
    identity : the result over no elements; with a `ufunc` it replaces elements that `where=` does not select.
    needs_elements : empty axes raise an error.
    place_of : "min" or "max", whose position in C order among the reduced elements is the result.
    shifted : of the variance: a second input carries the shift.
    aliases : further names.
    where : the function that errors name; `name` by default.
    """

    name: str
    result: Callable[[np.dtype], np.dtype]
    kernel: Callable[[str, str], tuple[str, str, str]]
    parameters: str = "axis keepdims"
    doc: str = ""
    ufunc: np.ufunc | None = None
    identity: int | None = None
    needs_elements: bool = False
    place_of: str = ""
    shifted: bool = False
    aliases: tuple[str, ...] = ()
    loops: Loops | None = None
    where: str = ""

    def __post_init__(self) -> None:
        # Elements that a mask leaves out are replaced, or not counted, only in these.
        selects = self.ufunc is not None or self.shifted or self.name == "mean"
        assert selects or not {"where", "initial"} & {*self.parameters.replace("*", "").split()}
        object.__setattr__(self, "where", self.where or self.name)
        if self.loops is None and self.ufunc is not None:
            object.__setattr__(self, "loops", Loops(self.ufunc))

    @property
    def fused(self) -> bool:
        """Whether `fuse` reduces computed values with it."""
        return bool(self.doc) and not self.place_of and not self.shifted


def _sum_dtype(dtype: np.dtype) -> np.dtype:
    letter = LETTERS[dtype.name]
    if letter in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if letter == "u" else dtype


def _mean_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if LETTERS[dtype.name] in "biu" else dtype


def _real_dtype(dtype: np.dtype) -> np.dtype:
    if LETTERS[dtype.name] == "c":
        return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    return _mean_dtype(dtype)


# The kernels: the C++ type of a mapped element, the map of an element x0, and the accumulator.


def _sum(source: str, result: str) -> tuple[str, str, str]:
    accumulator = ACCUMULATORS[result]
    if LETTERS[result] == "c":
        return WORKING[result], "x0", f"ComplexSum<{accumulator}, 0>"
    if LETTERS[result] in "iu":
        return "int" if source == "bool" else WORKING[source], "x0", f"IntegerSum<{accumulator}>"
    return accumulator, "x0", f"FloatSum<{accumulator}>"


def _mean(source: str, result: str) -> tuple[str, str, str]:
    accumulator = ACCUMULATORS[result]
    if LETTERS[result] == "c":
        return WORKING[result], "x0", f"ComplexSum<{accumulator}, 1>"
    return accumulator, "x0", f"FloatSum<{accumulator}, 1>"


def _prod(source: str, result: str) -> tuple[str, str, str]:
    # Products of 16- and 32-bit floats are accumulated in float64, which does not overflow and rounds once.
    value = "double" if LETTERS[result] == "f" else WORKING[result]
    return value, "x0", f"Product<{value}>"


def _extreme(op: str, sign: str) -> Callable[[str, str], tuple[str, str, str]]:
    def kernel(source: str, result: str) -> tuple[str, str, str]:
        value = "u8" if source == "bool" else WORKING[source]
        return value, "x0", f"{op}<{value}, {sign}>"

    return kernel


def _logical(op: str) -> Callable[[str, str], tuple[str, str, str]]:
    return lambda source, result: (WORKING[source], "x0", op)


def _variance(root: int) -> Callable[[str, str], tuple[str, str, str]]:
    def kernel(source: str, result: str) -> tuple[str, str, str]:
        if LETTERS[source] == "c":
            return "c128", "gi_to<c128>(x0) - gi_to<c128>(x1)", f"ComplexVariance<{root}>"
        return "double", "double(x0) - double(x1)", f"Variance<{root}>"

    return kernel


def _norm(source: str, result: str) -> tuple[str, str, str]:
    # Squares of float32 fit a float64, so no intermediate value overflows.
    square = "double(x0) * double(x0)"
    if LETTERS[source] == "c":
        square = "double(x0.re) * double(x0.re) + double(x0.im) * double(x0.im)"
    return "double", square, "FloatSum<double, 2>"


def _magnitude(source: str) -> str:
    if LETTERS[source] == "c":
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


# The loops of the host.


def _divide(program: HostProgram, value: HostValue, count: float, ddof: float) -> HostValue:
    degrees = program.constant(max(count - ddof, 0), value.dtype)
    return program.loop(np.divide, (value, degrees), (value.dtype,))[0]


def _average(program: HostProgram, value: HostValue, count: int, ddof: float) -> HostValue:
    return _divide(program, value, count, 0)


def _root(program: HostProgram, value: HostValue, count: int, ddof: float) -> HostValue:
    return program.loop(np.sqrt, (value,), (value.dtype,))[0]


def _deviation(program: HostProgram, value: HostValue, count: int, ddof: float) -> HostValue:
    return _root(program, _divide(program, value, count, ddof), count, ddof)


def _square(program: HostProgram, value: HostValue) -> HostValue:
    return program.loop(np.multiply, (value, value), (value.dtype,))[0]


def _squared_distance(program: HostProgram, value: HostValue, mean: HostValue) -> HostValue:
    """Return the square of the distance from the mean."""
    held = program.cast(value, mean.dtype)
    (away,) = program.loop(np.subtract, (held, mean), (mean.dtype,))
    if LETTERS[NAMES[mean.dtype]] != "c":
        return _square(program, away)
    (conjugate,) = program.loop(np.conjugate, (away,), (mean.dtype,))
    (square,) = program.loop(np.multiply, (away, conjugate), (mean.dtype,))
    return program.cast(square, NAMES.index("float64"))


def _host_magnitude(program: HostProgram, value: HostValue, _: HostValue) -> HostValue:
    """Return the magnitude, in float64: the smallest integer has no magnitude of its own type."""
    double = NAMES.index("float64")
    letter = LETTERS[NAMES[value.dtype]]
    if letter == "c":
        part = NAMES.index("float32") if NAMES[value.dtype] == "complex64" else double
        return program.cast(program.loop(np.absolute, (value,), (part,))[0], double)
    return program.loop(np.absolute, (program.cast(value, double),), (double,))[0]


def _squared_magnitude(program: HostProgram, value: HostValue, mean: HostValue) -> HostValue:
    if LETTERS[NAMES[value.dtype]] == "c":
        return _square(program, _host_magnitude(program, value, mean))
    return _square(program, program.cast(value, NAMES.index("float64")))


def _is_nonzero(program: HostProgram, value: HostValue, _: HostValue) -> HostValue:
    return program.cast(value, NAMES.index("bool"))


_SUM = "axis dtype out keepdims initial where"
_EXTREME = "axis out keepdims initial where"
_SPREAD = "axis dtype out ddof keepdims * where correction"
_PLACE_DOC = "Return the position of the first {} over `axis`; over several axes, in C order of their elements."

REDUCTIONS: dict[str, Reduction] = {
    row.name: row
    for row in (
        Reduction("sum", _sum_dtype, _sum, _SUM,
            "Return the sum over `axis`; float32 sums are compensated.",
            ufunc=np.add, identity=0),
        Reduction("prod", _sum_dtype, _prod, _SUM, "Return the product over `axis`.",
            ufunc=np.multiply, identity=1),
        Reduction("mean", _mean_dtype, _mean, "axis dtype out keepdims * where",
            "Return the mean over `axis`.", loops=Loops(np.add, after=_average)),
        Reduction("min", _same, _extreme("Extreme", "1"), _EXTREME,
            "Return the minimum over `axis`, or NaN if an element is NaN.",
            ufunc=np.minimum, needs_elements=True, aliases=("amin",)),
        Reduction("max", _same, _extreme("Extreme", "-1"), _EXTREME,
            "Return the maximum over `axis`, or NaN if an element is NaN.",
            ufunc=np.maximum, needs_elements=True, aliases=("amax",)),
        Reduction("argmin", _int64, _extreme("ArgExtreme", "1"), "axis out keepdims",
            _PLACE_DOC.format("minimum"), needs_elements=True, place_of="min"),
        Reduction("argmax", _int64, _extreme("ArgExtreme", "-1"), "axis out keepdims",
            _PLACE_DOC.format("maximum"), needs_elements=True, place_of="max"),
        Reduction("any", _bool, _logical("AnyOrAll<0>"), "axis out keepdims * where",
            "Return whether any element over `axis` is not zero.", ufunc=np.logical_or, identity=0),
        Reduction("all", _bool, _logical("AnyOrAll<1>"), "axis out keepdims * where",
            "Return whether all elements over `axis` are not zero.", ufunc=np.logical_and, identity=1),
        Reduction("var", _real_dtype, _variance(0), _SPREAD,
            "Return the variance over `axis`, divided by n - ddof. The standard calls `ddof` `correction`.",
            shifted=True,
            loops=Loops(np.add, _squared_distance, _divide, "float64")),
        Reduction("std", _real_dtype, _variance(1), _SPREAD,
            "Return the standard deviation over `axis`.", shifted=True,
            loops=Loops(np.add, _squared_distance, _deviation, "float64")),
        # For gpuinterop.norm.
        Reduction("norm2", _real_dtype, _norm,
            where="norm", loops=Loops(np.add, _squared_magnitude, _root, "float64")),
        Reduction("norm1", _real_dtype, _norm1,
            where="norm", loops=Loops(np.add, _host_magnitude, dtype="float64")),
        Reduction("norm_max", _real_dtype, _norm_inf(-1), needs_elements=True,
            where="norm", loops=Loops(np.maximum, _host_magnitude, dtype="float64")),
        Reduction("norm_min", _real_dtype, _norm_inf(1), needs_elements=True,
            where="norm", loops=Loops(np.minimum, _host_magnitude, dtype="float64")),
        # For NumPy's functions of these names.
        Reduction("nanmin", _same, _extreme("Extreme", "1, true"), "axis out keepdims",
            needs_elements=True, loops=Loops(np.fmin)),
        Reduction("nanmax", _same, _extreme("Extreme", "-1, true"), "axis out keepdims",
            needs_elements=True, loops=Loops(np.fmax)),
        Reduction("count_nonzero", _int64, lambda source, result: ("int", "gi_to<bool>(x0)", "IntegerSum<i64>"),
            loops=Loops(np.add, _is_nonzero)),
    )
}  # fmt: skip


_DTYPES = {"int": "int32"} | {letter: name for name, letter in STORAGE.items()}  # of C++ types


def accumulated_dtype(op: str, dtype: np.dtype) -> str:
    """Return the name of the dtype in which computed elements are passed to the accumulator.

    Small floats are rounded once, after all elements have been accumulated.
    """
    row = REDUCTIONS[op]
    return _DTYPES[row.kernel(dtype.name, row.result(dtype).name)[0]]


# The reductions of computed values.
FUSED = tuple(name for name, row in REDUCTIONS.items() if row.fused)


def recipe_for(
    op: str, dtype: np.dtype, result: np.dtype, *, shift: np.dtype | None = None
) -> Recipe:
    """Return the recipe of the kernel that computes `op` of `dtype` into `result`."""
    require_accumulated(op, dtype, result)
    value, mapped, accumulator = REDUCTIONS[op].kernel(dtype.name, result.name)
    inputs = (dtype.name, shift.name) if shift is not None else (dtype.name,)
    return Recipe(inputs, value, mapped, accumulator, (result.name,))


def require_accumulated(where: str, *dtypes: np.dtype) -> None:
    """Refuse dtypes that no kernel accumulates."""
    for dtype in dtypes:
        if dtype.name not in ACCUMULATORS:
            raise DTypeError(
                where=where,
                expected="a dtype with which GPUs compute",
                got=dtype.name,
                fix='cast first: x.astype("float32")',
            )


def reduced_shape(
    shape: Sequence[int], axes: Sequence[int], keepdims: bool = False
) -> tuple[int, ...]:
    """Return the shape of a result."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def full_strides(strides: Sequence[int], axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the strides of a result over the full shape; those along reduced axes are ignored."""
    if len(strides) == ndim:
        return tuple(strides)
    rest = iter(strides)
    return tuple(0 if axis in axes else next(rest) for axis in range(ndim))


def check_not_empty(op: str, shape: tuple[int, ...], axes: Sequence[int]) -> None:
    if REDUCTIONS[op].needs_elements and not all(shape[i] for i in axes):
        raise ShapeError(
            where=REDUCTIONS[op].where,
            expected="at least one element along the reduced axes, because there is no identity",
            got=f"shape {shape}",
            fix="check x.size first",
        )

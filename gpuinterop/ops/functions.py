"""The elementwise operations as functions: one for each row of the table, and a few made of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, BoundsError
from gpuinterop.warm import Given, Made, Steps, warm

from . import output_arrays
from .casting import cast, casting
from .core_callbacks import FUNCTIONS
from .operand_conversion import speaks
from .operation_table import ALIASES

__all__ = [
    "astype",
    "clip",
    "round",
    "where",
    *sorted({*FUNCTIONS, *ALIASES} - {"cast", "clip", "where"}),
]

globals().update({name: f for name, f in FUNCTIONS.items() if name != "cast"})
globals().update({alias: FUNCTIONS[name] for alias, name in ALIASES.items()})


def _with_dtype(where: str, x: Any, *others: Any) -> Any:
    """An operand whose dtype is NumPy's: other libraries have dtypes of their own."""
    if isinstance(x, (np.ndarray, np.generic)) or not speaks(x):
        return x
    like = next((a for a in others if isinstance(a, _core.Array)), None)
    return output_arrays.taken(where, x, *([] if like is None else [like]))[0]


@warm()
def clip(x: Any, min: Any = None, max: Any = None, out: Any = None) -> Any:
    """Return x cut to the range from min to max; a bound that is None does not cut.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.clip(gpuinterop.asarray([1.0, 5.0, 9.0], device="cpu"), 2, 6).tolist()
    [2.0, 5.0, 6.0]
    """
    known, asked = isinstance(x, _core.Array), (min, max)
    if not known:
        x = _with_dtype("clip", x, min, max, out)
    dtype = getattr(x, "dtype", None)
    ranges: tuple[tuple[str, Any, Any], ...] = ()
    if dtype is not None and np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        min, max = cutting(np.dtype(dtype), min, max)
        known = known and min is asked[0] and max is asked[1]
        if type(min) is int:
            ranges += (("min", info.min + 1, np.inf),)
        if type(max) is int:
            ranges += (("max", -np.inf, info.max - 1),)
    bounds = {name: b for name, b in (("min", min), ("max", max)) if b is not None}
    function = FUNCTIONS[_CLIPPING[tuple(bounds)]]
    if known:
        return _clipped(function, tuple(bounds), ranges)
    return function(x, *bounds.values(), out=out)


_CLIPPING = {
    (): "positive", ("min",): "maximum", ("max",): "minimum", ("min", "max"): "clip",
}  # fmt: skip


@lru_cache
def _clipped(
    function: Callable[..., Any],
    bounds: tuple[str, ...],
    ranges: tuple[tuple[str, Any, Any], ...],
) -> Steps:
    return Steps(
        [(function, [Given(name) for name in ("x", *bounds)], {"out": Given("out")})],
        ranges=[(Given(name), low, high) for name, low, high in ranges],
    )


def cutting(dtype: np.dtype[Any], min: Any, max: Any) -> tuple[Any, Any]:
    """The bounds, None for a Python integer that no integer can pass: NumPy's rule."""
    if dtype.kind not in "iu":
        return min, max
    info = np.iinfo(dtype)
    low = None if type(min) is int and min <= info.min else min
    high = None if type(max) is int and max >= info.max else max
    return low, high


_CHOSEN = Steps([
    (FUNCTIONS["where"], [Given("condition"), Given("x"), Given("y")], {"out": Given("out")})
])  # fmt: skip


@warm(always=_CHOSEN)
def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """Return x where the condition is true and y elsewhere; all three broadcast."""
    return _CHOSEN


@warm(values="decimals")
def round(x: Any, decimals: int = 0, out: Any = None) -> Any:
    """Return x rounded to a number of decimals, halves to the even neighbour as in NumPy."""
    try:
        decimals = operator.index(decimals)
    except TypeError:
        raise ArgumentTypeError(where="round", expected="a whole number of decimals",
                                got=repr(decimals), fix="pass an int") from None  # fmt: skip
    if not -300 <= decimals <= 300:
        raise BoundsError(where="round", expected="decimals from -300 to 300", got=str(decimals),
                          fix="no float has that many: leave the rounding out")  # fmt: skip
    if not isinstance(x, _core.Array):
        taken = _with_dtype("round", x, out)
        if taken is not x:
            return round(taken, decimals, out)
    dtype = np.dtype(x.dtype) if hasattr(x, "dtype") else None
    if dtype is None or dtype.kind not in "iu":
        return _rounded(decimals)
    return _rounded_integers(decimals, dtype if out is None else None)


@lru_cache
def _rounded(decimals: int) -> Steps:
    return Steps(_rounding(decimals))


@lru_cache
def _rounded_integers(decimals: int, dtype: np.dtype[Any] | None) -> Steps:
    """`dtype`: of the result, None for an out."""
    if decimals >= 0:
        return Steps([(FUNCTIONS["positive"], [Given("x")], {"out": Given("out")})])
    steps = _rounding(decimals)
    return Steps(steps if dtype is None else [*steps, (astype, [Made(len(steps) - 1), dtype])])


def _rounding(decimals: int) -> list[tuple[Any, ...]]:
    if decimals == 0:
        return [(FUNCTIONS["rint"], [Given("x")], {"out": Given("out")})]
    # NumPy's order of operations, so that the last bit agrees with it.
    # abs is the array function in this module.
    factor = 10.0 ** (decimals if decimals > 0 else -decimals)
    up, down = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return [
        (FUNCTIONS[up], [Given("x"), factor]),
        (FUNCTIONS["rint"], [Made(0)]),
        (FUNCTIONS[down], [Made(1), factor], {"out": Given("out")}),
    ]


@warm(values="dtype order copy")
def astype(x: Any, dtype: Any, order: str = "C", copy: bool = True) -> Any:
    """Return x in another dtype, in C order (or F): a copy, or x itself when nothing changes.

    Casts as NumPy does: floats are cut towards zero, wider integers lose their upper bits. With
    ``copy=False`` an array that has the dtype already is returned as it is.
    """
    if hasattr(type(x), "__gpuinterop_trace__"):
        return x.astype(dtype, order, copy)
    if not isinstance(x, _core.Array):
        (x,) = output_arrays.taken("astype", x)
        return cast(x, dtype, order, copy)
    return casting(x, dtype, order, copy)

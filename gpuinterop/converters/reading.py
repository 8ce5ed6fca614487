"""What an object says of its own shape, strides and dtype: read once, checked, in plain numbers.

An attribute may be a property that answers anew each time, and nobody else has looked at what it says.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy

from gpuinterop import errors
from gpuinterop.converters.plan import c_strides

__all__ = ["read_dtype", "read_geometry", "read_shape", "whole_numbers"]

_END = 1 << 63


def whole_numbers(value: Any, what: str, where: str) -> tuple[int, ...]:
    """A sequence of ints that fit 64 bits, as Python's own; one int stands for a sequence of one."""
    try:
        value = (value,) if hasattr(value, "__index__") and not hasattr(value, "__len__") else value
        found = tuple(operator.index(n) for n in value)
    except TypeError:
        raise errors.ExchangeError(
            where=where,
            expected=f"{what} as a sequence of whole numbers",
            got=errors.short_repr(value),
            fix=f"give the array a tuple of ints as its {what}",
        ) from None
    if any(not -_END <= n < _END for n in found):
        raise errors.BoundsError(
            where=where,
            expected=f"{what} of numbers that fit 64 bits",
            got=errors.short_repr(found),
            fix="describe the memory that there is",
        )
    return found


def read_shape(value: Any, itemsize: int, where: str) -> tuple[int, ...]:
    """A shape of extents that are not negative, and of a size that an address can count."""
    shape = whole_numbers(value, "shape", where)
    if min(shape, default=0) < 0:
        raise errors.ExchangeError(
            where=where,
            expected="extents of at least 0",
            got=f"shape {errors.short_repr(shape)}",
            fix="reshape the array by its own method: reshape(shape)",
        )
    if math.prod(max(n, 1) for n in shape) * itemsize >= _END:
        raise errors.BoundsError(
            where=where,
            expected="a shape of fewer than 2**63 bytes",
            got=f"shape {errors.short_repr(shape)}, elements of {itemsize} bytes",
            fix="describe the memory that there is",
        )
    return shape


def read_dtype(value: Any, where: str) -> numpy.dtype[Any]:
    """A dtype as NumPy's object; None, which NumPy takes for float64, is none."""
    try:
        found: numpy.dtype[Any] | None = None if value is None else numpy.dtype(value)
    except (TypeError, ValueError):
        found = None
    if found is not None:
        return found
    raise errors.DTypeError(
        where=where,
        expected="a dtype that NumPy knows",
        got=errors.short_repr(value),
        fix="give the array a numpy.dtype",
    )


def read_geometry(
    shape: Any, strides: Any, itemsize: int, where: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape, and strides in bytes. None, and those of an empty array, stand for dense ones."""
    extents = read_shape(shape, itemsize, where)
    if strides is None:
        return extents, c_strides(tuple(max(n, 1) for n in extents), itemsize)
    steps = whole_numbers(strides, "strides", where)
    if len(steps) != len(extents):
        raise errors.ExchangeError(
            where=where,
            expected=f"as many strides as extents, {len(extents)}",
            got=f"shape {extents} with strides {steps} (bytes)",
            fix="give the array one stride for each dimension",
        )
    if 0 in extents:
        steps = c_strides(tuple(max(n, 1) for n in extents), itemsize)
    return extents, steps

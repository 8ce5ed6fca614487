"""NumPy's functions that test whether arrays are equal or close."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_input_array
from gpuinterop.errors import ConversionTypeError, DTypeError, ShapeError
from gpuinterop.ops import output_arrays
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.ops.operand_conversion import placed, speaks


def as_operand(value: Any, like: Any, where: str) -> Any:
    """Return a gpuinterop array unchanged, and any other value as an array on the device of `like`."""
    if isinstance(value, _core.Array):
        return value
    return placed(
        as_input_array(value if speaks(value) else np.asarray(value), None, where), like, where
    )


def _pair(a: Any, b: Any, where: str) -> tuple[Any, Any] | None:
    """Return two operands as `GpuArray` views, whose dtypes a comparison may promote.

    None if they cannot be compared: text, None and ragged lists equal no array of numbers.
    """
    like = a if isinstance(a, _core.Array) else b
    try:
        first, second = (output_arrays.plain(as_operand(v, like, where)) for v in (a, b))
        return first, second
    except (ConversionTypeError, DTypeError, ValueError):
        return None


def _apply(name: str, value: Any) -> Any:
    """Apply an operation to an array, or NumPy's to a Python number; the latter returns a Python number."""
    known = FUNCTIONS[name] if isinstance(value, _core.Array) else getattr(np, name)
    found = known(value)
    return found if isinstance(value, _core.Array) else found.item()


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether each pair of elements is equal within the tolerances."""
    # Python scalars stay weakly typed: they take the dtype of the array.
    like = a if isinstance(a, _core.Array) else b
    x, y = (
        v
        if type(v) in (bool, int, float, complex)
        else output_arrays.plain(as_operand(v, like, "numpy.isclose"))
        for v in (a, b)
    )
    if isinstance(y, int):
        y = float(y)
    elif isinstance(y, _core.Array) and y.dtype.kind in "biu":
        y = y.astype("float64")
    near = _apply("absolute", x - y) <= _apply("absolute", y) * rtol + atol
    # An infinity is close only to itself.
    near = (near & _apply("isfinite", y)) | (x == y)
    return near | (_apply("isnan", x) & _apply("isnan", y)) if equal_nan else near


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether all elements are equal within the tolerances, as a bool; waits for the result.

    At least one operand is a gpuinterop array.
    """
    if not any(isinstance(v, _core.Array) or hasattr(v, "__gpuinterop_trace__") for v in (a, b)):
        (a,) = output_arrays.taken("allclose", a)
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Return whether shapes and elements are equal."""
    pair = _pair(a1, a2, "numpy.array_equal")
    if pair is None or pair[0].shape != pair[1].shape:
        return False
    x, y = pair
    same = x == y
    if equal_nan:
        same = same | (FUNCTIONS["isnan"](x) & FUNCTIONS["isnan"](y))
    return bool(same.all())


def array_equiv(a1: Any, a2: Any) -> bool:
    """Return whether the elements are equal once the shapes are broadcast."""
    pair = _pair(a1, a2, "numpy.array_equiv")
    try:
        return pair is not None and bool((pair[0] == pair[1]).all())
    except ShapeError:
        return False

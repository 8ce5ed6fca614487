"""NumPy's functions that test whether arrays are equal or close."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.elementwise.operands import as_operand
from gpuinterop.errors import ConversionTypeError, DTypeError, ShapeError
from gpuinterop.errors.context import reraise_from
from gpuinterop.fusion.fuse import fuse


def _pair(a: Any, b: Any, where: str) -> tuple[Any, Any] | None:
    """Return two operands as `GpuArray` views, whose dtypes a comparison may promote.

    None if they cannot be compared: text, None and ragged lists equal no array of numbers.
    """
    like = a if isinstance(a, _core.Array) else b
    try:
        first, second = (results.plain(as_operand(v, like, where)) for v in (a, b))
        return first, second
    except (ConversionTypeError, DTypeError, ValueError):
        if any(isinstance(v, np.ndarray) and v.dtype.kind in "biufc" for v in (a, b)):
            raise
        return None


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether each pair of elements is equal within the tolerances."""
    return _compare("numpy.isclose", _near, a, b, rtol, atol, equal_nan)


def _compare(
    where: str, function: Any, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool
) -> Any:
    """Compute a fused function of two operands and the tolerances."""
    like = next((v for v in (a, b, rtol, atol) if isinstance(v, _core.Array)), b)
    # Python scalars stay weakly typed: they take the dtype of the array.
    x, y = (
        v if type(v) in (bool, int, float, complex) else results.plain(as_operand(v, like, where))
        for v in (a, b)
    )
    widens = isinstance(y, _core.Array) and y.dtype.kind in "biu"
    y = float(y) if isinstance(y, int) else y
    with reraise_from(where):
        return function(x, y, rtol, atol, widens, bool(equal_nan))


@fuse
def _near(x: Any, y: Any, rtol: Any, atol: Any, widens: bool, equal_nan: bool) -> Any:
    absolute, isfinite, isnan = (FUNCTIONS[name] for name in ("absolute", "isfinite", "isnan"))
    y = y.astype("float64") if widens else y
    near = absolute(x - y) <= absolute(y) * rtol + atol
    # An infinity is close only to itself.
    near = (near & isfinite(y)) | (x == y)
    return near | (isnan(x) & isnan(y)) if equal_nan else near


@fuse
def _all_near(x: Any, y: Any, rtol: Any, atol: Any, widens: bool, equal_nan: bool) -> Any:
    return _near(x, y, rtol, atol, widens, equal_nan).all()


@fuse
def _all_equal(x: Any, y: Any, equal_nan: bool) -> Any:
    return ((x == y) | ((x != x) & (y != y)) if equal_nan else x == y).all()


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether all elements are equal within the tolerances, as a bool; waits for the result.

    At least one operand is an array or a list.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.allclose([1, 2], [1, 2.000001])
    True
    """
    if not any(isinstance(v, _core.Array) or hasattr(v, "__gpuinterop_trace__") for v in (a, b)):
        (a,) = results.as_operands("allclose", a)
    return bool(_compare("allclose", _all_near, a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Return whether shapes and elements are equal."""
    pair = _pair(a1, a2, "numpy.array_equal")
    if pair is None or pair[0].shape != pair[1].shape:
        return False
    return bool(_all_equal(*pair, bool(equal_nan)))


def array_equiv(a1: Any, a2: Any) -> bool:
    """Return whether the elements are equal once the shapes are broadcast."""
    pair = _pair(a1, a2, "numpy.array_equiv")
    try:
        return pair is not None and bool((pair[0] == pair[1]).all())
    except ShapeError:
        return False

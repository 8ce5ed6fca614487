"""The elementwise operations as functions: one for each entry of the table, and a few combinations."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import WITHOUT_KERNELS, as_supported_dtype, is_complex
from gpuinterop.arrays.numpy_views import as_numpy_view, wrap_numpy
from gpuinterop.errors import (
    ArgumentTypeError,
    BoundsError,
    DTypeError,
    GpuInteropError,
    short_repr,
)
from gpuinterop.errors.arguments import require_bool, require_order
from gpuinterop.exchange.protocols import interfaces_of

from . import results
from .calls import FUNCTIONS, call
from .table import ALIASES

globals().update({name: f for name, f in FUNCTIONS.items() if name != "cast"})
globals().update({alias: FUNCTIONS[name] for alias, name in ALIASES.items()})


class _Add(partial):  # type: ignore[type-arg]
    """`add` with the method `at` of NumPy's ufunc; a call runs no Python code."""

    @staticmethod
    def at(x: Any, indices: Any, values: Any) -> None:
        """Add values to the elements of x at ``x[indices]``, each as often as its index occurs.

        ``x[indices] += values`` adds once to an element whose index is repeated. `indices` is any key. The
        additions of one element have no order on a GPU, so sums of floats may differ by rounding from run to
        run.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros(3, device="cpu")
        >>> gpuinterop.add.at(x, [0, 2, 0], 1)
        >>> x.tolist()
        [2.0, 0.0, 1.0]
        """
        call("add at", x, indices, values)

    def __get__(self, instance: Any, owner: Any = None) -> _Add:
        return self  # as an attribute of a class it is not bound, as a function of C is not

    def __repr__(self) -> str:
        return "<function add>"

    def __reduce__(self) -> str:
        return "add"


add = _Add(FUNCTIONS["add"])
for _name in ("__module__", "__name__", "__qualname__", "__doc__", "__text_signature__"):
    setattr(add, _name, getattr(FUNCTIONS["add"], _name))
_Add.at.__qualname__ = "add.at"


def _import_operand(where: str, x: Any, *others: Any) -> Any:
    """Convert an array of another library to the device of the gpuinterop arrays; return other operands unchanged."""
    if isinstance(x, (np.ndarray, np.generic)) or not any(interfaces_of(x)):
        return x
    like = [a for a in others if isinstance(a, _core.Array)]
    return results.as_operands(where, x, *like[:1])[0]


@_core.served
def clip(x: Any, min: Any = None, max: Any = None, out: Any = None) -> Any:
    """Return x limited to the range from min to max; a bound that is None does not limit.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.clip(gpuinterop.asarray([1.0, 5.0, 9.0], device="cpu"), 2, 6).tolist()
    [2.0, 5.0, 6.0]
    """
    if not isinstance(x, _core.Array):
        x = _import_operand("clip", x, min, max, out)
    dtype = getattr(x, "dtype", None)
    if dtype is not None and dtype.kind in "iu":
        min, max = effective_bounds(np.dtype(dtype), min, max)
    try:
        if min is not None and max is not None:
            return FUNCTIONS["clip"](x, min, max, out=out)
        if min is not None:
            return FUNCTIONS["maximum"](x, min, out=out)
        if max is not None:
            return FUNCTIONS["minimum"](x, max, out=out)
        return FUNCTIONS["positive"](x, out=out)
    except GpuInteropError as error:
        raise error.changed(where="clip") from None


def effective_bounds(dtype: np.dtype[Any], min: Any, max: Any) -> tuple[Any, Any]:
    """Return the bounds, with None for a Python integer beyond the range of an integer dtype, as in NumPy."""
    if dtype.kind not in "iu":
        return min, max
    info = np.iinfo(dtype)
    low = None if type(min) is int and min <= info.min else min
    high = None if type(max) is int and max >= info.max else max
    return low, high


@_core.served
def round(x: Any, decimals: int = 0, out: Any = None) -> Any:
    """Return x rounded to a number of decimals, halves to the even neighbour as in NumPy.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.round([0.5, 1.5, 2.75]).tolist()
    [0.0, 2.0, 3.0]
    """
    try:
        decimals = operator.index(decimals)
    except TypeError:
        raise ArgumentTypeError(where="round", expected="an int as decimals",
                                got=short_repr(decimals), fix="pass an int") from None  # fmt: skip
    if not -300 <= decimals <= 300:
        raise BoundsError(where="round", expected="decimals from -300 to 300", got=short_repr(decimals),
                          fix="omit the rounding, because no float has that many decimals")  # fmt: skip
    if not isinstance(x, _core.Array):
        x = _import_operand("round", x, out)
    dtype = np.dtype(x.dtype) if hasattr(x, "dtype") else None
    whole = dtype is not None and dtype.kind in "iu"
    try:
        if whole and decimals >= 0:
            return FUNCTIONS["positive"](x, out=out)
        if decimals == 0:
            return FUNCTIONS["rint"](x, out=out)
        if isinstance(x, _core.Array) and is_complex(x.dtype):
            return _rounded_parts(x, decimals, out)
        # Use NumPy's order of operations, so that results agree to the last bit.
        factor = 10.0 ** (decimals if decimals > 0 else -decimals)  # abs is the array function here
        up, down = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
        if isinstance(x, _core.Array):  # without arrays between the steps
            rounded = call("rounding", up, down)(x, factor, out=out)
        else:  # a placeholder of fuse
            whole_numbers = FUNCTIONS["rint"](FUNCTIONS[up](x, factor))
            rounded = FUNCTIONS[down](whole_numbers, factor, out=out)
        return astype(rounded, dtype) if whole and out is None else rounded
    except GpuInteropError as error:
        raise error.changed(where="round") from None


def _rounded_parts(x: Any, decimals: int, out: Any) -> Any:
    """Return complex numbers with rounded parts: a product with the factor would mix infinite ones."""
    made = results.new_like(x, x.shape, x.dtype, "round") if out is None else out
    results.check_out(made, x.shape, x.dtype, x, "round")
    for name in ("real", "imag"):
        round(getattr(x, name), decimals, getattr(made, name))
    return made


@_core.served
def astype(x: Any, dtype: Any, order: str = "K", copy: bool = True, *, device: Any = None) -> Any:
    """Return x in another dtype: a copy, or x itself if nothing changes.

    The copy has the order of x in memory, or the one that `order` names: "C", "F", "A" or "K".

    Casts as NumPy does: floats are truncated towards zero, wider integers lose their upper bits. With
    ``copy=False`` an array that already has the dtype is returned unchanged. `device` moves the result.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.astype([1.75, -1.75], "int32").tolist()
    [1, -1]
    """
    if hasattr(type(x), "__gpuinterop_trace__"):
        return x.astype(dtype, order, copy)
    if not isinstance(x, _core.Array):
        (x,) = results.as_operands("astype", x)
    found = cast(x, dtype, order, copy)
    return found if device is None else found.to_device(device)


# ---- casts between element types ----------------------------------------------------------------


def cast(x: Any, dtype: Any, order: str = "K", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    dtype = as_supported_dtype(dtype, "astype")
    source = core_view(x)
    if order != "K":
        require_order(order, "CFAK", "astype")
    if copy is not True and not require_bool(copy, "copy", "astype") and source.dtype == dtype:
        return x
    cls = results.class_for(type(x), dtype)
    result: Any = _core._empty_like(cls, source, dtype, order, "astype")
    if source.dtype == dtype:
        _core.copy_into(result, source, where="astype")
    else:
        cast_into(result, source)
    return result


def cast_operands(
    where: str, arrays: Sequence[Any], dtype: Any, casting: Any = "same_kind"
) -> list[Any]:
    """Return operands in the dtype that a caller requested, if `casting` allows it; a number stays one."""
    dtype = as_supported_dtype(dtype, where)
    for x in arrays:
        if isinstance(x, _core.Array) and not np.can_cast(x.dtype, dtype, casting):
            raise DTypeError(
                where=where, expected=f"operands that {casting} casting turns into {dtype}",
                got=str(x.dtype), fix="cast first: x.astype(...), or omit dtype=",
            )  # fmt: skip
    return [cast(x, dtype, copy=False) if isinstance(x, _core.Array) else x for x in arrays]


def cast_into(target: Any, x: Any) -> None:
    """Fill `target` with the elements of `x`, of another dtype."""
    for dtype in (target.dtype, x.dtype):
        if dtype.isbuiltin != 1 and dtype.name in WITHOUT_KERNELS:
            _cast_on_host(x, target)
            return
    FUNCTIONS["cast"](x, out=target)


def _cast_on_host(x: _core.Array, target: _core.Array) -> None:
    """Fill `target` with the values of `x`, cast on the host; elements on a GPU are transferred."""
    if x.device.type == "cpu":
        _core._require_values("astype", x)
        values = as_numpy_view(x)
    else:
        values = np.empty(x.shape, x.dtype)
        _core.copy_into(wrap_numpy(values), x, where="astype")
    if values.dtype.isbuiltin != 1 and is_complex(values.dtype):
        values = values.astype(np.complex64)  # NumPy discards imaginary parts, ml_dtypes does not
    with np.errstate(all="ignore"):  # no operation warns
        if target.device.type == "cpu":
            np.copyto(as_numpy_view(target, written=True), values, casting="unsafe")
            return
        values = values.astype(target.dtype)
    _core.copy_into(target, wrap_numpy(values), where="astype")

"""Casts between element types, and numpy.copyto, which casts by NumPy's rule for `casting`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_input_array
from gpuinterop.dtypes import WITHOUT_KERNELS, as_supported_dtype, is_complex
from gpuinterop.error_messages import not_one_of
from gpuinterop.errors import DTypeError, short_repr
from gpuinterop.host_views import as_numpy_view, wrap_numpy
from gpuinterop.layout import core_view
from gpuinterop.option_values import require_bool, require_order
from gpuinterop.scalars import scalars_to_array

from . import output_arrays
from .core_callbacks import CALLS, FUNCTIONS
from .operand_conversion import gpuarray_class, placed
from .operation_table import TABLE


def cast(x: Any, dtype: Any, order: str = "K", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    wanted = as_supported_dtype(dtype, "astype")
    cls: Any = type(x)
    seen = core_view(x)
    in_order = order == "C" or (order == "K" and seen.is_c_contiguous())
    axes = None if in_order else _axes_in_memory(seen, order)
    if copy is not True and not require_bool(copy, "copy", "astype") and seen.dtype == wanted:
        return x
    if getattr(cls, "_only", wanted) != wanted:
        cls = gpuarray_class()
    shape = seen.shape if axes is None else tuple([seen.shape[i] for i in axes])
    place = seen.device
    made = _core.empty(cls, shape, wanted, place.type_code, place.index, where="astype")
    if axes is not None:
        made = made._permuted([axes.index(i) for i in range(seen.ndim)])
    if seen.dtype == wanted:
        _core.copy_into(made, seen, where="astype")
    else:
        cast_into(made, seen)
    return made


def cast_into(target: Any, x: Any) -> None:
    """Fill `target` with the elements of `x`, of another dtype."""
    for dtype in (target.dtype, x.dtype):
        if dtype.isbuiltin != 1 and dtype.name in WITHOUT_KERNELS:
            _cast_on_host(x, target)
            return
    FUNCTIONS["cast"](x, out=target)


def _axes_in_memory(x: Any, order: str) -> Sequence[int] | None:
    """Return the axes in the order of the result's memory, None for C order."""
    if require_order(order, "CFAK", "astype") == "K":
        in_memory: tuple[int, ...] = x._memory_order()
        return in_memory
    columns = order == "F" or (x.is_f_contiguous() and not x.is_c_contiguous())
    return list(range(x.ndim))[::-1] if columns else None


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
    if target.device.type == "cpu":
        np.copyto(as_numpy_view(target, written=True), values, casting="unsafe")
    else:
        _core.copy_into(target, wrap_numpy(values.astype(target.dtype)), where="astype")


@lru_cache(maxsize=256)
def _of_cast_operands(name: str, dtypes: tuple[np.dtype[Any] | None, ...]) -> Any:
    from .expression import Expression  # noqa: PLC0415  (not needed for the first kernel of a process)

    graph = Expression()
    operands = [
        graph.input() if dtype is None else graph.cast(graph.input(), dtype) for dtype in dtypes
    ]
    results = [graph.apply(name, *operands, result=i) for i in range(TABLE[name].results)]
    return graph.compile(results, name)


def _function_of_cast_operands(name: str, dtypes: Any, operands: tuple[Any, ...]) -> Any:
    """Return the operation called `name` with a kernel that first casts its operands to `dtypes`; None: no cast."""
    return _of_cast_operands(name, dtypes).operation(operands)


CALLS["function of cast operands"] = _function_of_cast_operands


# ---- numpy.copyto -----------------------------------------------------------------------------------

_WHERE = "numpy.copyto"
_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Set the elements of `dst` that `where` selects, of either library, to those of `src`."""
    if not isinstance(dst, _core.Array):
        given = (
            output_arrays.plain(x).get() if isinstance(x, _core.Array) else x for x in (src, where)
        )
        values, mask = given
        np.copyto(dst, values, casting=casting, where=mask)  # type: ignore[arg-type]
        return
    target = output_arrays.plain(dst)
    value = _source(src, target, casting)
    if where is True:
        target[...] = value
        return
    while value.ndim > target.ndim and value.shape[0] == 1:
        value = value[0]
    mask = output_arrays.selected(where, target, _WHERE)
    dtypes = {value.dtype.name, target.dtype.name}
    if dtypes & set(WITHOUT_KERNELS):
        value = cast(value, target.dtype, copy=False)
        target[...] = FUNCTIONS["where"](mask, value.broadcast_to(target.shape), target)
        return
    _selection(target.dtype)(mask, value.broadcast_to(target.shape), target, out=target)


@lru_cache(maxsize=64)
def _selection(dtype: np.dtype[Any]) -> Any:
    """Return the operation that chooses between a source and the target's elements.

    It casts only the source: a selection from two dtypes would promote to a third, and round both.
    """
    from .expression import Expression  # noqa: PLC0415  (not needed for the first kernel of a process)

    graph = Expression()
    mask, source, target = (graph.input() for _ in range(3))
    graph.results = [graph.apply("where", mask, graph.cast(source, dtype), target)]
    return graph.compile(graph.results, "copyto")


def _source(src: Any, target: Any, casting: str) -> Any:
    """Return the source as an array on the target's device, of any dtype that `casting` allows."""
    dtype = target.dtype
    number = type(src) in (bool, int, float, complex)
    if isinstance(src, (list, tuple)):
        src = np.asarray(src)
    if not number and not isinstance(src, (_core.Array, np.generic)):
        src = as_input_array(src, None, _WHERE)
    given = np.result_type(src) if number else src.dtype
    # Python scalars have a kind but no size.
    if casting not in _CASTINGS:
        raise not_one_of(_WHERE, "casting", _CASTINGS, casting)
    allowed = np.can_cast(given, dtype, casting)  # type: ignore[arg-type]
    if not (allowed or (number and np.result_type(src, dtype) == dtype)):
        raise DTypeError(
            where=_WHERE, expected=f"elements that casting={casting!r} allows to cast to {dtype}",
            got=short_repr(src) if number else f"dtype {given}", fix='pass casting="unsafe"',
        )  # fmt: skip
    if number or isinstance(src, np.generic):
        # Fill instead of uploading, because a capture records a fill.
        value = output_arrays.new_like(target, (), dtype, _WHERE)
        value[...] = scalars_to_array(src, dtype, _WHERE).item()
        return value
    source = placed(src, target, _WHERE)
    output_arrays.require_arrays(_WHERE, target, source)
    return source

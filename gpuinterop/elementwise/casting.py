"""Casts between element types."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import WITHOUT_KERNELS, as_supported_dtype, is_complex
from gpuinterop.arrays.numpy_views import as_numpy_view, wrap_numpy
from gpuinterop.errors.arguments import require_bool, require_order

from . import results as output_arrays
from .calls import CALLS, FUNCTIONS
from .table import TABLE


def cast(x: Any, dtype: Any, order: str = "K", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    dtype = as_supported_dtype(dtype, "astype")
    source = core_view(x)
    if order != "K":
        require_order(order, "CFAK", "astype")
    if copy is not True and not require_bool(copy, "copy", "astype") and source.dtype == dtype:
        return x
    cls = output_arrays.class_for(type(x), dtype)
    result: Any = _core._empty_like(cls, source, dtype, order, "astype")
    if source.dtype == dtype:
        _core.copy_into(result, source, where="astype")
    else:
        cast_into(result, source)
    return result


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
    if target.device.type == "cpu":
        np.copyto(as_numpy_view(target, written=True), values, casting="unsafe")
    else:
        _core.copy_into(target, wrap_numpy(values.astype(target.dtype)), where="astype")


@lru_cache(maxsize=256)
def _of_cast_operands(name: str, dtypes: tuple[np.dtype[Any] | None, ...]) -> Any:
    from gpuinterop.fusion.builder import Expression  # noqa: PLC0415  (not needed for the first kernel of a process)

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

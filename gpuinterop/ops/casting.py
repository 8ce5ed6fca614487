"""Casts between element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import WITHOUT_KERNELS, as_supported_dtype, is_complex
from gpuinterop.host_views import as_numpy_view, wrap_numpy
from gpuinterop.layout import core_view
from gpuinterop.option_values import require_bool, require_order

from .core_callbacks import FUNCTIONS
from .operand_conversion import gpuarray_class

__all__ = ["cast"]


def cast(x: Any, dtype: Any, order: str = "C", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    wanted = as_supported_dtype(dtype, "astype")
    cls: Any = type(x)
    seen = core_view(x)
    axes = None if order == "C" else _axes_in_memory(seen, order)
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
    elif _has_no_kernels(wanted) or _has_no_kernels(seen.dtype):
        _cast_on_host(seen, made)
    else:
        FUNCTIONS["cast"](seen, out=made)
    return made


def _has_no_kernels(dtype: np.dtype[Any]) -> bool:
    return dtype.isbuiltin != 1 and dtype.name in WITHOUT_KERNELS


def _axes_in_memory(x: Any, order: str) -> Sequence[int] | None:
    """Return the axes in the order of the result's memory, None for C order."""
    if require_order(order, "CFAK", "astype") == "K":
        in_memory: tuple[int, ...] = x._memory_order()
        return in_memory
    columns = order == "F" or (x.is_f_contiguous() and not x.is_c_contiguous())
    return list(range(x.ndim))[::-1] if columns else None


def _cast_on_host(x: _core.Array, target: _core.Array) -> None:
    """Fill `target` with the values of `x`, by way of the host where they are on a GPU."""
    if x.device.type == "cpu":
        _core._require_values("astype", x)
        values = as_numpy_view(x)
    else:
        values = np.empty(x.shape, x.dtype)
        _core.copy_into(wrap_numpy(values), x, where="astype")
    if values.dtype.isbuiltin != 1 and is_complex(values.dtype):
        values = values.astype(np.complex64)  # whose real parts NumPy takes, ml_dtypes does not
    _core.copy_into(target, wrap_numpy(values.astype(target.dtype)), where="astype")

"""Casts between element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import WITHOUT_KERNELS, is_complex, known
from gpuinterop.errors import ShapeError
from gpuinterop.geometry import real
from gpuinterop.sources import host_view, over
from gpuinterop.switches import as_switch
from gpuinterop.views import memory_order

from .operands import general_class
from .runtime import FUNCTIONS

__all__ = ["cast"]


def cast(x: Any, dtype: Any, order: str = "C", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    wanted = known(dtype, "astype")
    cls: Any = type(x)
    given, x = x, real(x)
    if copy is not True and not as_switch(copy, "copy", "astype") and x.dtype == wanted:
        _require_order(order)
        return given
    if getattr(cls, "_only", wanted) != wanted:
        cls = general_class()
    place = x.device
    if order == "C":
        target = _core.empty(cls, x.shape, wanted, place.type_code, place.index, where="astype")
    else:
        axes = _axes_in_memory(x, order)
        shape = tuple(x.shape[i] for i in axes)
        made = _core.empty(cls, shape, wanted, place.type_code, place.index, where="astype")
        target = made._permuted([axes.index(i) for i in range(x.ndim)])
    if x.dtype == wanted:
        _core.copy_into(target, x, where="astype")
    # Written out, for a generator would be one more Python function in every call.
    elif (wanted.isbuiltin != 1 and wanted.name in WITHOUT_KERNELS) or (
        x.dtype.isbuiltin != 1 and x.dtype.name in WITHOUT_KERNELS
    ):
        _cast_on_host(x, target)
    else:
        FUNCTIONS["cast"](x, out=target)
    return target


def _require_order(order: Any) -> None:
    if order not in ("C", "F", "A", "K"):
        raise ShapeError(where="astype", expected="order 'C', 'F', 'A' or 'K'", got=repr(order),
                         fix="pass one of these")  # fmt: skip


def _axes_in_memory(x: Any, order: str) -> list[int]:
    """The axes in the order of the result's memory."""
    _require_order(order)
    if order == "K":
        return memory_order(x)
    turned = order == "F" or (x.is_f_contiguous() and not x.is_c_contiguous())
    return list(range(x.ndim))[:: -1 if turned else 1]


def _cast_on_host(x: _core.Array, target: _core.Array) -> None:
    """Fill `target` with the values of `x`, by way of the host where they are on a GPU."""
    if x.device.type == "cpu":
        _core._require_values("astype", x)
        values = host_view(x)
    else:
        values = np.empty(x.shape, x.dtype)
        _core.copy_into(over(values), x, where="astype")
    if values.dtype.isbuiltin != 1 and is_complex(values.dtype):
        values = values.astype(np.complex64)  # whose real parts NumPy takes, ml_dtypes does not
    _core.copy_into(target, over(values.astype(target.dtype)), where="astype")

"""Casts between element types."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import WITHOUT_KERNELS, as_supported_dtype, dtype_id, is_complex
from gpuinterop.errors import ShapeError
from gpuinterop.host_views import as_numpy_view, wrap_numpy
from gpuinterop.layout import core_view
from gpuinterop.option_values import require_bool
from gpuinterop.views import memory_order
from gpuinterop.warm import Given, Made, Steps, warm

from .core_callbacks import FUNCTIONS
from .operand_conversion import gpuarray_class

__all__ = ["cast", "casting"]


@warm(values="dtype order copy")
def cast(x: Any, dtype: Any, order: str = "C", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    return casting(x, dtype, order, copy)


def casting(x: Any, dtype: Any, order: str, copy: bool) -> Any:
    """The steps of `cast` for its arguments, or its result."""
    wanted = as_supported_dtype(dtype, "astype")
    cls: Any = type(x)
    x = core_view(x)
    if copy is not True and not require_bool(copy, "copy", "astype") and x.dtype == wanted:
        _require_order(order)
        return _ITSELF
    if getattr(cls, "_only", wanted) != wanted:
        cls = gpuarray_class()
    without = any(d.isbuiltin != 1 and d.name in WITHOUT_KERNELS for d in (wanted, x.dtype))
    if order == "C" and (x.dtype == wanted or not without):
        return _cast_to(cls, wanted, x.dtype == wanted)
    axes = _axes_in_memory(x, order)
    shape = tuple(x.shape[i] for i in axes)
    place = x.device
    made = _core.empty(cls, shape, wanted, place.type_code, place.index, where="astype")
    target = made._permuted([axes.index(i) for i in range(x.ndim)])
    if x.dtype == wanted:
        _core.copy_into(target, x, where="astype")
    elif without:
        _cast_on_host(x, target)
    else:
        FUNCTIONS["cast"](x, out=target)
    return target


_ITSELF = Steps([], Given("x"))


@lru_cache(maxsize=1024)
def _cast_to(cls: Any, wanted: np.dtype[Any], same: bool) -> Steps:
    """A new C-ordered array of the class and dtype, filled with the elements of x."""
    made = (_core._empty_like, [cls, Given("x"), dtype_id(wanted)], {"where": "astype"})
    if same:
        return Steps([made, (_core.copy_into, [Made(0), Given("x")], {"where": "astype"})], Made(0))
    return Steps([made, (FUNCTIONS["cast"], [Given("x")], {"out": Made(0)})], Made(0))


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
        values = as_numpy_view(x)
    else:
        values = np.empty(x.shape, x.dtype)
        _core.copy_into(wrap_numpy(values), x, where="astype")
    if values.dtype.isbuiltin != 1 and is_complex(values.dtype):
        values = values.astype(np.complex64)  # whose real parts NumPy takes, ml_dtypes does not
    _core.copy_into(target, wrap_numpy(values.astype(target.dtype)), where="astype")

"""Casts between element types."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop.dtypes import dtype_of, row_of
from gpuinterop.errors import ShapeError
from gpuinterop.geometry import real
from gpuinterop.switches import as_switch

from .runtime import FUNCTIONS, general_class

__all__ = ["cast"]


def cast(x: Any, dtype: Any, order: str = "C", copy: bool = True) -> Any:
    """Return a copy of x in another dtype, of the class that can hold it."""
    wanted = dtype_of(row_of(dtype))
    if order not in ("C", "F", "A", "K"):
        raise ShapeError(where="astype", expected="order 'C', 'F', 'A' or 'K'", got=repr(order),
                         fix="pass one of these")  # fmt: skip
    copy = as_switch(copy, "copy", "astype")
    cls: Any = type(x)
    given, x = x, real(x)
    if not copy and x.dtype == wanted:
        return given
    if getattr(cls, "_only", wanted) != wanted:
        cls = general_class()
    keeps_f = order == "F" or (order in "AK" and x.is_f_contiguous() and not x.is_c_contiguous())
    shape = x.shape[::-1] if keeps_f else x.shape
    made = _core.empty(cls, shape, wanted, x.device.type_code, x.device.index)
    target = made.T if keeps_f else made
    if x.dtype == wanted:
        _core.copy_into(target, x, where="astype")
    else:
        FUNCTIONS["cast"](x, out=target)
    return target if keeps_f else made

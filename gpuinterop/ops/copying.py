"""numpy.copyto: elements cast by NumPy's rule for `casting`, and copied where a mask is true."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_input_array
from gpuinterop.dtypes import dtype_id
from gpuinterop.errors import DTypeError, ShapeError, short_repr
from gpuinterop.host_views import refuse_mask
from gpuinterop.layout import core_view
from gpuinterop.ops import output_arrays
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.ops.dtype_promotion import dtype_kind
from gpuinterop.ops.operand_conversion import placed
from gpuinterop.scalars import NUMBERS, scalars_to_array

__all__ = ["copyto"]

_WHERE = "numpy.copyto"
# Python's numbers have a kind and no size: each fits into these.
_KINDS: dict[type, str] = {bool: "biufc", int: "iufc", float: "fc", complex: "c"}


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Set the elements of `dst` that `where` selects, of either library, to those of `src`."""
    mask = _mask(where)
    if not isinstance(dst, _core.Array):
        np.copyto(dst, _downloaded(src), casting=casting, where=_downloaded(mask))  # type: ignore[arg-type]
        return
    target = output_arrays.plain(dst)
    # Before the mask: a selection from two dtypes would meet in a third, and round both.
    value = _cast(src, target, casting)
    if mask is True:
        target[...] = value
    elif mask is not False:
        while value.ndim > target.ndim and value.shape[0] == 1:
            value = value[0]
        chosen, value = (_fitted(x, target) for x in (_placed_mask(mask, target), value))
        target[...] = FUNCTIONS["where"](chosen, value, target)


def _mask(where: Any) -> Any:
    """The mask as True, False or an array of bool."""
    refuse_mask(where, _WHERE)
    mask = where if isinstance(where, _core.Array) else np.asarray(where)
    if mask.dtype != np.bool_:
        raise DTypeError(where=_WHERE, expected="where of dtype bool", got=f"dtype {mask.dtype}",
                         fix="compare: where=x > 0")  # fmt: skip
    return bool(mask) if isinstance(mask, np.ndarray) and mask.ndim == 0 else mask


def _placed_mask(mask: Any, target: Any) -> Any:
    if isinstance(mask, _core.Array):
        output_arrays.require_arrays(_WHERE, target, mask)
        return output_arrays.plain(mask)
    return placed(as_input_array(mask, None, _WHERE), target, _WHERE)


def _fitted(x: Any, target: Any) -> Any:
    try:
        return x.broadcast_to(target.shape)
    except ShapeError:
        raise ShapeError(
            where=_WHERE, expected=f"src and where of shapes that broadcast to {target.shape}",
            got=str(x.shape), fix="reshape it",
        ) from None  # fmt: skip


def _cast(src: Any, target: Any, casting: str) -> Any:
    """The source as an array of the target's dtype, where the target is."""
    dtype = target.dtype
    number = type(src) in _KINDS
    if not number and isinstance(src, NUMBERS) and not isinstance(src, np.generic):
        src = np.asarray(src)
    elif not number and not isinstance(src, (_core.Array, np.ndarray, np.generic)):
        src = placed(as_input_array(src, None, _WHERE), target, _WHERE)
    if number:
        # Asked of the dtype alone, NumPy only checks the word.
        known = np.can_cast(dtype, dtype, casting)  # type: ignore[arg-type]
        allowed = known and (
            casting == "unsafe" or dtype_kind(dtype_id(dtype)) in _KINDS[type(src)]
        )
    else:
        allowed = np.can_cast(core_view(src).dtype if isinstance(src, _core.Array) else src.dtype,
                              dtype, casting)  # type: ignore[arg-type]  # fmt: skip
    if not allowed:
        raise DTypeError(
            where=_WHERE, expected=f"elements that casting={casting!r} lets become {dtype}",
            got=short_repr(src) if number else f"dtype {src.dtype}", fix='pass casting="unsafe"',
        )  # fmt: skip
    if isinstance(src, _core.Array):
        output_arrays.require_arrays(_WHERE, target, src)
        return output_arrays.plain(src).astype(dtype, copy=False)
    if number or isinstance(src, np.generic):
        # Filled and not uploaded: a capture holds it.
        value = output_arrays.new_like(target, (), dtype, _WHERE)
        value[...] = scalars_to_array(src, dtype, _WHERE).item()
        return value
    return placed(as_input_array(src, dtype, _WHERE), target, _WHERE)


def _downloaded(x: Any) -> Any:
    return output_arrays.plain(x).get() if isinstance(x, _core.Array) else x

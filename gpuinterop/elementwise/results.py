"""Classes of results, and validation of `out` arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.arrays.numpy_views import as_numpy_view, read_by_numpy
from gpuinterop.arrays.scalars import LISTS, is_scalar_or_list
from gpuinterop.errors import DTypeError, ShapeError, type_name
from gpuinterop.errors.messages import devices_differ, not_an_array
from gpuinterop.exchange.incoming import as_input_array

from .operands import is_foreign_array, list_operand, on_device_of, result_class

if TYPE_CHECKING:
    from collections.abc import Sequence


def plain(x: Any) -> Any:
    """Return `x` as a `GpuArray`, without a subclass's overrides of methods, shape and strides."""
    return _core.view(_core.gpuarray_class(), x)


def class_for(cls: Any, dtype: Any) -> Any:
    """Return the class of a result of `dtype` from an operand of class `cls`."""
    only = getattr(cls, "_only", None)
    return cls if only is None or dtype == only else _core.gpuarray_class()


def leading(operands: Sequence[Any]) -> Any:
    """Return the operand that determines the class of a result."""
    cls = result_class([type(x) for x in operands])
    return next(x for x in operands if type(x) is cls)


def new_like(
    x: Any, shape: tuple[int, ...], dtype: Any, where: str = "empty", cls: type | None = None
) -> Any:
    """Return an uninitialized C-ordered array on the device of `x`, of the class of a result for `x`."""
    device, result_cls = core_view(x).device, class_for(cls or type(x), dtype)
    return _core.empty(result_cls, shape, dtype, device.type_code, device.index, where=where)


def by_general_class(function: Any, x: Any, *others: Any) -> Any:
    """Return the result of a fused reduction for `x`; the function, which lasts, keeps no user's class alive."""
    own = _core.result_types()
    if all(type(y) in own or not isinstance(y, _core.Array) for y in (x, *others)):
        return function(x, *others)
    found = function(plain(x), *(plain(y) if isinstance(y, _core.Array) else y for y in others))
    return _core.view(class_for(type(x), found.dtype), found)


def check_out(out: Any, shape: tuple[int, ...], dtype: Any, like: Any, where: str) -> Any:
    """Refuse an `out` that does not fit, before anything is computed; return it as `plain` does."""
    _core._check_out(out, shape, dtype_id(dtype), like, where)
    return plain(out)


def require_arrays(where: str, *operands: Any) -> Any:
    """Require gpuinterop arrays on one device; return the device."""
    for x in operands:
        if not isinstance(x, _core.Array):
            if not is_scalar_or_list(x):
                as_input_array(x, None, where)  # the error of an object that is not an array
            raise not_an_array(where, "an operand", type_name(x))
    if not operands:
        raise ShapeError(where=where, expected="one array or more", got="none", fix="pass arrays")
    device = core_view(operands[0]).device
    for x in operands[1:]:
        other = core_view(x).device
        if other is not device:  # a device has one object
            raise devices_differ(where, device, other)
    return device


def as_operands(where: str, *operands: Any) -> list[Any]:
    """Convert the operands to gpuinterop arrays on one device, by the same rule as the operators.

    Lists count as their numbers do. Arrays of other libraries are shared on their device. Host arrays are
    copied to the device of the first gpuinterop array, or else of the first array on a GPU, or else to the
    default device.
    """
    all_arrays = all([isinstance(x, _core.Array) for x in operands])
    if all_arrays and len(operands) == 1:
        return [operands[0]]
    if not all_arrays and any(isinstance(x, LISTS) or _foreign(x) for x in operands):
        sources = [as_input_array(x, None, where) if _foreign(x) else x for x in operands]
        arrays = [x for x in operands if isinstance(x, _core.Array)]
        arrays += [x for x in sources if isinstance(x, _core.Array) and x.device.type != "cpu"]
        like = arrays[0] if arrays else None
        operands = tuple(
            list_operand(x, like, where) if isinstance(x, LISTS)
            else on_device_of(source, like, where) if _foreign(x) else x
            for x, source in zip(operands, sources, strict=True)
        )  # fmt: skip
    require_arrays(where, *operands)
    return list(operands)


def _foreign(x: Any) -> bool:
    return isinstance(x, np.generic) or is_foreign_array(x)


def as_mask(mask: Any, x: Any, where: str) -> Any:
    """Return the mask on x's device, in x's shape."""
    if isinstance(mask, _core.Array):
        require_arrays(where, x, mask)
        mask = plain(mask)
    else:
        given = read_by_numpy(mask) if is_scalar_or_list(mask) else mask
        source = as_input_array(given, None, where)
        mask = on_device_of(source, x, where, source.ndim == 0)
    if mask.dtype != np.bool_:
        raise DTypeError(
            where=where,
            expected="where= of dtype bool",
            got=str(mask.dtype),
            fix="pass a comparison: where=x > 0",
        )
    try:
        return mask.broadcast_to(x.shape)
    except ShapeError:
        raise ShapeError(
            where=where, expected=f"where= of a shape that broadcasts to {x.shape}", got=f"shape {mask.shape}",
            fix="reshape it",
        ) from None  # fmt: skip


def fill_by_numpy(target: Any, function: Any, *operands: Any, where: str) -> Any:
    """Fill and return an array in host memory with what a function of NumPy returns for the operands."""
    views = [as_numpy_view(x, where) for x in operands]
    written_to = as_numpy_view(target, written=True)

    def work() -> None:
        with np.errstate(all="ignore"):  # no operation warns
            written_to[...] = function(*views)

    record_or_run(work)
    return target


def record_or_run(work: Any) -> None:
    """Run host work now, or at each replay of the capture that this thread records."""
    if not _core._record_call(work):
        work()

"""Converts any value, lists of arrays too, to a core array, to make an array from it or to assign it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import FLOAT32, NAMES, as_supported_dtype, dtype_from_id, dtype_id
from gpuinterop.arrays.numpy_views import (
    as_numpy_view,
    as_scalar,
    has_core_layout,
    refuse_mask,
    wrap_numpy,
)
from gpuinterop.arrays.scalars import (
    NUMBERS,
    is_scalar_or_list,
    scalars_to_array,
)
from gpuinterop.devices import resolve_device
from gpuinterop.errors import (
    ContiguityError,
    ConversionTypeError,
    CopyForbiddenError,
    DTypeError,
    ExportError,
    GpuInteropError,
    messages,
    type_name,
)
from gpuinterop.errors.context import reraise_from

from . import import_hook
from .protocols import has_array_method, protocols_of

A = TypeVar("A", bound=_core.Array)

_BFLOAT16 = NAMES.index("bfloat16")  # the last dtype with casts in the core


def check_cast(cls: Any, got: Any, where: str, value: Any = None) -> None:
    """Refuse a dtype that `cls` does not hold: `_only` is the only dtype of CudaNdarray.

    The fix casts `value` by the methods of its own library.
    """
    only = getattr(cls, "_only", None)
    if only is not None and got != only:
        library_of = import_module("gpuinterop.exchange.registry").library_of
        fixes = import_module("gpuinterop.exchange.suggested_fixes")
        cast = fixes.cast_line("gpuinterop" if value is None else library_of(value), only)
        raise messages.dtype_of_class(where, cls.__name__, only, got, cast)


def new_device_copy(
    cls: type[A],
    source: _core.Array,
    device: Any,
    where: str,
    values: bool = False,
    dtype: Any = None,
    fresh: bool = False,
) -> A:
    """Return a C-ordered copy of `source` as a `cls` on `device`; uncounted if made from scalars (`values`).

    Another `dtype` needs `may_cast_in_copy`. A `fresh` source has new memory, which becomes the copy's.
    """
    given, source = source, core_view(source)
    dtype = source.dtype if dtype is None else dtype
    check_cast(cls, dtype, where)
    target = resolve_device(device, where)
    fresh = fresh or (values and given.base is None)
    if fresh and target is source.device and _core._recording() is None:
        return _core.adopt(cls, given)
    made = _core.empty(cls, source.shape, dtype, target.type_code, target.index, where=where)
    if dtype != source.dtype:
        _core.copy_into(made, source, where=where, casts=True)
        return made
    # Filling elements of more than 4 bytes needs a kernel, so do it only if there is no other way.
    fills = values and (source.itemsize <= 4 or _core._recording() is not None)
    copy_values(made, source, where, values, fills)
    return made


def copy_values(
    target: _core.Array, source: _core.Array, where: str, values: bool, fills: bool = True
) -> None:
    """Copy `source`, uncounted if made from scalars (`values`): one scalar is filled in without a wait."""
    if values and fills and source.ndim == 0 and target.device.type != "cpu":
        target[...] = as_numpy_view(source, where)[()]
    else:
        _core.copy_into(
            target, source, where=where, uncounted=values and source.device.type == "cpu"
        )


def copy_of_value(
    class_for: Callable[[Any], type[A]], value: Any, dtype: Any, device: Any, where: str
) -> A:
    """Return a copy of `value`, of the class for its dtype; on the default device if `value` is on the host."""
    seen = _core._look_into(value, where)
    if seen is not None:
        held = seen.dtype if dtype is None else as_supported_dtype(dtype, where)
        check_cast(class_for(held), held, where)
    numbers = is_scalar_or_list(value)
    source = as_source(value, dtype, where)
    fresh = source.base is None and isinstance(value, np.ndarray)
    place = default_device_for(value, source) if device is None else device
    if dtype is None or numbers or fresh:
        cls = class_for(source.dtype)
        check_cast(cls, source.dtype, where, None if numbers else value)
        return new_device_copy(cls, source, place, where, numbers, fresh=fresh)
    wanted, target = as_supported_dtype(dtype, where), resolve_device(place, where)
    if not may_cast_in_copy(source, wanted, target):
        found, source = source, cast_from(value, source, wanted, where)
        if source is not found and source.base is None and target.type == "cpu":
            copy_tracking.report_copy("host", source.nbytes, where)
            return _core.adopt(class_for(wanted), source)
    return new_device_copy(class_for(wanted), source, target, where, dtype=wanted)


def _from_scalars(value: Any, dtype: Any, where: str, casts: bool | None = None) -> _core.Array:
    """Return a scalar or nested lists as an array: in host memory, unless all items are on one GPU."""
    stacked = _stacked(value, dtype, where)
    if stacked is not None:
        return stacked
    try:
        return wrap_numpy(scalars_to_array(value, dtype, where, casts=casts))
    except (GpuInteropError, MemoryError):
        raise
    except Exception as error:  # of an item's __array__
        _refuse_items(value, where)
        raise ConversionTypeError(
            where=where, expected="numbers, or nested lists of numbers",
            got=f"a list with an item that NumPy cannot read: {error}",
            fix="pass numbers, or join arrays: gpuinterop.stack(values)",
        ) from error  # fmt: skip


def _stacked(values: Any, dtype: Any, where: str) -> _core.Array | None:
    """Return a list of alike arrays on one GPU, in the dtype of the result, as an array there, or None."""
    if not isinstance(values, (list, tuple)) or not values:
        return None
    if not all(isinstance(x, _core.Array) for x in values):
        return None
    parts = [core_view(x) for x in values]
    first = parts[0]
    wanted = dtype_from_id(FLOAT32) if dtype is None else as_supported_dtype(dtype, where)
    alike = len({(x.shape, x.dtype, x.device) for x in parts}) == 1
    if not alike or first.dtype != wanted or first.device.type == "cpu":
        return None
    place = first.device.type_code, first.device.index
    made = _core.empty(_core.Array, (len(parts), *first.shape), wanted, *place, where=where)
    for i, x in enumerate(parts):
        _core.copy_into(made[i], x, where=where, uncounted=True)
    return made


def _refuse_items(values: Any, where: str) -> None:
    """Raise the error of the first item of nested lists that cannot be shared."""
    for item in values:
        if isinstance(item, (list, tuple)):
            _refuse_items(item, where)
        elif not is_scalar_or_list(item):
            as_input_array(item, None, where)


def may_cast_in_copy(source: _core.Array, dtype: np.dtype[Any], device: devices.Device) -> bool:
    """Return whether a copy to `device` can cast an array: on one device, with the core's loops or kernels."""
    return source.device is device and max(dtype_id(source.dtype), dtype_id(dtype)) <= _BFLOAT16


def default_device_for(value: Any, source: _core.Array) -> devices.Device:
    """Return the device of an array made from `value` without ``device=``.

    GPU data and gpuinterop arrays keep their device; other host data goes to the default device.
    """
    if source.device.type == "cpu" and not isinstance(value, _core.Array):
        return devices.default_device()
    return source.device


def new_full(
    cls: type[A] | None, shape: Any, value: Any, dtype: Any, device: Any, where: str = ""
) -> A:
    """Return an array filled with `value`, of the class of the dtype if `cls` is None."""
    if cls is not None:
        where = where or f"{cls.__name__}.zeros"
        check_cast(cls, as_supported_dtype(dtype, where), cls.__name__)
    target = devices.default_device() if device is None else resolve_device(device, where)
    place = target.type_code, target.index
    made: Any
    if type(value) in (bool, int, float):  # which need no reader of other values
        made = _core.full(cls, shape, value, dtype, *place, where)
    else:
        with reraise_from(where):
            made = _core.full(cls, shape, value, dtype, *place, where)
    found: A = made
    return found


def as_input_array(value: Any, dtype: Any, where: str, copyif: bool = True) -> _core.Array:
    """Return `value` as an array to read from, in `dtype` if given.

    A NumPy array shares memory or raises; other arrays without `copyif` too.
    """
    if _core.is_array(value):
        found = core_view(value)
    elif isinstance(value, np.ndarray) or (isinstance(value, np.generic) and dtype is None):
        shared = _share_numpy(value, where)
        if shared is None:
            engine = import_module("gpuinterop.exchange.engine")
            raise engine.plan_in(value, True, {}, where).plan.exception()
        found = shared
    elif isinstance(value, (*NUMBERS, np.generic)):
        return _from_scalars(value, dtype, where)
    else:
        found = _import(value, where, copyif)
    return cast_from(value, found, dtype, where)


def cast_from(value: Any, found: _core.Array, dtype: Any, where: str) -> _core.Array:
    """Return `found`, which was read from `value`, in another dtype.

    The value is not read again, because a capsule is consumed and other objects may change.
    """
    if dtype is None or found.dtype == as_supported_dtype(dtype, where):
        return found
    own = isinstance(value, _core.Array)
    with reraise_from(where):
        if found.device.type == "cpu" and not own and _core._recording() is not None:
            return wrap_numpy(as_numpy_view(found, where).astype(dtype))
        made: _core.Array = _core.Array.astype(value if own else found, dtype, order="C")
        return made


def _import(value: Any, where: str, copyif: bool) -> _core.Array:
    if isinstance(value, (str, dict, set)) or value is None:
        raise _unknown(value, where)
    try:
        return _core.import_any(_core.Array, value, where=where, realign=copyif)
    except ConversionTypeError:
        # Last, so that arrays that implement a protocol need no search for a converter.
        if needs_converter(value) or has_array_method(value):
            with reraise_from(where):
                return core_view(
                    import_module("gpuinterop.exchange.engine").import_array(value, copyif, {})
                )
        if isinstance(value, type) or protocols_of(value):
            raise
        raise _unknown(value, where) from None


def needs_converter(value: Any) -> bool:
    """Return whether `value` implements no protocol, but a converter accepts it, as for gnumpy and plug-ins."""
    if value is None or isinstance(value, (str, list, tuple, dict, set, type)):
        return False
    found = import_module("gpuinterop.exchange.registry").find_backend(value)
    return found is not None and not protocols_of(value)


def torch_function(
    cls: type, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """Implement `__torch_function__` of the array classes, whose arrays torch accepts as tensors."""
    torch = import_module("gpuinterop.exchange.registry").built_in("torch")
    return torch.call_with_tensors(func, args, kwargs or {})


def register_collate() -> None:
    """Let `torch.utils.data.default_collate` stack arrays, for which torch has a table and no protocol."""
    collate = sys.modules["torch.utils.data._utils.collate"]
    getattr(collate, "default_collate_fn_map", {})[_core.Array] = _collate  # torch 1 has no table


def _collate(batch: Any, *, collate_fn_map: Any) -> Any:
    torch = import_module("gpuinterop.exchange.registry").built_in("torch")
    return torch.collate(batch, collate_fn_map)


import_hook.after_import("torch.utils.data._utils.collate", register_collate)


def as_source(value: Any, dtype: Any, where: str, copy: bool | None = None) -> _core.Array:
    """Return the array of which a new one is made: `value`, or a copy if it cannot be shared and `copy` is None.

    Scalars and lists, and copies of NumPy arrays, are in `dtype` if given.
    """
    if is_scalar_or_list(value):
        return as_input_array(value, dtype, where)
    if isinstance(value, np.ndarray):
        found = _share_numpy(value, where)
        return _copy_by_plan(value, dtype, where, copy) if found is None else found
    try:
        return as_input_array(value, None, where, copyif=copy is None)
    except (ContiguityError, DTypeError, ExportError) as error:
        if error.reason == ExportError.reason:  # no copy can read it
            raise
        return _copy_by_plan(value, None, where, copy, error)


def _copy_by_plan(
    value: Any, dtype: Any, where: str, copy: bool | None, error: GpuInteropError | None = None
) -> _core.Array:
    """Return the copy that the conversion engine plans, of a NumPy array in `dtype` if given, or raise."""
    engine = import_module("gpuinterop.exchange.engine")
    incoming = engine.plan_in(value, True, {}, where)
    plan = incoming.plan
    if not plan.copied:
        raise error or plan.exception()
    if copy is not None:
        raise CopyForbiddenError(where=where, expected=plan.reason, got=plan.got,
                                 fix="pass copy=None to allow a copy")  # fmt: skip
    if dtype is not None:
        name = as_supported_dtype(dtype, where).name
        incoming.known_info = replace(incoming.info, dtype=name)
    made: _core.Array = engine.adopt(incoming)
    return made


def _share_numpy(value: Any, where: str) -> _core.Array | None:
    """Return an array over the memory of a NumPy array or scalar, None if it cannot be shared."""
    found = _core.share_ordinary(value)  # None unless this is an ordinary array
    if found is not None:
        return found
    refuse_mask(value, where)
    host = np.asarray(value)
    return wrap_numpy(host) if has_core_layout(host) else None


def as_assigned_array(value: Any, target: _core.Array, cls: type, where: str) -> _core.Array:
    """Return the array that ``x[key] = value`` assigns, in the target's dtype unless the copy can cast.

    Python and NumPy scalars and 0-d NumPy arrays are converted. Other arrays, alone or in a list, must have
    the dtype if the target is a `CudaNdarray`; a `GpuArray` casts, as NumPy does.
    """
    dtype, value = target.dtype, as_scalar(value, where)
    if isinstance(value, (*NUMBERS, np.generic)):
        return _from_scalars(value, dtype, where, not hasattr(cls, "_only"))
    try:
        seen = _core._look_into(value, where)
        if seen is not None and seen.dtype != dtype:
            check_cast(cls, seen.dtype, where)
        found = as_source(value, None, where)
        if found.dtype == dtype:
            return found
        check_cast(cls, found.dtype, where, value)
        if may_cast_in_copy(found, dtype, target.device):
            return found
        return cast_from(value, found, dtype, where)
    except GpuInteropError as error:
        # In other fixes x is the converted value; in an assignment it is the target.
        fix = re.sub(r"\bx\b(?=[.,)])", "value", error.fix)
        raise error.changed(fix=fix) from None


def _unknown(value: Any, where: str) -> ConversionTypeError:
    """Return the error for an object that is neither an array nor a scalar."""
    return ConversionTypeError(
        where=where,
        expected="a number, nested lists of numbers, or an array that implements DLPack, the CUDA "
        "Array Interface, NumPy's array interface or the buffer protocol",
        got=type_name(value),
        fix="pass numbers, or an array of them",
    )

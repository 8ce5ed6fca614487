"""`__torch_function__`: torch's functions and operators accept gpuinterop arrays as tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.errors.messages import out_shape_differs

_IN_PLACE = re.compile(r"[^_]_$")  # names of torch's functions that write to their first argument


def call_with_tensors(
    to_torch: Callable[..., Any],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call torch's function `func` with tensors that share the memory of gpuinterop arrays.

    The result is torch's: tensors, even if an array was passed as ``out=``.
    """
    tensors: list[Any] = []
    given, first = _items(kwargs.get("out")), args[0] if args else None
    try:
        args, kwargs = (
            _replace_arrays(args, to_torch, tensors),
            _replace_arrays(kwargs, to_torch, tensors),
        )
    except errors.GpuInteropError as error:
        raise _refusal(error, func, "out" in kwargs) from None
    # The array is in an unknown kind of container, so torch would call this function again.
    if not tensors:
        return NotImplemented
    if isinstance(first, _core.Array) and (
        _IN_PLACE.search(func.__name__) or kwargs.get("inplace")
    ):
        _core._prepare_write(first, _name_of(func))
    pairs = zip(given, _items(kwargs.get("out")), strict=True)
    outs = [(array, tensor) for array, tensor in pairs if isinstance(array, _core.Array)]
    return _call_with_outputs(func, args, kwargs, outs) if outs else func(*args, **kwargs)


def _name_of(func: Callable[..., Any]) -> str:
    from torch.overrides import resolve_name

    return resolve_name(func) or "torch"


def _items(out: Any) -> Any:
    return out if isinstance(out, (tuple, list)) else (out,)


def _call_with_outputs(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[Any]
) -> Any:
    """Call `func`, which writes to the tensors of `outs`, pairs of an array and its tensor.

    If the result has another shape, torch gives it to the tensor, and writes to the start of its storage. So
    a tensor that skips elements of its storage has a contiguous copy as storage during the call.
    """
    where = _name_of(func)
    for array, _ in outs:
        _core._prepare_write(array, where)
    views = [tensor.detach() for _, tensor in outs]
    for _, tensor in outs:
        if tensor.untyped_storage().nbytes() != tensor.nbytes:
            tensor.set_(tensor.contiguous())
    try:
        result = func(*args, **kwargs)
    finally:
        for array, tensor in outs:
            if tensor.shape != array.shape:
                raise out_shape_differs(where, tuple(tensor.shape), array.shape) from None
    for (_, tensor), view in zip(outs, views, strict=True):
        if tensor.data_ptr() != view.data_ptr():
            tensor.set_(view.copy_(tensor))
    return result


def _replace_arrays(value: Any, to_torch: Callable[..., Any], tensors: list[Any]) -> Any:
    """Return `value` with a tensor for each gpuinterop array in it, and collect the tensors."""
    if isinstance(value, _core.Array):
        tensors.append(to_torch(value))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _replace_arrays(item, to_torch, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_arrays(item, to_torch, tensors) for item in value]
    if isinstance(value, tuple):
        items = [_replace_arrays(item, to_torch, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _refusal(
    error: errors.GpuInteropError, func: Callable[..., Any], has_out: bool
) -> errors.GpuInteropError:
    """Return the error of `to_torch` as an error of the torch function that the user called.

    Torch's operators turn a TypeError into NotImplemented. Python would then call the array's own
    operator, and `t -= x` would rebind `t`; so the result is never a TypeError.
    """
    fix = "pass a copy: x.copy()" if error.reason in ("strides", "readonly") else error.fix
    if has_out and error.reason == "strides":
        fix += ", and for out= copy the result back: x[...] = y"
    return (errors.ExportError if isinstance(error, TypeError) else type(error))(
        where=_name_of(func), expected=error.expected, got=error.got, fix=fix,
        reason=error.reason, axis=error.axis,
    )  # fmt: skip

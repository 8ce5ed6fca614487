"""`__torch_function__`: torch's functions and operators take gpuinterop arrays as tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuinterop import _core
from gpuinterop.converters.torch import to_torch
from gpuinterop.errors import ExportError, GpuInteropError

__all__ = ["call_with_tensors"]


def call_with_tensors(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call torch's function `func` with tensors that share the memory of gpuinterop arrays.

    The result is torch's: tensors, also where an array was passed as ``out=``.
    """
    tensors: list[Any] = []
    try:
        args, kwargs = _replace_arrays(args, tensors), _replace_arrays(kwargs, tensors)
    except GpuInteropError as error:
        raise _refusal(error, func) from None
    if not tensors:  # an array in a container of an unknown kind: torch would call this again
        return NotImplemented
    return func(*args, **kwargs)


def _replace_arrays(value: Any, tensors: list[Any]) -> Any:
    """Return `value` with a tensor for each gpuinterop array in it, and collect the tensors."""
    if isinstance(value, _core.Array):
        tensors.append(to_torch(value))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _replace_arrays(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_arrays(item, tensors) for item in value]
    if isinstance(value, tuple):
        items = [_replace_arrays(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _refusal(error: GpuInteropError, func: Callable[..., Any]) -> GpuInteropError:
    """Return the error of `to_torch` as an error of the torch function that the user called.

    Torch's operators turn a TypeError into NotImplemented. Python would then call the array's own
    operator, and `t -= x` would rebind `t`; so the result is never a TypeError.
    """
    from torch.overrides import resolve_name

    fix = "pass a copy: x.copy()" if error.reason in ("strides", "readonly") else error.fix
    return (ExportError if isinstance(error, TypeError) else type(error))(
        where=resolve_name(func) or "torch", expected=error.expected, got=error.got, fix=fix,
        reason=error.reason, axis=error.axis,
    )  # fmt: skip

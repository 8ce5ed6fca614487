"""PyTorch: any layout without negative strides, on the host and on CUDA.

The ordinary case goes through torch's DLPack C exchange table. That table ends the process on a negative stride.
`RULES` declare that torch has none, and `plan_layout` of exchange/plan.py refuses it. The table also ignores
autograd, conjugation, negation and fake tensors, so the converter checks these first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core, converters, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.devices import Device
from gpuinterop.errors.messages import out_shape_differs
from gpuinterop.exchange import registry
from gpuinterop.exchange.plan import (
    ArrayInfo,
    Plan,
    Rules,
    copy_needed,
    plan_layout,
    refuse,
    refuse_object,
)

ARRAY = "a torch.Tensor"
STREAM = "torch's current stream"

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu".split()
)
RULES = Rules("torch", "to_torch", _DTYPES, negative=False)
FAMILY = _core.TORCH
TABLE = "Tensor"


def plan_to(info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan a conversion to torch, whose devices depend on its build."""
    torch = registry.load_or_none("torch") if info.device == "cuda" else None
    if torch is not None and not torch.version.cuda:
        return refuse(
            "torch", "to_torch", errors.DeviceMismatchError,
            f"a torch that has arrays on {info.device_name}",
            f"torch {torch.__version__}, built without CUDA",
            "install a CUDA build of torch, or move the array: x.to_device('cpu')",
        )  # fmt: skip
    return plan_layout(info, RULES, allow_readonly)


def export(x: Any, torch: Any) -> Any:
    """Return a tensor over the memory of `x`, ordered on torch's current stream."""
    source: Any = _core.writable_alias(x) if x.readonly else x
    try:
        return _core.export_via(source, torch.Tensor)
    except errors.ExportError:  # a torch before 2.10
        return torch.from_dlpack(source)


def describe(t: Any) -> ArrayInfo:
    """Describe a tensor."""
    itemsize = t.element_size()
    device = t.device
    return ArrayInfo(
        tuple(t.shape), tuple(s * itemsize for s in t.stride()), _dtype_of(t), itemsize,
        device.type, device.index or 0, t.data_ptr(), library="torch",
    )  # fmt: skip


def _dtype_of(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


def adopt(t: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the memory of a tensor, or a copy of it."""
    if plan.shared:
        return _core.import_any(None, t)
    copy_tracking.report_copy(plan.crosses, plan.bytes, plan.where)
    # A clone has no pending sign, and in this format C strides.
    return _core.import_any(None, t.clone(memory_format=sys.modules["torch"].contiguous_format))


def _has_no_memory(t: Any) -> bool:
    # Subclasses with a dispatch of their own (FakeTensor, DTensor), tensors inside vmap or grad, lazy parameters.
    torch = sys.modules["torch"]
    disabled = torch._C._disabled_torch_dispatch_impl
    return (
        getattr(type(t), "__torch_dispatch__", disabled) is not disabled
        or torch._C._functorch.is_functorch_wrapped_tensor(t)
        or torch.nn.parameter.is_lazy(t)
    )


# In this order, because a tensor that meets one condition may fail to answer the next.
_REFUSALS: tuple[Any, ...] = (  # a condition, and what `refuse_object` takes
    (
        _has_no_memory, errors.ConversionTypeError, "", "a tensor with memory of its own",
        "{0.__class__.__module__}.{0.__class__.__qualname__}, a wrapper around other tensors or none",
        "pass the tensor inside, or convert outside of vmap, grad, FakeTensorMode and torch.compile",
    ),
    (
        lambda t: t.is_nested, errors.ExportError, "", "a dense strided tensor", "a nested tensor of {0.dtype}",
        "pass the parts one by one: t.unbind()",
    ),
    (
        lambda t: t.is_quantized, errors.ExportError, "", "a dense strided tensor", "a tensor of {0.dtype}",
        "pass t.dequantize()",
    ),
    (
        lambda t: str(t.layout) != "torch.strided", errors.ExportError, "", "a dense strided tensor",
        "{0.dtype}, {0.layout}", "pass t.to_dense()",
    ),
    (
        lambda t: _dtype_of(t) not in _DTYPES, errors.DTypeError, "",
        "a dtype whose elements are whole bytes of plain memory", "a tensor of dtype {0.dtype}",
        "pass the bytes: t.view(torch.uint8)",
    ),
    (
        lambda t: t.is_meta, errors.DeviceMismatchError, "", "a tensor on cpu or cuda",
        "a tensor on meta, which has no values", "create it on a device: torch.empty_like(t, device='cpu')",
    ),
    (
        lambda t: t.device.type not in ("cpu", "cuda"), errors.DeviceMismatchError, "", "a tensor on cpu or cuda",
        "a tensor on {0.device}", "move it first: t.to('cpu')",
    ),
    (
        lambda t: t.requires_grad, errors.ExportError, "grad",
        "a tensor outside autograd, because autograd does not record writes through gpuinterop",
        "a tensor with requires_grad=True", "pass t.detach()",
    ),
    (
        lambda t: t.numel() and not t.data_ptr(), errors.ExchangeError, "memory", "a tensor with memory",
        "a tensor of shape {0.shape} without storage", "convert it while its storage is allocated",
    ),
)  # fmt: skip


def judge(t: Any) -> Plan | None:
    """Return the plan for a tensor whose memory does not hold its values, None for an ordinary tensor."""
    for condition, *error in _REFUSALS:
        if condition(t):
            return refuse_object(t, "from_torch", *error)
    if not (t.is_conj() or t.is_neg()):
        return None
    call = "resolve_conj" if t.is_conj() else "resolve_neg"
    return copy_needed(
        "gpuinterop", "from_torch", describe(t), errors.ExportError,
        f"a tensor without pending {call[8:]}, so that its memory holds its values",
        f"a tensor with is_{call[8:]}() true", f"pass t.{call}()", code="lazy",
    )  # fmt: skip


# ---- __torch_function__: torch's functions and operators accept gpuinterop arrays as tensors ----


_IN_PLACE = re.compile(r"[^_]_$")  # names of torch's functions that write to their first argument


def call_with_tensors(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call torch's function `func` with tensors that share the memory of gpuinterop arrays.

    The result is torch's: tensors, even if an array was passed as ``out=``.
    """
    to_torch = converters.to_torch
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


def collate(batch: list[Any], functions: dict[Any, Callable[..., Any]]) -> Any:
    """Stack a batch of arrays as torch stacks tensors: in a worker of a `DataLoader`, in memory that it shares."""
    tensors = [converters.to(x, "torch", copyif=True) for x in batch]
    return functions[sys.modules["torch"].Tensor](tensors, collate_fn_map=functions)


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


def as_argument(value: Any) -> Any:
    """Return an argument of a borrowed function that is no array: a dtype or a device in torch's own class."""
    torch = sys.modules["torch"]
    if isinstance(value, Device):
        return torch.device(str(value))
    return getattr(torch, value.name, value) if isinstance(value, np.dtype) else value

"""PyTorch: any layout without negative strides, on the host and on CUDA.

The ordinary case goes through torch's DLPack C exchange table. That table ignores autograd, conjugation,
negation and fake tensors, and it ends the process on a negative stride, so the converter checks these first.
"""

from __future__ import annotations

import sys
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.exchange import registry
from gpuinterop.exchange.foreign_memory import refusal_of
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, copy_needed, plan_layout, refuse

ARRAY = "a torch.Tensor"
STREAM = "torch's current stream"

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu".split()
)
RULES = Rules("torch", "to_torch", _DTYPES, negative=False)


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
    _core._set_exporter("torch", bool(_core.traits(x) & _core.ON_CUDA), torch.Tensor)
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
    plain = torch._C._disabled_torch_dispatch_impl
    return (
        getattr(type(t), "__torch_dispatch__", plain) is not plain
        or torch._C._functorch.is_functorch_wrapped_tensor(t)
        or torch.nn.parameter.is_lazy(t)
    )


# In this order, because a tensor that meets one condition may fail to answer the next.
_REFUSALS = (
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
    """Return the plan for a tensor whose memory does not hold its values, None for a plain tensor."""
    refused = refusal_of(t, "from_torch", _REFUSALS)
    if refused is not None or not (t.is_conj() or t.is_neg()):
        return refused
    call = "resolve_conj" if t.is_conj() else "resolve_neg"
    return copy_needed(
        "gpuinterop", "from_torch", describe(t), errors.ExportError,
        f"a tensor without pending {call[8:]}, so that its memory holds its values",
        f"a tensor with is_{call[8:]}() true", f"pass t.{call}()", code="lazy",
    )  # fmt: skip

"""PyTorch: any layout without negative strides, on the host and on CUDA.

The ordinary case goes through torch's DLPack C exchange table. That table ignores autograd, conjugation,
negation and fake tensors, and it ends the process on a negative stride, so these are judged first.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters.foreign_layout import LEGACY
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, copy_needed, plan_layout, refuse
from gpuinterop.foreign_handles import loaded_module

__all__ = [
    "RULES",
    "adopt",
    "call_with_tensors",
    "describe",
    "export",
    "judge",
    "plan_to",
    "stream_used_by",
]

ARRAY = "a torch.Tensor"
STREAM = "torch's current stream"

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu".split()
)
# Of 1 to 7 bits, for which torch stores whole bytes but defines no operations.
_PART_BYTES = frozenset(
    "torch.int1 torch.int2 torch.int3 torch.int4 torch.int5 torch.int6 torch.int7 torch.uint1 "
    "torch.uint2 torch.uint3 torch.uint4 torch.uint5 torch.uint6 torch.uint7".split()
)
RULES = Rules("torch", "to_torch", _DTYPES, negative=False)


def _without_cuda() -> str:
    """Return why this torch has no CUDA, or "" when it does, without importing torch."""
    torch = loaded_module("torch")
    if torch is not None:
        version, cuda = torch.__version__, torch.version.cuda
        return "" if cuda else f"torch {version}, built without CUDA"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return f"torch {version}, built without CUDA" if version.endswith("+cpu") else ""


def plan_to(info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan a conversion to torch, whose devices depend on its build."""
    without = _without_cuda() if info.device == "cuda" else ""
    if without:
        return refuse(
            "torch", "to_torch", errors.DeviceMismatchError,
            f"a torch that has arrays on {info.where}", without,
            "install a CUDA build of torch, or move the array: x.to_device('cpu')",
        )  # fmt: skip
    return plan_layout(info, RULES, allow_readonly)


def export(x: Any, torch: Any) -> Any:
    """Return a tensor over the memory of `x`, ordered on torch's current stream."""
    _core._set_exporter("torch", bool(_core.traits(x) & _core.ON_CUDA), torch.Tensor)
    if x.readonly:
        x = _core.writable_alias(x)
    try:
        return _core.export_via(x, torch.Tensor)
    except errors.ExportError:  # a torch before 2.10
        return torch.from_dlpack(x)


def stream_used_by(index: int, obj: Any = None) -> int:
    """Return the handle of the stream on which the library uses memory."""
    torch: Any = sys.modules["torch"]
    return int(torch.cuda.current_stream(index).cuda_stream) or LEGACY


def describe(t: Any) -> ArrayInfo:
    """Describe a tensor."""
    itemsize = t.element_size()
    device = t.device
    fake = type(t).__name__ == "FakeTensor"  # it warns that it has no address, and returns 0
    return ArrayInfo(
        tuple(t.shape),
        tuple(s * itemsize for s in t.stride()),
        str(t.dtype).removeprefix("torch."),
        itemsize,
        device.type,
        device.index or 0,
        0 if fake else t.data_ptr(),
        library="torch",
    )


def adopt(t: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the memory of a tensor, or a copy of it."""
    if plan.shared:
        return _core.import_any(None, t)
    copy_tracking.report_copy(plan.crosses, plan.bytes, plan.where)
    # A clone has no pending sign, and in this format C strides.
    return _core.import_any(None, t.clone(memory_format=sys.modules["torch"].contiguous_format))


_NESTED = "pass t.to_padded_tensor(0.0), or its parts one by one: t.unbind()"


def _only_pretends(torch: Any) -> bool:
    """Whether what torch computes now has no values."""
    current = getattr(torch.utils._python_dispatch, "_get_current_dispatch_mode", None)
    return current is not None and type(current()).__name__ == "FakeTensorMode"


def _negates(torch: Any, t: Any) -> bool:
    """Whether torch has a negation for the dtype of `t`, where `t` is."""
    try:
        torch.zeros(1, dtype=t.dtype, device=t.device).neg()
    except RuntimeError:  # NotImplementedError is one
        return False
    return True


def judge(t: Any) -> Plan | None:
    """Return the plan for a tensor whose memory is not simply its values, None for a plain tensor."""
    torch = sys.modules["torch"]

    def no(
        error: type[errors.GpuInteropError], reason: str, got: str, fix: str, code: str = ""
    ) -> Plan:
        return refuse("gpuinterop", "from_torch", error, reason, got, fix, code=code)

    cls = type(t)
    name = f"{cls.__module__}.{cls.__qualname__}"
    plain = torch._C._disabled_torch_dispatch_impl
    if getattr(cls, "__torch_dispatch__", plain) is not plain:
        fix = "pass the tensor inside, for example t.to_local() of a DTensor"
        if cls.__name__ == "FakeTensor":
            fix = "convert outside FakeTensorMode, torch.export and torch.compile"
        elif t.is_nested:
            fix = _NESTED
        return no(
            errors.ConversionTypeError,
            "a tensor with memory of its own",
            f"{name}, a wrapper around other tensors or none",
            fix,
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(t):
        return no(
            errors.ConversionTypeError,
            "a tensor with memory of its own",
            f"{name} inside vmap or grad",
            "convert outside the transformed function",
        )
    if torch.nn.parameter.is_lazy(t):
        return no(
            errors.ExchangeError,
            "a tensor with memory",
            f"{name}, whose shape is not known yet",
            "materialize it first, or run its module once",
            "memory",
        )
    if t.is_nested:
        return no(errors.ExportError, "a dense strided tensor", "a nested tensor", _NESTED)
    if t.layout is not torch.strided or t.is_quantized:
        what = "quantized" if t.is_quantized else str(t.layout).removeprefix("torch.")
        return no(
            errors.ExportError,
            "a dense strided tensor",
            f"a {what} tensor",
            "pass t.dequantize()" if t.is_quantized else "pass t.to_dense(), or its parts",
        )
    if t.dtype.itemsize == 1 and str(t.dtype) in _PART_BYTES:
        return no(
            errors.DTypeError,
            "a dtype whose elements are whole bytes of plain memory",
            f"a torch tensor of dtype {t.dtype}",
            "pass the bytes: t.view(torch.uint8), or make the tensor of torch.int8",
            "dtype",
        )
    if t.device.type not in ("cpu", "cuda") or (t.is_cuda and torch.version.cuda is None):
        return no(
            errors.DeviceMismatchError,
            "a tensor on cpu or cuda",
            f"a tensor on {t.device}",
            "create it on a real device: torch.empty_like(t, device='cpu')"
            if t.is_meta
            else "move it first: t.to('cpu') or t.to('cuda')",
        )
    if t.requires_grad:
        return no(
            errors.ExportError,
            "a tensor outside autograd, because autograd does not record writes through gpuinterop",
            "a tensor with requires_grad=True",
            "pass t.detach()",
            "grad",
        )
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(t).tangent is not None:
        return no(
            errors.ExportError,
            "a tensor without a tangent, which no other library carries on",
            "a dual tensor of torch.autograd.forward_ad",
            "pass torch.autograd.forward_ad.unpack_dual(t).primal, or t.detach()",
            "grad",
        )
    if t.numel() and t.data_ptr() == 0:
        return no(
            errors.ExchangeError,
            "a tensor with memory",
            f"{name} of shape {tuple(t.shape)} without storage",
            "convert it while its storage is allocated",
            "memory",
        )
    for bit, call in ((t.is_conj(), "resolve_conj"), (t.is_neg(), "resolve_neg")):
        if bit and _only_pretends(torch):
            return no(
                errors.ConversionTypeError,
                "a mode in which torch copies values",
                f"a tensor with is_{call[8:]}() true, inside FakeTensorMode",
                "convert outside FakeTensorMode, torch.export and torch.compile",
            )
        if bit and call == "resolve_neg" and not _negates(torch, t):
            return no(
                errors.DTypeError,
                "a dtype that torch can negate; negation is pending on this tensor",
                f"a tensor of dtype {t.dtype} with is_neg() true",
                "pass torch._neg_view(t), which takes the mark away, and negate the values yourself",
            )
        if bit:
            return copy_needed(
                "gpuinterop",
                "from_torch",
                describe(t),
                errors.ExportError,
                f"elements as they are stored; {call[8:]} is pending on this tensor",
                f"a tensor with is_{call[8:]}() true",
                f"pass t.{call}()",
                code="lazy",
            )
    return None


# ---- `__torch_function__`: torch's functions and operators accept gpuinterop arrays as tensors ----


def call_with_tensors(
    to_torch: Callable[..., Any],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call torch's function `func` with tensors that share the memory of gpuinterop arrays.

    The result is torch's: tensors, also where an array was passed as ``out=``.
    """
    tensors: list[Any] = []
    try:
        args, kwargs = (
            _replace_arrays(args, to_torch, tensors),
            _replace_arrays(kwargs, to_torch, tensors),
        )
    except errors.GpuInteropError as error:
        raise _refusal(error, func) from None
    if not tensors:  # an array in a container of an unknown kind: torch would call this again
        return NotImplemented
    return func(*args, **kwargs)


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


def _refusal(error: errors.GpuInteropError, func: Callable[..., Any]) -> errors.GpuInteropError:
    """Return the error of `to_torch` as an error of the torch function that the user called.

    Torch's operators turn a TypeError into NotImplemented. Python would then call the array's own
    operator, and `t -= x` would rebind `t`; so the result is never a TypeError.
    """
    from torch.overrides import resolve_name

    fix = "pass a copy: x.copy()" if error.reason in ("strides", "readonly") else error.fix
    return (errors.ExportError if isinstance(error, TypeError) else type(error))(
        where=resolve_name(func) or "torch", expected=error.expected, got=error.got, fix=fix,
        reason=error.reason, axis=error.axis,
    )  # fmt: skip

"""tvm-ffi: every layout is shared, in and out."""

from __future__ import annotations

from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import checks, registry
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_from_error, plan_layout, refuse
from gpuinterop.dtypes import NAMES, SUB_BYTE_NAMES, dtype_from_id, dtype_id
from gpuinterop.foreign_handles import CUDA, DLPACK
from gpuinterop.layout import core_view
from gpuinterop.option_values import require_bool

__all__ = ["describe", "from_tvm_ffi", "plan_from", "plan_to", "to_tvm_ffi", "stream_used_by"]

# A tensor of complex numbers can be made, but not asked for its dtype; the old DLPack struct that is
# asked for cannot say that parts of a byte are padded.
_DTYPES = frozenset(n for n in NAMES if not n.startswith("complex") and n not in SUB_BYTE_NAMES)
_TO = Rules("tvm_ffi", "to_tvm_ffi", _DTYPES)
_DEVICES = {code: "cuda" if plain == CUDA else "cpu" for code, plain in DLPACK.items()}


def plan_to(x: Any, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan `to_tvm_ffi`: what explain() shows and the converter carries out."""
    return plan_layout(checks.describe_array(x), _TO, copyif, allow_readonly)


def _stream(tvm_ffi: Any, index: int) -> int:
    return int(tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", index)) or checks.LEGACY)


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    return _stream(registry.load("tvm_ffi", "to_tvm_ffi"), index)


def to_tvm_ffi(x: Any, copyif: bool = False, *, allow_readonly: bool = False) -> Any:
    """Return a tvm_ffi.Tensor over the memory of `x`.

    Shares every layout and keeps the memory alive; ready on the stream that tvm-ffi calls current.
    Its tensors know no read-only mark: ``copyif=True`` or ``allow_readonly=True``.
    """
    checks.require_array(x, "to_tvm_ffi")
    plan = plan_to(x, copyif, allow_readonly)
    tvm_ffi = checks.library_for(plan, "tvm_ffi")
    x = checks.execute_export(x, plan)
    place = core_view(x).device
    if place.type == "cuda":
        _core.hand_over(x, _stream(tvm_ffi, place.index), "to_tvm_ffi")
    return tvm_ffi.from_dlpack(_core.writable_alias(x) if x.readonly else x)


def describe(t: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    try:
        name = str(t.dtype)
        dtype = dtype_from_id(dtype_id(name))
    except ValueError:
        name = ""  # tvm-ffi has no name for the type (complex); the struct itself does
    if not name or name in SUB_BYTE_NAMES:  # of parts of a byte the struct tells how they lie
        return checks.describe_array(checks.imported(t))
    strides = tuple(s * dtype.itemsize for s in t.strides)
    kind, index = t.__dlpack_device__()
    return ArrayInfo(
        tuple(t.shape), strides, dtype.name, dtype.itemsize, _DEVICES.get(int(kind), str(kind)),
        int(index), t.data_ptr() if t.numel() else 0, library="tvm_ffi",
    )  # fmt: skip


def plan_from(t: Any, copyif: bool = False) -> Plan:
    """Plan `from_tvm_ffi`: what explain() shows and the converter carries out."""
    where = "from_tvm_ffi"
    kind, index = map(int, t.__dlpack_device__())
    if kind not in _DEVICES:
        return refuse(
            "gpuinterop", where, errors.DeviceMismatchError, "a tensor on cpu or cuda",
            f"a tensor on {t.device} (DLPack device {kind}:{index})",
            "copy it to the host with the library that made it, and pass that",
        )  # fmt: skip
    try:
        checks.imported(t)
    except errors.GpuInteropError as e:
        # What the struct says, of its address or extents, may be malformed; a copy mends strides.
        fault = plan_from_error(e, "gpuinterop", where)
        if not isinstance(e, errors.ContiguityError):
            return fault
        plan = checks.plan_own(describe(t), where, copyif)
        return fault if plan.shared else plan
    return checks.plan_own(describe(t), where, copyif)


def from_tvm_ffi(t: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of the tvm_ffi.Tensor `t`.

    Shares every layout and keeps the memory alive. tvm-ffi orders no streams by itself, so the first
    use here waits for the one that it calls current.
    """
    copyif = require_bool(copyif, "copyif", "from_tvm_ffi")
    checks.require_foreign(t, "tvm_ffi", "from_tvm_ffi", "a tvm_ffi.Tensor")
    try:
        x = checks.imported(t)
    except errors.GpuInteropError:
        plan = plan_from(t, copyif)
        if plan.refused:
            raise plan.exception() from None
        facts = describe(t)
        tvm_ffi = registry.load("tvm_ffi", "from_tvm_ffi")
        stream = _stream(tvm_ffi, facts.index) if facts.device == "cuda" else checks.LEGACY
        return checks.execute_import(plan, facts, t, stream=stream)
    if x.device.type == "cuda":
        tvm_ffi = registry.load("tvm_ffi", "from_tvm_ffi")
        _core.after_stream(x, _stream(tvm_ffi, x.device.index), "from_tvm_ffi")
    return x

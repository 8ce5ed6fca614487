"""JAX: dense memory in any order of the axes is shared; its arrays are immutable, so ours are read-only.

JAX copies silently when host memory is not aligned to 64 bytes, and narrows 64-bit values when
``jax_enable_x64`` is off, even when told not to copy; both are settled here before it is asked.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, c_strides, plan_layout, refuse
from gpuinterop.converters.remedies import remedy_cast
from gpuinterop.foreign_handles import loaded_module
from gpuinterop.option_values import require_bool

__all__ = ["describe", "from_jax", "judge", "plan_from", "plan_to", "to_jax", "stream_used_by"]

_MASK = _core.C_CONTIGUOUS | _core.ON_CUDA | _core.EMPTY | _core.IS_FLOAT32
_PLAIN = _core.C_CONTIGUOUS | _core.IS_FLOAT32

_WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_DTYPES = frozenset(
    "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 float8_e3m4 "
    "float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu".split()
)
# On the host XLA copies what is not aligned to 64 bytes; on a GPU its kernels load up to 16 bytes at
# once from a buffer's start.
_TO = Rules(
    "jax",
    "to_jax",
    _DTYPES,
    layout="compact",
    negative=False,
    readonly=True,
    alignment=64,
    device_alignment=16,
)
_TO_WIDE = replace(_TO, dtypes=_DTYPES | frozenset(_WIDE))


def _x64() -> bool:
    jax = loaded_module("jax")
    if jax is not None:
        return bool(jax.config.jax_enable_x64)
    return os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "t", "yes", "y", "on")


def _without_cuda() -> str:
    """Why this JAX has no CUDA, or "" when it does. JAX is not started to know."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    jax = loaded_module("jax")
    if jax is not None:
        platforms = jax.config.jax_platforms or platforms
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return f"jax_platforms is {platforms!r}"
    plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin")
    if not any(importlib.util.find_spec(p) for p in plugins):
        return "a JAX without its CUDA plug-in"
    return ""


def plan_to(x: Any, copyif: bool = False) -> Plan:
    """Plan `to_jax`: what explain() shows and the converter carries out."""
    return plan_facts(checks.describe_array(x), copyif)


def plan_facts(facts: ArrayInfo, copyif: bool) -> Plan:
    """Plan `to_jax` for an array that is only described."""
    if facts.device == "cuda":
        without = _without_cuda()
        if without:
            return refuse(
                "jax", "to_jax", errors.DeviceMismatchError,
                f"a JAX that has arrays on {facts.where}", without,
                "pip install jax[cuda13], or move the array: x.to_device('cpu')",
            )  # fmt: skip
    wide = facts.dtype in _WIDE
    if wide and not _x64():
        return refuse(
            "jax", "to_jax", errors.DTypeError,
            f"a dtype that JAX keeps; it would narrow {facts.dtype} to {_WIDE[facts.dtype]} silently",
            f"dtype {facts.dtype} while jax_enable_x64 is off",
            f"jax.config.update('jax_enable_x64', True), or narrow it yourself: "
            f"{remedy_cast(facts, _WIDE[facts.dtype])}",
        )  # fmt: skip
    return plan_layout(facts, _TO_WIDE if wide else _TO, copyif)


_complete: Any = None  # the module, once its import is known to have ended


def to_jax(x: Any, copyif: bool = False) -> Any:
    """Return a jax.Array over the memory of `x`.

    Shares memory that is dense in some order of the axes, and aligned to 64 bytes on the host; JAX
    waits for what is queued on it, and keeps it alive. JAX takes its arrays for immutable: do not
    write to `x` while the result is in use. Do not donate the result either (``donate_argnums``), or
    XLA puts its own results into the memory of `x`, read-only or not. Nothing is narrowed: 64-bit dtypes raise unless
    ``jax_enable_x64`` is on.

    Raises
    ------
    ContiguityError
        Strides or alignment forbid sharing and `copyif` is false.
    """
    global _complete
    copyif = require_bool(copyif, "copyif", "to_jax")
    jax = sys.modules.get("jax")
    quick = jax is not None and jax is _complete and isinstance(x, _core.Array)
    bits = _core.traits(x) if quick else 0
    if jax is not None and bits & _MASK == _PLAIN and (bits & _core.ALIGNED64 or copyif):
        # What most arrays are, decided without a plan.
        _core._require_values("to_jax", x)
        x = x if bits & _core.ALIGNED64 else checks.copied(x, "to_jax")
        return jax.dlpack.from_dlpack(_core.writable_alias(x) if x.readonly else x)
    checks.require_array(x, "to_jax")
    plan = plan_to(x, copyif)
    jax = _complete = checks.library_for(plan, "jax")
    x = checks.execute_export(x, plan)
    _core.require_hand_over(x, checks.LEGACY, "to_jax")
    # JAX asks for the old capsule, which cannot say read-only. It never writes, so nothing is lost.
    return jax.dlpack.from_dlpack(_core.writable_alias(x) if x.readonly else x)


def stream_used_by(index: int, array: Any = None) -> int | None:
    """The stream on which the library uses memory, by its handle.

    Of streams of its own, which no capture of others reaches, the legacy one tells as much. Its
    arrays order themselves, on the stream that we name.
    """
    return checks.LEGACY if array is None else None


def _platform(a: Any) -> tuple[str, int]:
    device = next(iter(a.devices()))
    if device.platform in ("gpu", "cuda"):
        return "cuda", int(
            device.local_hardware_id if device.local_hardware_id is not None else device.id
        )
    return str(device.platform), 0


def describe(a: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    platform, index = _platform(a)
    dtype = numpy.dtype(a.dtype)
    shape = tuple(a.shape)
    try:  # its arrays may lie in any order of the axes, and tell only who imports them
        strides = checks.imported(a).strides
    except Exception:  # ours, or what JAX says of a type that DLPack lacks
        strides = c_strides(shape, dtype.itemsize)
    return ArrayInfo(
        shape, strides, dtype.name, dtype.itemsize, platform, index,
        a.unsafe_buffer_pointer() if a.size else 0, True, "jax",
    )  # fmt: skip


def _cast(name: str) -> str:
    whole = name.startswith(("int", "uint"))
    return f"x.astype('{name.rstrip('0123456789')}8')" if whole else "x.astype('float32')"


def judge(a: Any, copyif: bool = False) -> Plan | None:
    """Return the refusal of an array that cannot be shared, else None."""
    jax = sys.modules["jax"]

    def no(
        error: type[errors.GpuInteropError], reason: str, got: str, fix: str, code: str = ""
    ) -> Plan:
        return refuse("gpuinterop", "from_jax", error, reason, got, fix, code=code)

    if isinstance(a, jax.core.Tracer):
        return no(
            errors.ConversionTypeError,
            "an array with values",
            f"a tracer ({a.aval}) inside jit, grad or vmap",
            "convert outside the transformed function, or use jax.pure_callback",
        )
    if a.is_deleted():
        return no(
            errors.ExchangeError,
            "an array that still has memory",
            "a deleted or donated jax.Array",
            "keep a reference that is not donated, or convert before the call that donates it",
            "memory",
        )
    if len(a.devices()) > 1:
        return no(
            errors.ExportError,
            "an array on one device",
            f"an array on {len(a.devices())} devices",
            "convert one shard: a.addressable_shards[0].data",
            "sharded",
        )
    platform = _platform(a)[0]
    if platform not in ("cpu", "cuda"):
        return no(
            errors.DeviceMismatchError,
            "an array on cpu or cuda",
            f"an array on {platform}",
            "jax.device_put(a, jax.devices('cpu')[0])",
        )
    kind = getattr(a.sharding, "memory_kind", None)
    if kind == "pinned_host" and platform == "cuda":
        return no(
            errors.DeviceMismatchError,
            "an array in device memory; JAX cannot export its pinned host memory",
            f"an array of memory kind {kind}",
            "jax.device_put(a, jax.memory.Space.Device)",
        )
    if not isinstance(a.dtype, numpy.dtype) or a.dtype.name not in (_DTYPES | frozenset(_WIDE)):
        return no(
            errors.DTypeError,
            "a dtype that has plain memory",
            f"dtype {a.dtype}",
            "pass the bits: jax.random.key_data(a)"
            if not isinstance(a.dtype, numpy.dtype)
            else f"convert the values first, for example {_cast(a.dtype.name)}",
        )
    return None


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_jax`: what explain() shows and the converter carries out."""
    return judge(a) or checks.plan_own(describe(a), "from_jax", copyif)


def from_jax(a: Any, copyif: bool = False) -> Any:
    """Return a read-only array over the memory of the jax.Array `a`.

    Shares memory and keeps it alive. JAX takes its arrays for immutable and may show one memory
    under several names, so writing is refused; ``from_jax(a).copy()`` can be written to.

    Raises
    ------
    ConversionTypeError
        `a` is a tracer inside ``jit``.
    ExchangeError
        `a` was deleted or donated.
    """
    copyif = require_bool(copyif, "copyif", "from_jax")
    checks.require_foreign(a, "jax", "from_jax", "a jax.Array")
    try:
        return checks.imported(a)
    except Exception as e:  # ours, or what JAX says of a type that DLPack lacks
        plan = plan_from(a, copyif)
        if plan.shared:
            raise
        if plan.refused:
            raise plan.exception() from e
    copy_tracking.report_copy(
        "host" if _platform(a)[0] == "cpu" else "copy", plan.bytes, "from_jax"
    )
    return checks.imported(sys.modules["jax"].numpy.copy(a))

"""JAX: memory that is contiguous in some order of the axes is shared; imported arrays are read-only.

JAX copies silently when host memory is not aligned to 64 bytes, and narrows 64-bit values when
``jax_enable_x64`` is off, also when it must not copy; both are decided here before JAX is called.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import errors
from gpuinterop.converters.foreign_layout import LEGACY
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_layout, refuse
from gpuinterop.converters.suggested_fixes import cast_line
from gpuinterop.foreign_handles import loaded_module

__all__ = ["RULES", "judge", "plan_to", "stream_used_by"]

ARRAY = "a jax.Array"
STREAM = "the stream of JAX"
FROM_DLPACK = "dlpack.from_dlpack"
ORDERS_STREAMS = True
TO_NOTE = """JAX takes its arrays for immutable: do not write to `x` while the result is in use. Do not donate
the result either (``donate_argnums``), or XLA puts its own results into the memory of `x`, read-only or
not. No dtype is narrowed: 64-bit dtypes raise unless ``jax_enable_x64`` is on."""
FROM_NOTE = """The result is read-only: JAX takes its arrays for immutable and may show one memory under
several names. ``from_jax(a).copy()`` can be written to."""

_WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_DTYPES = frozenset(
    "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 float8_e3m4 "
    "float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu".split()
)
# On the host XLA copies what is not aligned to 64 bytes; on a GPU its kernels load up to 16 bytes at
# once from the start of a buffer.
RULES = Rules(
    "jax",
    "to_jax",
    _DTYPES,
    layout="compact",
    negative=False,
    readonly=True,
    alignment=64,
    device_alignment=16,
)
_WITH_WIDE = replace(RULES, dtypes=_DTYPES | frozenset(_WIDE))


def _x64() -> bool:
    jax = loaded_module("jax")
    if jax is not None:
        return bool(jax.config.jax_enable_x64)
    return os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "t", "yes", "y", "on")


def _without_cuda() -> str:
    """Return why this JAX has no CUDA, or "" when it does, without starting JAX."""
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


def plan_to(info: ArrayInfo, copyif: bool = False) -> Plan:
    """Plan a conversion to JAX, whose dtypes and devices depend on its settings."""
    if info.device == "cuda":
        without = _without_cuda()
        if without:
            return refuse(
                "jax", "to_jax", errors.DeviceMismatchError,
                f"a JAX that has arrays on {info.where}", without,
                "pip install jax[cuda13], or move the array: x.to_device('cpu')",
            )  # fmt: skip
    wide = info.dtype in _WIDE
    if wide and not _x64():
        return refuse(
            "jax", "to_jax", errors.DTypeError,
            f"a dtype that JAX keeps; it would narrow {info.dtype} to {_WIDE[info.dtype]} silently",
            f"dtype {info.dtype} while jax_enable_x64 is off",
            f"jax.config.update('jax_enable_x64', True), or narrow it yourself: "
            f"{cast_line(info.library, _WIDE[info.dtype])}",
        )  # fmt: skip
    return plan_layout(info, _WITH_WIDE if wide else RULES)


def stream_used_by(index: int, obj: Any = None) -> int | None:
    """Return the handle of the stream on which the library uses memory.

    JAX has streams of its own, which no capture of other libraries includes, and the legacy stream has the
    same rules. Arrays of JAX wait for the stream that the importer names.
    """
    return LEGACY if obj is None else None


def _platform(a: Any) -> str:
    platform = next(iter(a.devices())).platform
    return "cuda" if platform in ("gpu", "cuda") else str(platform)


def _cast(name: str) -> str:
    whole = name.startswith(("int", "uint"))
    return f"x.astype('{name.rstrip('0123456789')}8')" if whole else "x.astype('float32')"


def judge(a: Any) -> Plan | None:
    """Refuse tracers, and arrays that are deleted, sharded, elsewhere, or of a dtype without memory."""
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
    platform = _platform(a)
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

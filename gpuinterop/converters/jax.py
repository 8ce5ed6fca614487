"""JAX: memory that is contiguous in some order of the axes is shared; imported arrays are read-only.

JAX copies silently if host memory is not aligned to 64 bytes, and narrows 64-bit values if
``jax_enable_x64`` is off, even if it must not copy. The converter checks both before it calls JAX.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import byte_range
from gpuinterop.exchange import registry
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, plan_layout, refuse, refuse_object
from gpuinterop.exchange.suggested_fixes import cast_line

ARRAY = "a jax.Array"
STREAM = "the stream of JAX"
FROM_DLPACK = "dlpack.from_dlpack"
FAMILY = _core.JAX
TO_NOTE = """JAX treats its arrays as immutable and reads them when it computes, which may be after the call that
uses them has returned. A write to `x` by gpuinterop raises ReadOnlyError while a jax.Array over its memory
exists; after that it waits for the computations that read the memory. Before other libraries write, call
``block_until_ready()`` on the results of JAX. Do not donate the result (``donate_argnums``), or XLA writes its
own results into the memory of `x`, read-only or not. No dtype is narrowed: 64-bit dtypes raise unless
``jax_enable_x64`` is on."""
FROM_NOTE = """The result is read-only, because JAX treats its arrays as immutable and several of them may share
one memory. ``from_jax(a).copy()`` can be written to."""

_WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_DTYPES = frozenset(
    "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 float8_e3m4 "
    "float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu".split()
)
# On the host XLA copies memory that is not aligned to 64 bytes; on a GPU its kernels load up to 16 bytes at
# once from the start of a buffer.
RULES = Rules(
    "jax",
    "to_jax",
    _DTYPES,
    layout="compact",
    negative=False,
    readonly=True,
    reads_later=True,
    alignment=64,
    device_alignment=16,
)
# Separate from `RULES`, because the core remembers these, and jax_enable_x64 may change.
_ALL_DTYPES = _DTYPES | frozenset(_WIDE)
_WITH_WIDE = replace(RULES, dtypes=_ALL_DTYPES)


def _without_cuda(jax: Any) -> str:
    """Return why this JAX has no CUDA, or "" if it has, without starting its backends."""
    platforms = jax.config.jax_platforms
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return f"jax_platforms is {platforms!r}"
    plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin")
    if not any(importlib.util.find_spec(p) for p in plugins):
        return "a JAX without its CUDA plug-in"
    return ""


def plan_to(info: ArrayInfo, copyif: bool = False) -> Plan:
    """Plan a conversion to JAX, whose dtypes and devices depend on its settings."""
    wide = info.dtype in _WIDE
    jax = registry.load_or_none("jax") if wide or info.device == "cuda" else None
    without = _without_cuda(jax) if jax is not None and info.device == "cuda" else ""
    if without:
        return refuse(
            "jax", "to_jax", errors.DeviceMismatchError,
            f"a JAX that has arrays on {info.device_name}", without,
            "pip install jax[cuda13], or move the array: x.to_device('cpu')",
        )  # fmt: skip
    if wide and jax is not None and not jax.config.jax_enable_x64:
        return refuse(
            "jax", "to_jax", errors.DTypeError,
            f"a dtype that JAX keeps; it would narrow {info.dtype} to {_WIDE[info.dtype]} silently",
            f"dtype {info.dtype} while jax_enable_x64 is off",
            f"call jax.config.update('jax_enable_x64', True), or narrow it explicitly: "
            f"{cast_line(info.library, _WIDE[info.dtype])}",
        )  # fmt: skip
    plan = plan_layout(info, _WITH_WIDE)
    return replace(plan, reason=_READS_LATER) if plan.shared else plan


# ---- writes to memory that JAX reads -------------------------------------------------------------

_READS_LATER = "read when JAX computes: call block_until_ready() on its results before another library writes to x"
_PATIENCE = 2.0  # seconds in which JAX returns memory after its last result is ready


def wait_for_readers(array: Any, where: str) -> None:
    """Wait until JAX, or another library that reads later, has read the memory of `array`, or raise.

    JAX returns the memory when the computations that read it are done, possibly long after its array was
    deleted. Only the list of existing arrays shows whether a computation or an array keeps the memory.
    """
    idle_since = time.monotonic()
    while _core._is_lent(array):
        owner, computing = _live_arrays(array)
        if computing:
            idle_since = time.monotonic()
        if owner or time.monotonic() > idle_since + _PATIENCE:
            raise errors.ReadOnlyError(
                where=where, expected="memory that no library reads later, as JAX does while a jax.Array shares it",
                got=owner or "memory that a library has not returned",
                fix="delete the library's array first: del a, or write to a copy: x = x.copy()",
            )  # fmt: skip
        time.sleep(2e-4)


def _live_arrays(array: Any) -> tuple[str, bool]:
    """Describe a jax.Array over the memory of `array`, and return whether JAX computes at all.

    Returning the jax.Array itself would keep it alive in the traceback of the error.
    """
    jax = sys.modules.get("jax")
    exist = [] if jax is None else [a for a in jax.live_arrays() if not a.is_deleted()]
    shared = (f"{a.dtype} of shape {a.shape}" for a in exist if _shares(a, array))
    owner = next((f"a jax.Array over it: {a}" for a in shared), "")
    return owner, not all(a.is_ready() for a in exist)


def _shares(a: Any, array: Any) -> bool:
    """Return whether a jax.Array lies in memory between the first and the last element of `array`."""
    if len(a.devices()) > 1 or getattr(a.dtype, "name", "") not in _ALL_DTYPES:
        return False
    low, high = byte_range(array.ptr, array.shape, array.strides, array.itemsize)
    start = a.unsafe_buffer_pointer()
    return bool(low < start + a.nbytes and start < high)


# In this order, because an array that meets one condition may fail to answer the next.
_REFUSALS: tuple[Any, ...] = (  # a condition, and what `refuse_object` takes
    (
        lambda a: isinstance(a, sys.modules["jax"].core.Tracer), errors.ConversionTypeError, "",
        "an array with values", "a tracer ({0.aval}) inside jit, grad or vmap",
        "convert outside the transformed function, or use jax.pure_callback",
    ),
    (
        lambda a: a.is_deleted(), errors.ExchangeError, "memory", "an array that still has memory",
        "a deleted or donated jax.Array", "convert it before the call that donates it",
    ),
    (
        lambda a: len(a.devices()) > 1, errors.ExportError, "sharded", "an array on one device",
        "an array with {0.sharding}", "convert one shard: a.addressable_shards[0].data",
    ),
    (
        lambda a: getattr(a.dtype, "name", "") not in _ALL_DTYPES, errors.DTypeError, "",
        "a dtype that has plain memory", "dtype {0.dtype}",
        "pass the bits of a random key: jax.random.key_data(a), or convert the values, for example "
        "a.astype('float32')",
    ),
)  # fmt: skip


def judge(a: Any) -> Plan | None:
    """Refuse tracers, and arrays that are deleted, sharded, or of a dtype without memory."""
    for condition, *error in _REFUSALS:
        if condition(a):
            return refuse_object(a, "from_jax", *error)
    return None

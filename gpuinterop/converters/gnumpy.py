"""Gnumpy: flat C-ordered memory of any shape, on CUDAMat or, in its CPU mode, on npmat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import cudamat, registry
from gpuinterop.converters.foreign_layout import (
    LEGACY,
    OwnerGroup,
    device_of_address,
    dtype_name,
    read_shape,
)
from gpuinterop.converters.foreign_layout import legacy_stream as stream_used_by
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, c_strides, plan_layout
from gpuinterop.foreign_handles import loaded_module
from gpuinterop.host_views import as_numpy_view
from gpuinterop.layout import core_view

__all__ = [
    "RULES",
    "describe",
    "export",
    "plan_to",
    "stream_used_by",
]

ARRAY = "a gnumpy.garray"
STREAM = "gnumpy's default stream"
TO_NOTE = """The garray holds `x`, and gnumpy never puts the memory into its reuse cache. `module` names the gnumpy
to use, if it is not the installed one; in CPU mode it accepts host arrays, otherwise GPU arrays."""
FROM_NOTE = """The garray itself is held, because gnumpy puts the memory of a destroyed garray into its reuse cache
and gives it to the next one."""

RULES = Rules("gnumpy", "to_gnumpy", frozenset({"float32"}), layout="c")


def _cpu_mode(module: Any) -> bool:
    return not hasattr(_backend(module), "cudamat")


def _backend(module: Any) -> Any:
    """Return the CUDAMat or npmat that a gnumpy computes with."""
    for name in ("_cudamat", "cudamat"):
        found = getattr(module, name, None)
        if found is not None and hasattr(found, "CUDAMatrix"):
            return found
    return registry.load("cudamat", "to_gnumpy", "cudamat")


def plan_to(
    info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False, module: Any = None
) -> Plan:
    """Plan a conversion to gnumpy, whose device and precision depend on its mode."""
    cudamat.check_module(module, "garray", "to_gnumpy", "gnumpy")
    module = module or loaded_module("gnumpy")
    if module is None:
        # The mode is known once gnumpy is loaded; other refusals come before that.
        plan = plan_layout(info, RULES, allow_readonly)
        if plan.refused or not registry.installed("gnumpy"):
            return plan
        try:
            module = registry.load("gnumpy", "to_gnumpy")
        except errors.MissingLibraryError:  # which is the next error
            return plan
    place = "cpu" if _cpu_mode(module) else "cuda"
    plan = plan_layout(info, replace(RULES, devices=frozenset({place})), allow_readonly)
    if plan.refused or place == "cuda":
        return plan
    return cudamat.precision_fault(_backend(module), "gnumpy", "to_gnumpy") or plan


def export(x: Any, module: Any) -> Any:
    """Return a garray over the memory of `x`, of the same shape."""
    seen = core_view(x)
    backend = _backend(module)
    marker = _alias_marker(module)
    if _cpu_mode(module):
        column = as_numpy_view(x).reshape(-1, 1, order="A")
        made = cudamat.matrix_over(backend, column, x, "to_gnumpy")
    elif seen.size:
        _core.hand_over(x, LEGACY, "to_gnumpy")
        made = cudamat.wrap(backend, seen.ptr, seen.size, 1, x)
    else:
        # Gnumpy's own empty arrays use a dummy element too.
        made = module.garray(numpy.zeros(1, "float32"))._base
    return module.garray(made, seen.shape, marker)


def _alias_marker(module: Any) -> Any:
    # A dying garray without an alias marker pushes its matrix into gnumpy's reuse cache, which would
    # keep the memory for ever and hand it out as scratch. The marker must be a garray, any garray.
    # It lives in gnumpy's own module, so that it goes when gnumpy does.
    marker = getattr(module, "_gpuinterop_alias_marker", None)
    if marker is None:
        marker = module._gpuinterop_alias_marker = module.garray(numpy.zeros(1, "float32"))
    return marker


def describe(g: Any) -> ArrayInfo:
    """Describe a garray by its shape and by the matrix that holds its elements."""
    where = "from_gnumpy"
    host, mat = cudamat.inside(g._base)
    if host is not None:
        # npmat reshapes in place; elements then are in the order of memory, which must be contiguous.
        array = cudamat.plain_host(host, where, contiguous=True)
        dtype, place, ptr = array.dtype, ("cpu", 0), array.ctypes.data
        held, on_device, readonly = array.size, False, not array.flags.writeable
        # The matrix may exchange its ndarray later, so that is held as well.
        owner: Any = OwnerGroup(g, array)
    else:
        seen = cudamat.read_struct(mat, where)
        dtype, ptr = numpy.dtype("float32"), seen.ptr
        place, held = device_of_address(ptr), seen.size
        on_device, readonly, owner = seen.on_device, False, g
    shape = read_shape(g.shape, dtype.itemsize, where)
    info = ArrayInfo(
        shape, c_strides(shape, dtype.itemsize), dtype_name(dtype), dtype.itemsize, *place,
        0 if 0 in shape else ptr, readonly, "gnumpy", owner,
    )  # fmt: skip
    if info.size > held:
        raise errors.ExchangeError(
            where=where,
            expected=f"a garray of at most {held} elements, the size of its matrix",
            got=f"shape {shape}, {info.size} elements",
            fix="reshape it by its own method: g.reshape(shape)",
        )
    if info.size and info.device == "cuda" and not on_device:
        raise errors.ExchangeError(
            where=where,
            expected="a garray whose memory is on the GPU",
            got="memory that was freed",
            fix="make the garray again",
        )
    return info

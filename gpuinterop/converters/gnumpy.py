"""Gnumpy: flat C-ordered memory of any shape, on CUDAMat or, in its CPU mode, on npmat."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.converters import cudamat
from gpuinterop.exchange import registry
from gpuinterop.exchange.foreign_memory import LEGACY, device_of_address
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, c_strides, plan_layout

ARRAY = "a gnumpy.garray"
STREAM = "gnumpy's default stream"
TO_NOTE = """The garray holds `x`, and gnumpy never puts the memory into its reuse cache. In CPU mode gnumpy accepts
host arrays, otherwise GPU arrays."""
FROM_NOTE = """The garray itself is held, because gnumpy puts the memory of a destroyed garray into its reuse cache
and gives it to the next one."""

RULES = Rules("gnumpy", "to_gnumpy", frozenset({"float32"}), layout="c")


def _backend(module: Any) -> Any:
    """Return the CUDAMat, or in CPU mode the npmat, that a gnumpy computes with."""
    return getattr(module, "_cudamat", None) or module.cudamat


def plan_to(info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan a conversion to gnumpy, whose device depends on its mode."""
    module = registry.load_or_none("gnumpy")
    if module is None:  # the conversion itself reports it
        return plan_layout(info, RULES, allow_readonly)
    device = "cuda" if hasattr(_backend(module), "cudamat") else "cpu"
    return plan_layout(info, replace(RULES, devices=frozenset({device})), allow_readonly)


def export(x: Any, module: Any) -> Any:
    """Return a garray over the memory of `x`, of the same shape."""
    view = core_view(x)
    backend = _backend(module)
    if view.device.type == "cpu":
        matrix = cudamat.matrix_over(backend, as_numpy_view(x).reshape(-1, 1, order="A"), x)
    elif view.size:
        _core.hand_over(x, LEGACY, "to_gnumpy")
        matrix = cudamat.wrap(backend, view.ptr, view.size, 1, x)
    else:
        # Gnumpy's own empty arrays use a dummy element too.
        matrix = module.garray(numpy.zeros(1, "float32"))._base
    return module.garray(matrix, view.shape, _alias_marker(module))


def _alias_marker(module: Any) -> Any:
    # A dying garray without an alias marker pushes its matrix into gnumpy's reuse cache, which would
    # keep the memory forever and reuse it as scratch. The marker may be any garray.
    # It is stored in gnumpy's own module, so that it is destroyed with gnumpy.
    marker = getattr(module, "_gpuinterop_alias_marker", None)
    if marker is None:
        marker = module._gpuinterop_alias_marker = module.garray(numpy.zeros(1, "float32"))
    return marker


def describe(g: Any) -> ArrayInfo:
    """Describe a garray by its shape and by the matrix that holds its elements."""
    host, mat = cudamat.array_or_struct(g._base)
    if host is not None:
        # npmat reshapes in place; the elements are then in memory order, and the memory must be contiguous.
        info = cudamat.describe_host(g, host, "from_gnumpy", contiguous=True)
    else:
        rows, columns, ptr = cudamat.read_struct(mat, "from_gnumpy")
        info = ArrayInfo(
            (rows * columns,), (4,), "float32", 4, *device_of_address(ptr), ptr, library="gnumpy",
            owner=g,
        )  # fmt: skip
    shape = tuple(map(operator.index, g.shape))
    size = math.prod(shape)
    if size > info.size:
        raise errors.ExchangeError(
            where="from_gnumpy",
            expected=f"a garray of at most {info.size} elements, the size of its matrix",
            got=f"shape {shape}, {size} elements",
            fix="reshape it by its own method: g.reshape(shape)",
        )
    return replace(
        info, shape=shape, strides=c_strides(shape, info.itemsize), library="gnumpy",
        ptr=info.ptr if size else 0,
    )  # fmt: skip

"""Gnumpy: flat C-ordered memory of any shape, on CUDAMat or, in its CPU mode, on npmat."""

from __future__ import annotations

import math
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks, cudamat, registry
from gpuinterop.converters.plan import Facts, Plan, Rules, c_strides, plan_layout, refuse
from gpuinterop.foreign import loaded
from gpuinterop.geometry import real
from gpuinterop.sources import host_view

__all__ = [
    "cudandarray_to_garray",
    "describe",
    "from_gnumpy",
    "garray_to_cudandarray",
    "plan_from",
    "plan_to",
    "to_gnumpy",
]

_TO = Rules("gnumpy", "to_gnumpy", frozenset({"float32"}), layout="c")


def _cpu_mode(module: Any) -> bool:
    return not hasattr(_backend(module), "cudamat")


def _backend(module: Any) -> Any:
    """The CUDAMat or npmat that a gnumpy computes with."""
    for name in ("_cudamat", "cudamat"):
        found = getattr(module, name, None)
        if found is not None and hasattr(found, "CUDAMatrix"):
            return found
    return registry.load("cudamat", "to_gnumpy", "cudamat")


def plan_to(
    x: Any, copyif: bool = False, allow_readonly: bool = False, module: Any = None,
    _where: str = "to_gnumpy",
) -> Plan:  # fmt: skip
    """Plan `to_gnumpy`: what explain() shows and the converter carries out."""
    facts = checks.facts_of(x)
    if module is None:
        module = loaded("gnumpy")
    if module is not None:
        place = "cpu" if _cpu_mode(module) else "cuda"
        rules = Rules("gnumpy", _where, _TO.dtypes, frozenset({place}), "c")
    else:
        rules = Rules("gnumpy", _where, _TO.dtypes, layout="c")
    return plan_layout(facts, rules, copyif, allow_readonly)


def to_gnumpy(
    x: Any,
    copyif: bool = False,
    *,
    allow_readonly: bool = False,
    module: Any = None,
    _where: str = "to_gnumpy",
) -> Any:
    """Return a garray over the memory of `x`, of the same shape, any number of dimensions.

    Shares C-contiguous memory, and holds `x`. Gnumpy never takes the memory into its reuse cache.
    `module` names the gnumpy to use, if it is not the installed one; in CPU mode it takes host
    arrays, otherwise GPU arrays.
    """
    checks.require_array(x, _where)
    if module is None:
        # Which memory gnumpy takes shows once it is loaded; other refusals come before that.
        early = plan_to(x, copyif, allow_readonly, None, _where)
        module = checks.library_for(early, "gnumpy")
    x = checks.carry_out(x, plan_to(x, copyif, allow_readonly, module, _where))
    seen = real(x)
    backend = _backend(module)
    marker = _alias_marker(module)
    if _cpu_mode(module):
        column = host_view(x).reshape(-1, 1, order="A")
        made = cudamat.npmat_matrix(backend, column, x, _where)
    elif seen.size:
        _core.hand_over(x, checks.LEGACY, _where)
        made = cudamat.wrap(backend, seen.ptr, seen.size, 1, x)
    else:
        # Gnumpy's own empty arrays sit on a dummy element too.
        made = module.garray(numpy.zeros(1, "float32"))._base
    return module.garray(made, seen.shape, marker)


def _alias_marker(module: Any) -> Any:
    # A dying garray without an alias marker pushes its matrix into gnumpy's reuse cache, which would
    # keep our memory for ever and hand it out as scratch. The marker must be a garray, any garray.
    # It lives in gnumpy's own module, so that it goes when gnumpy does.
    marker = getattr(module, "_gpuinterop_alias_marker", None)
    if marker is None:
        marker = module._gpuinterop_alias_marker = module.garray(numpy.zeros(1, "float32"))
    return marker


def describe(g: Any) -> Facts:
    """Describe the foreign array; nothing is converted."""
    shape = tuple(int(n) for n in g.shape)
    base = g._base
    readonly = False
    if cudamat.is_npmat(base):
        host = base.numpy_array
        dtype, where, ptr = host.dtype, ("cpu", 0), host.ctypes.data
        readonly = not host.flags.writeable
    else:
        dtype, ptr = numpy.dtype("float32"), cudamat.address(base.mat)
        where = cudamat.device_of(ptr)
    strides = c_strides(shape, dtype.itemsize)
    if 0 in shape:
        ptr = 0
    name = checks.dtype_name(dtype)
    return Facts(shape, strides, name, dtype.itemsize, *where, ptr, readonly, "gnumpy")


def _oddity(g: Any, where: str) -> Plan | None:
    def no(reason: str, got: str, fix: str) -> Plan:
        return refuse("gpuinterop", where, errors.ExchangeError, reason, got, fix)

    base = g._base
    held, size = 0, math.prod(int(n) for n in g.shape)
    if cudamat.is_npmat(base):
        # npmat reshapes in place; elements then are in the order of memory, which must be dense.
        fault = cudamat.npmat_fault(base.numpy_array, where) or cudamat.gaps(base, where)
        if fault is not None:
            return fault
        held = base.numpy_array.size
    elif size:
        held = int(base.mat.size[0]) * int(base.mat.size[1])
    if size > held or min(g.shape, default=0) < 0:
        return no(
            f"a garray of at most {held} elements, the size of its matrix",
            f"shape {tuple(g.shape)}, {size} elements",
            "reshape it by its own method: g.reshape(shape)",
        )
    if size == 0 or cudamat.is_npmat(base):
        return None
    if not base.mat.on_device:
        return no(
            "a garray whose memory is on the GPU",
            "memory that was freed",
            "make the garray again",
        )
    return None


def plan_from(g: Any, copyif: bool = False, _where: str = "from_gnumpy") -> Plan:
    """Plan `from_gnumpy`: what explain() shows and the converter carries out."""
    odd = _oddity(g, _where)
    if odd is not None:
        return odd
    facts = describe(g)
    return checks.with_memory(checks.plan_own(facts, _where, copyif), facts)


def from_gnumpy(g: Any, copyif: bool = False, *, _where: str = "from_gnumpy") -> Any:
    """Return a C-contiguous array over the memory of the garray `g`, of the same shape.

    Shares, exactly, in any number of dimensions. The garray itself is held: gnumpy puts the memory
    of a dead garray into its reuse cache and hands it to the next one.
    """
    checks.require_foreign(g, "gnumpy", _where, "a gnumpy.garray")
    plan = plan_from(g, copyif, _where)
    if plan.refused:
        raise plan.exception()
    base = g._base
    # In CPU mode the matrix may exchange its ndarray later, so that is held as well.
    owner = checks.Hold(g, base.numpy_array) if cudamat.is_npmat(base) else g
    return checks.carry_in(plan, describe(g), owner)


# ---- the documents' names -----------------------------------------------------------------------


def cudandarray_to_garray(x: Any, copyif: bool = False, *, module: Any = None) -> Any:
    """The documents' converter: a garray over the memory of a C-contiguous CudaNdarray."""
    return to_gnumpy(x, copyif, module=module, _where="cudandarray_to_garray")


def garray_to_cudandarray(x: Any, copyif: bool = False) -> Any:
    """The documents' converter: a CudaNdarray over the memory of a garray."""
    where = "garray_to_cudandarray"
    return cudamat.documents_array(from_gnumpy(x, copyif, _where=where), where, "from_gnumpy")

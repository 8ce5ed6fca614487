"""Gnumpy: flat C-ordered memory of any shape, on CUDAMat or, in its CPU mode, on npmat."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks, cudamat, cudamat_struct, npmat, registry
from gpuinterop.converters import numpy as numpys
from gpuinterop.converters.plan import (
    ArrayInfo,
    Plan,
    Rules,
    c_strides,
    plan_from_error,
    plan_layout,
    refuse,
)
from gpuinterop.converters.reading import read_shape
from gpuinterop.foreign_handles import loaded_module
from gpuinterop.host_views import as_numpy_view
from gpuinterop.layout import core_view

__all__ = [
    "cudandarray_to_garray",
    "describe",
    "from_gnumpy",
    "garray_to_cudandarray",
    "plan_from",
    "plan_to",
    "to_gnumpy",
    "stream_used_by",
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
    checks.require_module(module, "garray", _where, "gnumpy")
    facts = checks.describe_array(x)
    if module is None:
        module = loaded_module("gnumpy")
    if module is None:
        # Which memory gnumpy takes shows once it is loaded; other refusals come before that.
        rules = Rules("gnumpy", _where, _TO.dtypes, layout="c")
        plan = plan_layout(facts, rules, copyif, allow_readonly)
        if plan.refused or not registry.installed("gnumpy"):
            return plan
        try:
            module = registry.load("gnumpy", _where)
        except errors.MissingLibraryError:  # which is told next
            return plan
    place = "cpu" if _cpu_mode(module) else "cuda"
    rules = Rules("gnumpy", _where, _TO.dtypes, frozenset({place}), "c")
    plan = plan_layout(facts, rules, copyif, allow_readonly)
    if plan.refused or place == "cuda":
        return plan
    return npmat.precision_fault(_backend(module), "gnumpy", _where) or plan


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    return checks.LEGACY


def to_gnumpy(
    x: Any,
    copyif: bool = False,
    *,
    allow_readonly: bool = False,
    module: Any = None,
    _where: str = "to_gnumpy",
) -> Any:
    """Return a garray over the memory of `x`, of the same shape, any number of dimensions.

    Shares C-contiguous memory. Copies other layouts, and read-only memory, with ``copyif=True``
    (``allow_readonly=True`` shares the latter). The dtype is float32, which gnumpy has alone. Its
    default stream waits for what is queued on `x`. The garray holds `x`, and gnumpy never takes the
    memory into its reuse cache. Writes on either side are seen by the other. `module` names the
    gnumpy to use, if it is not the installed one; in CPU mode it takes host arrays, otherwise GPU
    arrays.
    """
    checks.require_array(x, _where)
    plan = plan_to(x, copyif, allow_readonly, module, _where)
    if module is None:
        module = checks.library_for(plan, "gnumpy")
    x = checks.execute_export(x, plan)
    seen = core_view(x)
    backend = _backend(module)
    marker = _alias_marker(module)
    if _cpu_mode(module):
        column = as_numpy_view(x).reshape(-1, 1, order="A")
        made = npmat.matrix_over(backend, column, x, _where)
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


class _Look(NamedTuple):
    """One look at a garray: what is planned, carried out and held is what was seen then."""

    facts: ArrayInfo
    held: int  # how many elements its matrix has
    on_device: bool
    owner: Any
    odd: Plan | None = None


def _look(g: Any, where: str) -> _Look:
    host, mat = npmat.inside(g._base)
    if host is not None:
        odd = npmat.fault(host, where)
        array = numpys.plain(host)
        # npmat reshapes in place; elements then are in the order of memory, which must be dense.
        odd = odd or npmat.gaps(array, where)
        dtype, place, ptr = array.dtype, ("cpu", 0), array.ctypes.data
        held, on_device, readonly = array.size, False, not array.flags.writeable
        # The matrix may exchange its ndarray later, so that is held as well.
        owner: Any = checks.Hold(g, array)
    else:
        seen = cudamat_struct.read_struct(mat, where)
        dtype, ptr, odd = numpy.dtype("float32"), seen.ptr, None
        place, held = cudamat_struct.device_of(ptr), seen.size
        on_device, readonly, owner = seen.on_device, False, g
    shape = read_shape(g.shape, dtype.itemsize, where)
    facts = ArrayInfo(
        shape, c_strides(shape, dtype.itemsize), checks.dtype_name(dtype), dtype.itemsize, *place,
        0 if 0 in shape else ptr, readonly, "gnumpy",
    )  # fmt: skip
    return _Look(facts, held, on_device, owner, odd)


def describe(g: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    return _look(g, "from_gnumpy").facts


def _oddity(seen: _Look, where: str) -> Plan | None:
    facts = seen.facts
    if seen.odd is not None:
        return seen.odd
    if facts.size > seen.held:
        return refuse(
            "gpuinterop", where, errors.ExchangeError,
            f"a garray of at most {seen.held} elements, the size of its matrix",
            f"shape {facts.shape}, {facts.size} elements",
            "reshape it by its own method: g.reshape(shape)",
        )  # fmt: skip
    if facts.size and facts.device == "cuda" and not seen.on_device:
        return refuse(
            "gpuinterop", where, errors.ExchangeError, "a garray whose memory is on the GPU",
            "memory that was freed", "make the garray again",
        )  # fmt: skip
    return None


def _plan(seen: _Look, copyif: bool, where: str) -> Plan:
    odd = _oddity(seen, where)
    if odd is not None:
        return odd
    return checks.with_memory(checks.plan_own(seen.facts, where, copyif), seen.facts)


def plan_from(g: Any, copyif: bool = False, _where: str = "from_gnumpy") -> Plan:
    """Plan `from_gnumpy`: what explain() shows and the converter carries out."""
    try:
        seen = _look(g, _where)
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", _where)
    return _plan(seen, copyif, _where)


def from_gnumpy(g: Any, copyif: bool = False, *, _where: str = "from_gnumpy") -> Any:
    """Return a C-contiguous array over the memory of the garray `g`, of the same shape.

    Shares, exactly, in any number of dimensions. With ``copyif=True`` copies npmat's memory that is
    off its alignment; nothing else needs it. The dtype is float32, in CPU mode that of the matrix.
    What gnumpy has queued on the default stream is visible here. The garray itself is held: gnumpy
    puts the memory of a dead garray into its reuse cache and hands it to the next one. Writes on
    either side are seen by the other.
    """
    checks.require_foreign(g, "gnumpy", _where, "a gnumpy.garray")
    seen = _look(g, _where)
    return checks.execute_import(_plan(seen, copyif, _where), seen.facts, seen.owner)


# ---- the documents' names -----------------------------------------------------------------------


def cudandarray_to_garray(x: Any, copyif: bool = False, *, module: Any = None) -> Any:
    """The documents' converter: a garray over the memory of a C-contiguous CudaNdarray."""
    return to_gnumpy(x, copyif, module=module, _where="cudandarray_to_garray")


def garray_to_cudandarray(x: Any, copyif: bool = False) -> Any:
    """The documents' converter: a CudaNdarray over the memory of a garray."""
    where = "garray_to_cudandarray"
    return cudamat.documents_array(from_gnumpy(x, copyif, _where=where), where, "from_gnumpy")

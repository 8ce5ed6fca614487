"""CuPy: every layout is shared, negative strides included; and its raw kernels.

CuPy's ElementwiseKernel and ReductionKernel take any array by the CUDA Array Interface. RawKernel
asks an argument for nothing: it takes cupy.ndarray, CuPy's pointers and NumPy's scalars, by class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks, registry
from gpuinterop.converters.kernel_pointers import pointer_arguments
from gpuinterop.converters.overlap import extent
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_from_error, plan_layout
from gpuinterop.converters.reading import read_geometry
from gpuinterop.dtypes import NUMPY_NAMES, as_supported_dtype
from gpuinterop.layout import core_view
from gpuinterop.ndarray import CudaNdarray

__all__ = ["describe", "from_cupy", "kernel", "plan_from", "plan_to", "to_cupy", "stream_used_by"]

_DTYPES = frozenset(NUMPY_NAMES)
_TO = Rules("cupy", "to_cupy", _DTYPES, frozenset({"cuda"}))
_TO_BFLOAT16 = replace(_TO, dtypes=_DTYPES | {"bfloat16"})

_MASK = _core.READONLY | _core.ON_CUDA | _core.NUMPY_DTYPE
_PLAIN = _core.ON_CUDA | _core.NUMPY_DTYPE


def plan_to(x: Any, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan `to_cupy`: what explain() shows and the converter carries out."""
    facts = checks.describe_array(x)
    rules = _TO_BFLOAT16 if facts.dtype == "bfloat16" and _has_bfloat16() else _TO
    return plan_layout(facts, rules, copyif, allow_readonly)


def _has_bfloat16() -> bool:
    """Whether CuPy makes arrays of bfloat16, the type of ml_dtypes: from version 14 on."""
    if not registry.installed("ml_dtypes"):
        return False
    if not registry.installed("cupy"):
        return True  # who has no CuPy is told that
    try:
        return _makes_bfloat16(registry.load("cupy", "to_cupy"))
    except errors.MissingLibraryError:  # it cannot be imported, which comes next
        return True


@cache
def _makes_bfloat16(cupy: Any) -> bool:
    nothing = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, 0), 0)
    try:
        made = cupy.ndarray((0,), as_supported_dtype("bfloat16"), nothing)
    except (TypeError, ValueError, KeyError):
        return False
    return bool(made.dtype == as_supported_dtype("bfloat16"))


_complete: Any = None  # the module, once its import is known to have ended


def to_cupy(x: Any, copyif: bool = False, *, allow_readonly: bool = False) -> Any:
    """Return a cupy.ndarray over the memory of `x`.

    Shares every layout, negative strides too. Copies read-only memory, with ``copyif=True``, because
    CuPy cannot mark arrays read-only; ``allow_readonly=True`` shares it. The dtype stays; CuPy has
    those of NumPy, and from version 14 on bfloat16. Its current stream waits for what is queued on
    `x`. The result keeps `x` alive. Writes on either side are seen by the other.
    """
    global _complete
    cupy = sys.modules.get("cupy")
    if (
        cupy is None
        or cupy is not _complete
        or not isinstance(x, _core.Array)
        or _core.traits(x) & _MASK != _PLAIN
        or type(copyif) is not bool  # NumPy's, or none, which is refused
    ):
        checks.require_array(x, "to_cupy")
        plan = plan_to(x, copyif, allow_readonly)
        cupy = _complete = checks.library_for(plan, "cupy")
        x = checks.execute_export(x, plan)
    seen = x if type(x) is CudaNdarray else core_view(x)
    index = seen.device.index
    _core.hand_over(x, _stream(cupy, index), "to_cupy")
    shape, ptr = seen.shape, seen.ptr
    memory = cupy.cuda
    if seen.is_c_contiguous():
        pointer = memory.MemoryPointer(memory.UnownedMemory(ptr, seen.nbytes, x, index), 0)
        return cupy.ndarray(shape, seen.dtype, pointer)
    strides = seen.strides
    low, high = extent(ptr, shape, strides, seen.itemsize)
    pointer = memory.MemoryPointer(memory.UnownedMemory(low, high - low, x, index), ptr - low)
    return cupy.ndarray(shape, seen.dtype, pointer, strides)


def _stream(cupy: Any, index: int) -> int:
    return int(cupy.cuda.get_current_stream(index).ptr)


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    return _stream(registry.load("cupy", "to_cupy"), index)


def describe(a: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    dtype = a.dtype
    shape, strides = read_geometry(a.shape, a.strides, dtype.itemsize, "from_cupy")
    return ArrayInfo(
        shape, strides, dtype.name, dtype.itemsize, "cuda", a.device.id,
        0 if 0 in shape else a.data.ptr, library="cupy",
    )  # fmt: skip


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_cupy`: what explain() shows and the converter carries out."""
    try:
        return _plan(describe(a), copyif)
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", "from_cupy")


def _plan(facts: ArrayInfo, copyif: bool) -> Plan:
    plan = checks.plan_own(facts, "from_cupy", copyif)
    # What is copied goes by what the array says of itself; the core looks at what is shared.
    return plan if plan.shared else checks.with_memory(plan, facts)


@_core.imports(_core.CUPY)
def from_cupy(a: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of the cupy.ndarray `a`.

    Shares every layout. Copies, with ``copyif=True``, elements off their alignment. The dtype stays.
    What CuPy's current stream has queued is visible here. The result keeps `a` alive, and CuPy's pool
    hands the memory out again only after our work on it is done. Writes on either side are seen by
    the other.
    """
    checks.require_foreign(a, "cupy", "from_cupy", "a cupy.ndarray")
    facts = describe(a)
    plan = _plan(facts, copyif)
    if plan.shared and facts.dtype in _DTYPES:  # CuPy's DLPack may lack the others
        return checks.imported(a)
    return checks.execute_import(plan, facts, a, stream=_stream(sys.modules["cupy"], facts.index))


def kernel(
    function: Callable[..., Any], copyif: bool = False, *, allow_readonly: bool = False
) -> Callable[..., Any]:
    """Return `function`, a cupy.RawKernel, made to take every array that is known.

    RawKernel refuses classes it does not know, and passes a strided cupy.ndarray on as an address
    without its strides. The wrapper gives the kernel addresses: arrays whose strides that would
    lose are refused, or with ``copyif=True`` handed over as compact copies and written back. The
    launch, on CuPy's current stream, waits for what is queued on each array.

    Examples
    --------
    >>> multiply = gpuinterop.converters.cupy.kernel(cupy.RawKernel(code, "multiply"))  # doctest: +SKIP
    >>> multiply((1,), (100,), (dest, a, b))  # doctest: +SKIP
    """

    def launch(grid: Any, block: Any, args: Sequence[Any] = (), **options: Any) -> Any:
        cupy = registry.load("cupy", "cupy.kernel")
        device = int(cupy.cuda.runtime.getDevice())
        with pointer_arguments(
            args,
            copyif=copyif,
            allow_readonly=allow_readonly,
            stream=_stream(cupy, device),
            where="cupy.kernel",
            wrap=numpy.uintp,
            device=device,
        ) as prepared:
            return function(grid, block, tuple(prepared), **options)

    launch.__wrapped__ = function  # type: ignore[attr-defined]
    return launch

"""CuPy: every layout is shared, negative strides included; and its raw kernels.

CuPy's ElementwiseKernel and ReductionKernel take any array by the CUDA Array Interface. RawKernel
asks an argument for nothing: it takes cupy.ndarray, CuPy's pointers and NumPy's scalars, by class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from gpuinterop import _core
from gpuinterop.converters import checks, registry
from gpuinterop.converters.kernel_args import pointer_arguments
from gpuinterop.converters.overlap import extent
from gpuinterop.converters.plan import Facts, Plan, Rules, plan_layout
from gpuinterop.geometry import real
from gpuinterop.ndarray import CudaNdarray

__all__ = ["describe", "from_cupy", "kernel", "plan_from", "plan_to", "to_cupy"]

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128".split()
)
_TO = Rules("cupy", "to_cupy", _DTYPES, frozenset({"cuda"}))

_MASK = _core.READONLY | _core.ON_CUDA | _core.NUMPY_DTYPE
_PLAIN = _core.ON_CUDA | _core.NUMPY_DTYPE


def plan_to(x: Any, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan `to_cupy`: what explain() shows and the converter carries out."""
    return plan_layout(checks.facts_of(x), _TO, copyif, allow_readonly)


_complete: Any = None  # the module, once its import is known to have ended


def to_cupy(x: Any, copyif: bool = False, *, allow_readonly: bool = False) -> Any:
    """Return a cupy.ndarray over the memory of `x`.

    Shares memory, strides included (negative ones too), and keeps it alive; CuPy's current stream
    waits for what is queued on it. CuPy cannot mark arrays read-only, so a read-only `x` needs
    ``copyif=True`` or ``allow_readonly=True``.
    """
    global _complete
    cupy = sys.modules.get("cupy")
    if (
        cupy is None
        or cupy is not _complete
        or not isinstance(x, _core.Array)
        or _core.traits(x) & _MASK != _PLAIN
    ):
        checks.require_array(x, "to_cupy")
        plan = plan_to(x, copyif, allow_readonly)
        cupy = _complete = checks.library_for(plan, "cupy")
        x = checks.carry_out(x, plan)
    seen = x if type(x) is CudaNdarray else real(x)
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


def describe(a: Any) -> Facts:
    """Describe the foreign array; nothing is converted."""
    return Facts(
        tuple(a.shape), tuple(a.strides), a.dtype.name, a.dtype.itemsize, "cuda", a.device.id,
        a.data.ptr if a.size else 0, library="cupy",
    )  # fmt: skip


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_cupy`: what explain() shows and the converter carries out."""
    return checks.plan_own(describe(a), "from_cupy", copyif)


@_core.quick
def from_cupy(a: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of the cupy.ndarray `a`.

    Shares every layout and keeps the memory alive; what CuPy's current stream has queued is visible
    here, and CuPy's pool hands the memory out again only after our work on it is done.
    """
    checks.require_foreign(a, "cupy", "from_cupy", "a cupy.ndarray")
    plan = plan_from(a, copyif)
    if plan.shared:
        return checks.imported(a)
    facts = describe(a)
    return checks.carry_in(plan, facts, a, stream=_stream(sys.modules["cupy"], facts.index))


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

"""CuPy: every layout is shared, negative strides included; and its raw kernels.

CuPy's ElementwiseKernel and ReductionKernel accept any array by the CUDA Array Interface. RawKernel accepts
cupy.ndarray, CuPy's pointers and NumPy's scalars, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core
from gpuinterop.arrays.core_view import byte_range, core_view
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.errors.arguments import checks_arguments
from gpuinterop.exchange import registry
from gpuinterop.exchange.foreign_memory import describe_memory
from gpuinterop.exchange.kernel_pointers import pointer_arguments
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, plan_layout
from gpuinterop.ndarray import CudaNdarray

ARRAY = "a cupy.ndarray"
STREAM = "CuPy's current stream"
FAMILY = _core.CUPY
TO_NOTE = "CuPy has the dtypes of NumPy, and from version 14 on bfloat16."
FROM_NOTE = "CuPy's pool reuses the memory only after the work of the result on it is done."

_DTYPES = frozenset(NUMPY_NAMES)
RULES = Rules("cupy", "to_cupy", _DTYPES, frozenset({"cuda"}))
_WITH_BFLOAT16 = replace(RULES, dtypes=_DTYPES | {"bfloat16"})


def plan_to(info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan a conversion to CuPy, which has bfloat16, the type of ml_dtypes, from version 14 on."""
    cupy = registry.load_or_none("cupy") if info.dtype == "bfloat16" else None
    has_it = cupy is not None and int(cupy.__version__.partition(".")[0]) >= 14
    rules = _WITH_BFLOAT16 if has_it else RULES
    return plan_layout(info, rules, allow_readonly)


def export(x: Any, cupy: Any) -> Any:
    """Return a cupy.ndarray over the memory of `x`."""
    view = x if type(x) is CudaNdarray else core_view(x)
    index = view.device.index
    _core.hand_over(x, int(cupy.cuda.get_current_stream(index).ptr), "to_cupy")
    shape, ptr = view.shape, view.ptr
    memory = cupy.cuda
    if view.is_c_contiguous():
        pointer = memory.MemoryPointer(memory.UnownedMemory(ptr, view.nbytes, x, index), 0)
        return cupy.ndarray(shape, view.dtype, pointer)
    strides = view.strides
    low, high = byte_range(ptr, shape, strides, view.itemsize)
    pointer = memory.MemoryPointer(memory.UnownedMemory(low, high - low, x, index), ptr - low)
    return cupy.ndarray(shape, view.dtype, pointer, strides)


def stream_used_by(index: int, obj: Any = None) -> int:
    """Return the handle of the stream on which the library uses memory."""
    cupy = registry.load("cupy", "to_cupy")
    return int(cupy.cuda.get_current_stream(index).ptr)


def describe(a: Any) -> ArrayInfo:
    """Describe a cupy.ndarray."""
    return describe_memory((a.shape, a.strides, a.dtype, a.data.ptr, a.device.id, None), "cupy")


@checks_arguments("copyif")
def kernel(
    function: Callable[..., Any], copyif: bool = False, *, allow_readonly: bool = False
) -> Callable[..., Any]:
    """Wrap `function`, a cupy.RawKernel, so that it accepts arrays of every known library.

    RawKernel refuses classes that it does not recognise, and passes a strided cupy.ndarray as an address
    without its strides. The wrapper passes addresses too, but an array whose strides would be lost
    raises, or with ``copyif=True`` is replaced by a contiguous copy, which is written back. The
    launch, on CuPy's current stream, waits for the work that is queued on each array.

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
            stream=int(cupy.cuda.get_current_stream(device).ptr),
            where="cupy.kernel",
            wrap=numpy.uintp,
            device=device,
        ) as prepared:
            return function(grid, block, tuple(prepared), **options)

    launch.__wrapped__ = function  # type: ignore[attr-defined]
    return launch

"""Numba-CUDA: every layout is shared; its kernels honour strides, negative ones included."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.exchange.foreign_memory import LEGACY
from gpuinterop.exchange.plan import Rules
from gpuinterop.ndarray import CudaNdarray

ARRAY = "a Numba device array"
STREAM = "Numba's default stream, or the stream that an array is bound to,"
IMPORTS = "numba.cuda"
TO_NOTE = "Numba's ``copy_to_host`` refuses negative strides; its kernels accept them."
FROM_NOTE = "The result has `obj` as ``result.base``."
RULES = Rules("numba", "to_numba", frozenset(NUMPY_NAMES), frozenset({"cuda"}))


def export(x: Any, cuda: Any) -> Any:
    """Return a Numba device array over the memory of `x`."""
    index = x.device.index
    _core.hand_over(x, _default_stream(cuda), "to_numba")
    # Numba's own search for the current context takes longer than the rest of the conversion.
    primary = _core.primary_is_current(index)
    context = cuda.gpus[index].get_primary_context() if primary else None
    return _builder(cuda)(x, context)


def _default_stream(cuda: Any) -> int:
    # Numba's own default follows this setting; 2 is CU_STREAM_PER_THREAD.
    config = sys.modules.get("numba.core.config") or sys.modules.get("numba.cuda.core.config")
    return 2 if getattr(config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0) else LEGACY


def stream_used_by(index: int, obj: Any = None) -> int:
    """Return the handle of the stream that an array is bound to, or of Numba's default."""
    bound = getattr(obj, "stream", 0)
    return int(bound) if bound else _default_stream(sys.modules.get("numba.cuda"))


@cache
def _builder(cuda: Any) -> Any:
    """Return a function that makes a DeviceNDArray: directly, as `as_cuda_array` does, or through it."""
    try:
        devicearray, driver = cuda.cudadrv.devicearray, cuda.cudadrv.driver
        pointer_of = driver.binding.CUdeviceptr
        context_of, pointer, array = (
            cuda.current_context,
            driver.MemoryPointer,
            devicearray.DeviceNDArray,
        )
    except AttributeError:
        return lambda x, context: cuda.as_cuda_array(x, sync=False)

    def build(x: Any, context: Any) -> Any:
        view = x if type(x) is CudaNdarray else core_view(x)
        memory = pointer(context or context_of(), pointer_of(view.ptr), view.nbytes, x)
        return array(view.shape, view.strides, view.dtype, 0, memory)

    return build


def memory(a: Any) -> tuple[Any, ...]:
    """Read the memory of a Numba device array."""
    context = getattr(getattr(a, "gpu_data", None), "context", None)
    index = int(getattr(getattr(context, "device", None), "id", 0) or 0)
    ptr = int(a.device_ctypes_pointer.value or 0)
    return a.shape, a.strides, a.dtype, ptr, index, stream_used_by(index, a)

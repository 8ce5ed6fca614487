"""Numba-CUDA: every layout is shared; its kernels honour strides, negative ones included."""

from __future__ import annotations

import sys
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_from_error, plan_layout, refuse
from gpuinterop.converters.reading import read_dtype, read_geometry
from gpuinterop.dtypes import NUMPY_NAMES
from gpuinterop.layout import core_view
from gpuinterop.ndarray import CudaNdarray
from gpuinterop.option_values import require_bool

__all__ = ["describe", "from_numba", "plan_from", "plan_to", "to_numba", "stream_used_by"]

IMPORTS = "numba.cuda"  # what a conversion imports

_DTYPES = frozenset(NUMPY_NAMES)
_TO = Rules("numba", "to_numba", _DTYPES, frozenset({"cuda"}))


def plan_to(x: Any, copyif: bool = False, allow_readonly: bool = False) -> Plan:
    """Plan `to_numba`: what explain() shows and the converter carries out."""
    return plan_layout(checks.describe_array(x), _TO, copyif, allow_readonly)


def to_numba(x: Any, copyif: bool = False, *, allow_readonly: bool = False) -> Any:
    """Return a Numba device array over the memory of `x`.

    Shares every layout; ``copy_to_host`` of Numba refuses negative strides, its kernels take them.
    Copies read-only memory, with ``copyif=True``, because Numba cannot mark arrays read-only;
    ``allow_readonly=True`` shares it. The dtype stays; Numba has those of NumPy. Its default stream
    waits for what is queued on `x`, without a host synchronisation. The result keeps `x` alive.
    Writes on either side are seen by the other.
    """
    cuda = sys.modules.get("numba.cuda")
    # There is a builder once its import is known to have ended.
    # True too when the primary context is current: Numba need not be asked for it again.
    if (
        cuda not in _builders
        or type(copyif) is not bool  # type: ignore[redundant-expr]  # of those who check types
        or not _core.ready_for(x, _MASK, _PLAIN, _default_stream(cuda))
    ):
        checks.require_array(x, "to_numba")
        plan = plan_to(x, copyif, allow_readonly)
        cuda = checks.library_for(plan, "numba", IMPORTS)
        x = checks.execute_export(x, plan)
        _core.hand_over(x, _default_stream(cuda), "to_numba")
        return _build(cuda)(x, None)
    return _build(cuda)(x, _context(cuda, x.device.index))


_MASK = _core.READONLY | _core.ON_CUDA | _core.NUMPY_DTYPE
_PLAIN = _core.ON_CUDA | _core.NUMPY_DTYPE

_builders: dict[Any, Any] = {}
_contexts: dict[tuple[Any, int], Any] = {}


def _build(cuda: Any) -> Any:
    build = _builders.get(cuda)
    if build is None:
        build = _builders[cuda] = _builder(cuda)
    return build


def _context(cuda: Any, index: int) -> Any:
    """Numba's object for a device's primary context, which is current already.

    Numba's own question for the current one takes longer than all the rest.
    """
    ask = _contexts.get((cuda, index))
    if ask is None:
        ask = _contexts[cuda, index] = cuda.gpus[index].get_primary_context
    return ask()


def _default_stream(cuda: Any) -> int:
    # Numba's own default follows this setting; 2 is CU_STREAM_PER_THREAD.
    config = sys.modules.get("numba.core.config") or sys.modules.get("numba.cuda.core.config")
    return 2 if getattr(config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0) else checks.LEGACY


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    return _default_stream(sys.modules.get("numba.cuda")) if array is None else _stream_of(array)


def _builder(cuda: Any) -> Any:
    """How to make a DeviceNDArray: directly, as `as_cuda_array` does, or through it."""
    try:
        devicearray, driver = cuda.cudadrv.devicearray, cuda.cudadrv.driver
        pointer_of = driver.binding.CUdeviceptr
        context_of, pointer, array = (
            cuda.current_context,
            driver.MemoryPointer,
            devicearray.DeviceNDArray,
        )
    except AttributeError:
        return lambda x, context: cuda.as_cuda_array(_Interface(x), sync=False)

    def build(x: Any, context: Any) -> Any:
        seen = x if type(x) is CudaNdarray else core_view(x)
        memory = pointer(context or context_of(), pointer_of(seen.ptr), seen.nbytes, x)
        return array(seen.shape, seen.strides, seen.dtype, 0, memory)

    return build


class _Interface:
    """Shows an array without a stream: the order has been made by an event already."""

    __slots__ = ("__cuda_array_interface__", "array")

    def __init__(self, x: Any) -> None:
        self.array = x
        x = core_view(x)
        self.__cuda_array_interface__ = {
            "shape": x.shape,
            "strides": tuple(x.strides),
            "typestr": x.dtype.str,
            "data": (x.ptr, False),
            "version": 3,
            "stream": None,
        }


def describe(a: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    dtype = read_dtype(a.dtype, "from_numba")
    shape, strides = read_geometry(a.shape, a.strides, dtype.itemsize, "from_numba")
    ptr = int(a.device_ctypes_pointer.value or 0) if 0 not in shape else 0
    context = getattr(getattr(a, "gpu_data", None), "context", None)
    index = int(getattr(getattr(context, "device", None), "id", 0) or 0)
    return ArrayInfo(
        shape,
        strides,
        checks.dtype_name(dtype),
        dtype.itemsize,
        "cuda",
        index,
        ptr,
        library="numba",
    )


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_numba`: what explain() shows and the converter carries out."""
    try:
        return _plan_from(a, copyif)[0]
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", "from_numba")


def _plan_from(a: Any, copyif: bool) -> tuple[Plan, ArrayInfo]:
    _stream_of(a)
    facts = describe(a)
    if facts.dtype.startswith("void"):
        plan = refuse(
            "gpuinterop", "from_numba", errors.DTypeError, "a numeric dtype", f"dtype {a.dtype}",
            "pass one field of the records: a['field']",
        )  # fmt: skip
        return plan, facts
    return checks.with_memory(checks.plan_own(facts, "from_numba", copyif), facts), facts


def _stream_of(a: Any) -> int:
    """The handle of the stream that the array is bound to, or of Numba's default."""
    bound = getattr(a, "stream", 0)
    found = int(bound) if bound else 0
    if not 0 <= found < 1 << 64:
        raise errors.StreamError(
            where="from_numba",
            expected="a stream of Numba, or 0 for its default",
            got=f"the number {found}",
            fix="bind the array to numba.cuda.stream()",
        )
    return found or _default_stream(sys.modules.get("numba.cuda"))


def from_numba(a: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of the Numba device array `a`.

    Shares every layout. Copies, with ``copyif=True``, elements off their alignment. The dtype stays.
    What is queued on the stream that `a` is bound to, or else on Numba's default stream, is visible
    here. The result keeps `a` alive, as ``result.base``. Writes on either side are seen by the other.
    """
    checks.require_foreign(a, "numba", "from_numba", "a Numba device array")
    copyif = require_bool(copyif, "copyif", "from_numba")
    stream = _stream_of(a)
    try:
        # The core checks all of this; the long way below finds the words for what is wrong.
        return _core.borrow(
            None, int(a.gpu_data.device_pointer), a.shape, a.strides, a.dtype, checks.CUDA,
            checks.ANY_DEVICE, a, False, stream, "from_numba",
        )  # fmt: skip
    except (errors.GpuInteropError, AttributeError, TypeError, ValueError):
        plan, facts = _plan_from(a, copyif)
    return checks.execute_import(plan, facts, a, stream=stream)

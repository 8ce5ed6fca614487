"""PyCUDA: GPUArray over our memory and back, its kernels, and its context.

A GPUArray is built here C-contiguous, as the documents say. It can carry other strides too, but most
of PyCUDA reads raw memory whatever they are, so a strided one is given only on request.
"""

from __future__ import annotations

import atexit
import copy
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks, registry
from gpuinterop.converters.kernel_pointers import pointer_arguments
from gpuinterop.converters.likeness import lookalike_error
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_from_error, plan_layout, refuse
from gpuinterop.converters.reading import read_dtype, read_geometry
from gpuinterop.dtypes import NUMPY_NAMES
from gpuinterop.layout import core_view
from gpuinterop.ndarray import CudaNdarray
from gpuinterop.option_values import require_bool

__all__ = [
    "describe",
    "from_pycuda",
    "init",
    "kernel",
    "plan_from",
    "plan_to",
    "to_cudandarray",
    "to_gpuarray",
    "to_pycuda",
    "stream_used_by",
]

IMPORTS = "pycuda.gpuarray"  # what a conversion imports

_DTYPES = frozenset(NUMPY_NAMES)
_TO = Rules("pycuda", "to_gpuarray", _DTYPES, frozenset({"cuda"}), "c")
_TO_STRIDED = Rules("pycuda", "to_gpuarray", _DTYPES, frozenset({"cuda"}))

_MASK = _core.C_CONTIGUOUS | _core.READONLY | _core.ON_CUDA | _core.NUMPY_DTYPE | _core.EMPTY
_PLAIN = _core.C_CONTIGUOUS | _core.ON_CUDA | _core.NUMPY_DTYPE


def context_fault(index: int, where: str) -> Plan | None:
    """A refusal when PyCUDA does not work in the context that our memory lives in."""
    if _core.primary_is_current(index):
        return None
    other = _primary_of_another()
    if other is not None:
        got = f"the primary context of cuda:{other}"
        fix = f"push the other one for the call, and pop it: {_PUSH.format(index)}"
    elif "pycuda.autoinit" in sys.modules:
        got = "another context: pycuda.autoinit makes one of its own"
        fix = "import pycuda.autoprimaryctx instead of pycuda.autoinit, at the top of the program"
    else:
        got = "no context, or one that PyCUDA made for itself"
        fix = "import pycuda.autoprimaryctx, or call gpuinterop.converters.pycuda.init() once"
    return refuse(
        "pycuda",
        where,
        errors.ContextError,
        f"the primary context of cuda:{index} to be current, where all libraries share memory",
        got,
        fix,
    )


_PUSH = (
    "context = pycuda.driver.Device({}).retain_primary_context(); context.push(); ...; "
    "context.pop()"
)


def _primary_of_another() -> int | None:
    """The device whose primary context is current, when it is the one that PyCUDA works with."""
    driver = sys.modules.get("pycuda.driver")
    if driver is None or driver.Context.get_current() is None:
        return None
    index = _ordinal(driver.Context.get_device())
    return index if _core.primary_is_current(index) else None


def plan_to(
    x: Any, copyif: bool = False, allow_readonly: bool = False, strided: bool = False
) -> Plan:
    """Plan `to_pycuda`: what explain() shows and the converter carries out."""
    facts = checks.describe_array(x)
    plan = plan_layout(facts, _TO_STRIDED if strided else _TO, copyif, allow_readonly)
    if plan.refused:
        return plan
    if not registry.installed("pycuda"):
        return plan  # who has no PyCUDA is told that, not which context it should use
    return context_fault(facts.index, "to_gpuarray") or plan


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    return checks.LEGACY


_complete: Any = None  # the module, once its import is known to have ended


def to_gpuarray(
    x: Any, copyif: bool = False, *, allow_readonly: bool = False, strided: bool = False
) -> Any:
    """Return a PyCUDA GPUArray over the memory of `x`.

    Shares C-contiguous memory; ``strided=True`` shares every layout by handing GPUArray its strides,
    which only slicing, ``get`` and ``view`` of PyCUDA honour, its kernels do not. Copies other
    layouts, and read-only memory, with ``copyif=True`` (``allow_readonly=True`` shares the latter);
    the result then aliases the copy. The dtype stays; PyCUDA has those of NumPy. Its default stream
    waits for what is queued on `x`. The result keeps `x` alive, as ``result.base``. Writes on either
    side are seen by the other.

    Raises
    ------
    ContiguityError
        `x` is not C-contiguous and neither `copyif` nor `strided` is true.
    ContextError
        PyCUDA works in a context of its own (``pycuda.autoinit``).
    """
    global _complete
    slow = strided or type(copyif) is not bool  # NumPy's, or none, which is refused below
    parts = None if slow else _core.ready_parts(x, _MASK, _PLAIN, checks.LEGACY)
    if parts is not None:
        gpuarray = sys.modules.get("pycuda.gpuarray")
        if gpuarray is not None and gpuarray is _complete:
            # The strides of C order are given as well, because GPUArray works them out in Python.
            shape, steps, dtype, ptr = parts
            return gpuarray.GPUArray(shape, dtype, base=x, gpudata=ptr, strides=steps)
    checks.require_array(x, "to_gpuarray")
    plan = plan_to(x, copyif, allow_readonly, strided)
    gpuarray = _complete = checks.library_for(plan, "pycuda", IMPORTS)
    x = checks.execute_export(x, plan)
    _core.hand_over(x, checks.LEGACY, "to_gpuarray")
    seen = core_view(x)
    strides = seen.strides if strided and not seen.is_c_contiguous() else None
    return gpuarray.GPUArray(seen.shape, seen.dtype, base=x, gpudata=seen.gpudata, strides=strides)


to_pycuda = to_gpuarray


def _address(gpudata: Any) -> int:
    # int, DeviceAllocation, PooledDeviceAllocation, PointerHolderBase, or None for an empty array.
    if gpudata is None:
        return 0
    found = None
    if not isinstance(gpudata, (str, bytes, bytearray, float)):  # int() reads these too
        try:
            found = int(gpudata)
        except (TypeError, ValueError):
            pointer = getattr(gpudata, "get_pointer", None)
            found = int(pointer()) if callable(pointer) else None
    if found is None:
        raise errors.ExchangeError(
            where="from_pycuda",
            expected="gpudata that is an allocation of PyCUDA, its address or None",
            got=f"an object of type {type(gpudata).__name__}",
            fix="make the GPUArray over a driver allocation or its address",
        )
    if not 0 <= found < 1 << 64:
        raise errors.BoundsError(
            where="from_pycuda",
            expected="gpudata with an address from 0 to 2**64 - 1",
            got=errors.short_repr(found),
            fix="make the GPUArray over a driver allocation or its address",
        )
    return found


def _device_of(ptr: int) -> int:
    info = _core.pointer_info(ptr) if ptr else None
    if info is not None:
        return int(info[1])
    driver = sys.modules.get("pycuda.driver")
    return _ordinal(driver.Context.get_device()) if driver is not None and not ptr else 0


def _ordinal(device: Any) -> int:
    # A Device has no ordinal; equal ones compare equal.
    driver = sys.modules["pycuda.driver"]
    for i in range(driver.Device.count()):
        if driver.Device(i) == device:
            return i
    return 0


def describe(g: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    dtype = read_dtype(g.dtype, "from_pycuda")
    shape, strides = read_geometry(g.shape, g.strides, dtype.itemsize, "from_pycuda")
    # An odd slice of GPUArray may keep a pointer although it is empty.
    ptr = 0 if 0 in shape else _address(g.gpudata)
    return ArrayInfo(
        shape, strides, checks.dtype_name(dtype), dtype.itemsize, "cuda", _device_of(ptr), ptr,
        library="pycuda",
    )  # fmt: skip


def _plan_from(g: Any, copyif: bool, where: str) -> tuple[Plan, ArrayInfo]:
    facts = describe(g)
    plan = checks.plan_own(facts, where, copyif)
    info = _core.pointer_info(facts.ptr) if facts.ptr and not plan.refused else None
    if info is None or info[2]:
        return checks.with_memory(plan, facts), facts
    made = "pycuda.autoinit" in sys.modules
    got = "memory of another context" + (": pycuda.autoinit makes one of its own" if made else "")
    plan = refuse(
        "gpuinterop",
        where,
        errors.ContextError,
        f"memory of the primary context of cuda:{facts.index}, where all libraries share it",
        got,
        "import pycuda.autoprimaryctx instead of pycuda.autoinit, at the top of the program",
    )
    return plan, facts


def plan_from(g: Any, copyif: bool = False) -> Plan:
    """Plan `from_pycuda`: what explain() shows and the converter carries out."""
    try:
        return _plan_from(g, copyif, "from_pycuda")[0]
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", "from_pycuda")


def from_pycuda(g: Any, copyif: bool = False) -> Any:
    """Return an array over the memory of the GPUArray `g`.

    Shares every layout by the array's own strides: slices, F order, negative strides, 0-d and empty
    arrays. Copies, with ``copyif=True``, elements off their alignment. The dtype stays. What PyCUDA's
    default stream has queued is visible here. The result keeps `g` alive, as ``result.base``, and
    with it a pool's block or an allocation. Writes on either side are seen by the other.

    Raises
    ------
    ContextError
        The memory belongs to a context other than the primary one (``pycuda.autoinit``).
    """
    copyif = require_bool(copyif, "copyif", "from_pycuda")
    checks.require_foreign(g, "pycuda", "from_pycuda", "a pycuda.gpuarray.GPUArray")
    return _shared(g, copyif, "from_pycuda")


def _shared(g: Any, copyif: bool, where: str) -> Any:
    try:
        # The core checks all of this; the long way below finds the words for what is wrong.
        return _core.borrow(
            None, int(g.gpudata), g.shape, g.strides, g.dtype, checks.CUDA, checks.ANY_DEVICE, g,
            False, checks.LEGACY, where,
        )  # fmt: skip
    except (errors.GpuInteropError, TypeError, ValueError):
        plan, facts = _plan_from(g, copyif, where)
    return checks.execute_import(plan, facts, g)


def to_cudandarray(x: Any, copyif: bool = False) -> Any:
    """Return a CudaNdarray over the memory of `x`: a GPUArray, or any array that is known.

    Shares every layout. Copies, with ``copyif=True``, what cannot be shared, such as a tensor with a
    pending conjugation. Only float32 has a CudaNdarray, and nothing is cast: other dtypes raise
    ValueError. What the library's current or default stream has queued is visible here. The result
    keeps `x` alive, as ``result.base``. Writes on either side are seen by the other; read-only memory
    stays read-only.
    """
    copyif = require_bool(copyif, "copyif", "to_cudandarray")
    if issubclass(type(x), CudaNdarray):
        return x
    row = registry.find_backend(x)
    if row is not None and row.name == "pycuda":
        try:
            return _cudandarray_of(x, copyif)
        except (AttributeError, KeyError) as e:
            if isinstance(e, errors.GpuInteropError):
                raise
            raise lookalike_error(x, "to_cudandarray", e) from e
    from gpuinterop.converters.asking import to_gpuinterop_array  # it may plan by this module

    found = to_gpuinterop_array(x, "cudandarray", copyif, {})
    checks.float32_only(found, "to_cudandarray", _CAST)
    return found if isinstance(found, CudaNdarray) else _core.adopt(CudaNdarray, found)


def _cudandarray_of(x: Any, copyif: bool) -> Any:
    dtype = x.dtype
    if dtype is not _FLOAT32:
        described = read_dtype(dtype, "to_cudandarray")
        if described.isnative:  # swapped bytes are another refusal
            checks.require_float32(described, "to_cudandarray", _CAST)
    found = _shared(x, copyif, "to_cudandarray")
    if not isinstance(found, CudaNdarray):  # a dtype that changed since
        checks.float32_only(found, "to_cudandarray", _CAST)
    return found


_FLOAT32 = numpy.dtype(numpy.float32)
_CAST = "cast first, or take a GpuArray with gpuinterop.from_any"


def kernel(
    function: Callable[..., Any], copyif: bool = False, *, allow_readonly: bool = False
) -> Callable[..., Any]:
    """Return `function`, a kernel of PyCUDA or a RawKernel, made safe for strided arrays.

    PyCUDA gives a kernel nothing but an array's address. The wrapper refuses arrays whose strides
    that would lose; with ``copyif=True`` it hands the kernel compact copies and writes them back
    afterwards. Read-only arrays are refused too, because a kernel may write to any argument, unless
    ``allow_readonly=True`` says that it does not. The launch waits for what is queued on each array.

    Examples
    --------
    >>> multiply = gpuinterop.converters.pycuda.kernel(mod.get_function("multiply"))  # doctest: +SKIP
    >>> multiply(dest, a, b, block=(100, 1, 1))  # doctest: +SKIP
    """
    from gpuinterop.ops.raw_kernel import RawKernel  # conversions do without the operations

    ours = isinstance(function, RawKernel)
    if ours and allow_readonly:
        function = copy.copy(function)
        function.allow_readonly = True  # type: ignore[attr-defined]

    def launch(*args: Any, **options: Any) -> Any:
        handle = None if ours else _handle_of(options.get("stream"))
        with pointer_arguments(
            args,
            copyif=copyif,
            allow_readonly=allow_readonly,
            stream=handle,
            where="pycuda.kernel",
            wrap=None if ours else numpy.uintp,
        ) as prepared:
            return function(*prepared, **options)

    launch.__wrapped__ = function  # type: ignore[attr-defined]
    return launch


def _handle_of(stream: Any) -> int:
    """The handle of a stream that PyCUDA launches on: an object, never a number."""
    if stream is None:
        return checks.LEGACY
    handle = getattr(stream, "handle", None)
    if isinstance(stream, int) or not isinstance(handle, int):
        raise errors.StreamError(
            where="pycuda.kernel",
            expected="stream=None for the default stream, or a pycuda.driver.Stream: PyCUDA takes "
            "no handles and no streams of other libraries",
            got=errors.short_repr(stream),
            fix="leave the stream out, or pass s = pycuda.driver.Stream()",
        )
    return handle or checks.LEGACY


_initialised: list[Any] = []


def init(device: int = 0) -> Any:
    """Set PyCUDA up on the primary context of a device, the one all other libraries use.

    To be called in the main thread: the context is popped at exit, after PyCUDA's caches are cleared.
    Calling again returns the same context. ContextError when PyCUDA already works in another context
    than that device's primary one, and in another thread, whose contexts nobody would pop when it
    ends: there, push one and pop it.
    """
    driver = registry.load("pycuda", "pycuda.init", "pycuda.driver")
    driver.init()
    current = driver.Context.get_current()
    if current is not None:
        fault = context_fault(device, "pycuda.init")
        if fault is not None:
            raise fault.exception()
        return current
    if threading.current_thread() is not threading.main_thread():
        raise errors.ContextError(
            where="pycuda.init",
            expected="the main thread, in which the context is popped at exit",
            got=f"the thread {threading.current_thread().name!r}; PyCUDA ends the process when a "
            "thread ends with a context on its stack",
            fix=f"push one for as long as the thread needs it: {_PUSH.format(device)}",
        )
    context = driver.Device(device).retain_primary_context()
    context.push()
    if not _initialised:
        atexit.register(_undo)
    _initialised.append(context)
    return context


def _undo() -> None:
    tools = sys.modules.get("pycuda.tools")
    if tools is not None:
        # Compiled modules belong to the context and must go first.
        tools.clear_context_caches()
    while _initialised:
        _initialised.pop().pop()

"""PyCUDA: GPUArray over the memory of a gpuinterop array and back, its kernels, and its context.

A GPUArray is built C-contiguous. It can have other strides too, but most of PyCUDA ignores them and reads raw
memory, so a strided GPUArray is made only on request.
"""

from __future__ import annotations

import atexit
import copy
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.errors.arguments import checks_arguments, require_bool
from gpuinterop.exchange import registry
from gpuinterop.exchange.foreign_memory import LEGACY
from gpuinterop.exchange.kernel_pointers import pointer_arguments
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, plan_layout, refuse

ARRAY = "a pycuda.gpuarray.GPUArray"
STREAM = "PyCUDA's default stream"
IMPORTS = "pycuda.gpuarray"
EXAMPLE_SETUP = "context = gpuinterop.converters.pycuda.init()"
TO_NOTE = """``strided=True`` shares every layout: the GPUArray has the strides, which only PyCUDA's slicing, ``get``
and ``view`` honour; its kernels do not. `x` is ``result.base``.

Raises
------
ContiguityError
    `x` is not C-contiguous and neither `copyif` nor `strided` is true.
ContextError
    PyCUDA works in a context of its own (``pycuda.autoinit``)."""
FROM_NOTE = """`obj` is ``result.base``, which keeps a pool's block or an allocation alive.

Raises
------
ContextError
    The memory belongs to a context other than the primary one (``pycuda.autoinit``)."""

RULES = Rules("pycuda", "to_gpuarray", frozenset(NUMPY_NAMES), frozenset({"cuda"}), "c")
_STRIDED = replace(RULES, layout="any")


def context_fault(index: int, where: str) -> Plan | None:
    """Return a plan that raises if PyCUDA does not work in the context to which the memory belongs, else None."""
    if _core.primary_is_current(index):
        return None
    own = "pycuda.autoinit" in sys.modules
    return refuse(
        "pycuda", where, errors.ContextError,
        f"the primary context of cuda:{index} as the current one, because all libraries share memory there",
        "another context" + (", which pycuda.autoinit creates" if own else ", or no context"),
        "import pycuda.autoprimaryctx instead of pycuda.autoinit, or call "
        f"gpuinterop.converters.pycuda.init() once; elsewhere push {_PRIMARY.format(index)}",
    )  # fmt: skip


_PRIMARY = "pycuda.driver.Device({}).retain_primary_context(), and pop it"


def plan_to(
    info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False, strided: bool = False
) -> Plan:
    """Plan a conversion to PyCUDA, which depends on its context."""
    strided = require_bool(strided, "strided", "to_gpuarray")
    plan = plan_layout(info, _STRIDED if strided else RULES, allow_readonly)
    if plan.refused or (plan.copied and not copyif) or not registry.installed("pycuda"):
        return plan
    return context_fault(info.index, "to_gpuarray") or plan


def export(x: Any, gpuarray: Any, strided: bool = False) -> Any:
    """Return a GPUArray over the memory of `x`."""
    # The strides of C order are passed as well, because GPUArray computes them in Python.
    parts = _core.ready_parts(x, LEGACY)
    if parts is not None:
        shape, strides, dtype, ptr = parts
        return gpuarray.GPUArray(shape, dtype, base=x, gpudata=ptr, strides=strides)
    view = core_view(x)
    # Another thread may have another context.
    fault = context_fault(view.device.index, "to_gpuarray")
    if fault is not None:
        raise fault.exception()
    _core.hand_over(x, LEGACY, "to_gpuarray")
    return gpuarray.GPUArray(view.shape, view.dtype, base=x, gpudata=view.ptr, strides=view.strides)


def memory(g: Any) -> tuple[Any, ...]:
    """Read the memory of a GPUArray; the driver finds the device by its address, except for an empty one."""
    data = g.gpudata  # a number, an allocation, a PointerHolderBase, or None for an empty array
    try:
        ptr = int(data or 0)
    except TypeError:
        ptr = int(data.get_pointer())
    return g.shape, g.strides, g.dtype, ptr, -1 if ptr else 0, LEGACY


@checks_arguments("copyif")
def kernel(
    function: Callable[..., Any], copyif: bool = False, *, allow_readonly: bool = False
) -> Callable[..., Any]:
    """Wrap `function`, a kernel of PyCUDA or a RawKernel, so that strided arrays are not read wrongly.

    PyCUDA passes only an array's address to a kernel. The wrapper raises for an array whose strides
    would be lost; with ``copyif=True`` it passes contiguous copies and writes them back
    afterwards. Read-only arrays raise too, because a kernel may write to any argument; pass
    ``allow_readonly=True`` if it does not. The launch waits for the work that is queued on each array.

    Examples
    --------
    >>> multiply = gpuinterop.converters.pycuda.kernel(mod.get_function("multiply"))  # doctest: +SKIP
    >>> multiply(dest, a, b, block=(100, 1, 1))  # doctest: +SKIP
    """
    from gpuinterop.jit.raw_kernel import RawKernel  # conversions do not need the operations

    own = isinstance(function, RawKernel)
    if own and allow_readonly:
        function = copy.copy(function)
        function.allow_readonly = True  # type: ignore[attr-defined]

    def launch(*args: Any, **options: Any) -> Any:
        handle = None if own else _handle_of(options.get("stream"))
        with pointer_arguments(
            args,
            copyif=copyif,
            allow_readonly=allow_readonly,
            stream=handle,
            where="pycuda.kernel",
            wrap=None if own else numpy.uintp,
        ) as prepared:
            return function(*prepared, **options)

    launch.__wrapped__ = function  # type: ignore[attr-defined]
    return launch


def _handle_of(stream: Any) -> int:
    """Return the handle of a stream that PyCUDA launches on: an object, never a number."""
    handle = 0 if stream is None else getattr(stream, "handle", None)
    if isinstance(stream, int) or not isinstance(handle, int):
        raise errors.StreamError(
            where="pycuda.kernel",
            expected="stream=None for the default stream, or a pycuda.driver.Stream, because PyCUDA accepts "
            "no handles and no streams of other libraries",
            got=errors.short_repr(stream),
            fix="omit stream, or pass s = pycuda.driver.Stream()",
        )
    return handle or LEGACY


def init(device: int = 0) -> Any:
    """Initialize PyCUDA with the primary context of a device, which all other libraries use.

    Call it in the main thread: the context is popped at exit, after PyCUDA's caches are cleared.
    A second call returns the same context. Raises ContextError if PyCUDA already works in another context
    than that device's primary one, and in another thread, which would have to pop the context before the
    thread ends: push and pop it explicitly there.
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
            got="another thread; if it ends with a context on its stack, PyCUDA ends the process",
            fix=f"push {_PRIMARY.format(device)} before the thread ends",
        )
    context = driver.Device(device).retain_primary_context()
    context.push()
    atexit.register(_undo, context)
    return context


def _undo(context: Any) -> None:
    tools = sys.modules.get("pycuda.tools")
    if tools is not None:
        # Compiled modules belong to the context and must go first.
        tools.clear_context_caches()
    context.pop()

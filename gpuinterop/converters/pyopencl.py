"""PyOpenCL: every layout is shared with an OpenCL device that computes in host memory; other devices get a copy."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import byte_range, class_for, core_view
from gpuinterop.arrays.dtypes import NAMES, NUMPY_NAMES, as_supported_dtype, name_of
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.devices.foreign_handles import CPU
from gpuinterop.exchange.foreign_memory import OwnerGroup, import_memory, plan_import, read_layout
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, copy_needed, plan_layout, refuse

ARRAY = "a pyopencl.array.Array"
STREAM = "the array's command queue"
IMPORTS = "pyopencl.array"
COPIES = ["arrays for devices with memory of their own"]
EXAMPLE_SETUP = None  # no example, because the option needs an object of the library
TO_NOTE = """`queue` is a ``pyopencl.CommandQueue``, and required. The conversion waits until the queue is idle. The
result has the address and the strides of `x` in its ``base_data``, ``offset`` and ``strides``; kernels read all three.
PyOpenCL's own arithmetic accepts contiguous arrays only. Keep the result while kernels on another queue, sub-buffers of
its ``base_data`` or arguments set on a kernel use it, because OpenCL does not hold host memory.

Read-only memory is refused because an OpenCL device does not enforce the mark."""
FROM_NOTE = """A buffer stays mapped while the result exists. The result sees what later kernels write once the queue is
idle (``queue.finish()``). Arrays of a device with memory of its own, such as a GPU, are downloaded with
``copyif=True``."""

RULES = Rules("pyopencl", "to_pyopencl", frozenset(NUMPY_NAMES), frozenset({"cpu"}))
_FROM = "from_pyopencl"
_IN_HOST_MEMORY = 2  # CL_DEVICE_TYPE_CPU


def computes_on_host(device: Any) -> bool:
    """Return whether an OpenCL device computes in host memory, where a host pointer needs no copy."""
    return bool(device.type & _IN_HOST_MEMORY)


# ---- to PyOpenCL --------------------------------------------------------------------------------


def plan_to(
    info: ArrayInfo, copyif: bool = False, allow_readonly: bool = False, queue: Any = None
) -> Plan:
    """Plan a conversion to PyOpenCL, which depends on the device of the queue."""
    plan = plan_layout(info, RULES, allow_readonly)
    cl = sys.modules.get("pyopencl")
    if plan.refused or (cl is None and queue is not None):
        return plan
    if queue is None or not isinstance(queue, cl.CommandQueue):  # type: ignore[union-attr]
        return refuse(
            "pyopencl", RULES.where, errors.ArgumentTypeError,
            "queue=, a pyopencl.CommandQueue, because an OpenCL array belongs to a context and a queue",
            f"queue={errors.short_repr(queue)}", "pass queue=pyopencl.CommandQueue(context)",
        )  # fmt: skip
    if computes_on_host(queue.device):
        return plan
    contiguous = info.c_contiguous or info.f_contiguous
    copied = copy_needed(
        "pyopencl", RULES.where, info, errors.DeviceMismatchError,
        "a queue of a device that computes in host memory, because others do not read it in place",
        f"a queue of {queue.device.name}", "pass a queue of a CPU device",
    )  # fmt: skip
    # Other layouts are made contiguous on the host first: two copies.
    return replace(copied, bytes=info.nbytes * (1 if contiguous else 2), crosses="host_to_device")


def export(x: Any, array: Any, queue: Any) -> Any:
    """Return a PyOpenCL array over the memory of `x`, or an upload to the device of the queue."""
    view = core_view(x)
    if not view.size:
        return array.Array(queue, view.shape, view.dtype, strides=view.strides)
    if not computes_on_host(queue.device):
        return _uploaded(x, array, queue)
    queue.finish()
    first, end = byte_range(view.ptr, view.shape, view.strides, view.itemsize)
    # A kernel may still be queued although its arguments have been destroyed in Python.
    window = _Window(x, first, end - first, queue.finish)
    flags = sys.modules["pyopencl"].mem_flags
    access = flags.READ_ONLY if view.readonly else flags.READ_WRITE
    buffer = sys.modules["pyopencl"].Buffer(
        queue.context, access | flags.USE_HOST_PTR, hostbuf=numpy.asarray(window)
    )
    return array.Array(
        queue, view.shape, view.dtype, data=buffer, offset=view.ptr - first, strides=view.strides
    )


def _uploaded(x: Any, array: Any, queue: Any) -> Any:
    source = as_numpy_view(x)
    if not (source.flags.c_contiguous or source.flags.f_contiguous):
        source = as_numpy_view(x._copied(RULES.where))
    copy_tracking.report_copy("host_to_device", source.nbytes, RULES.where)
    return array.to_device(queue, source)


class _Window:
    """Bytes in host memory. Holds their owner until the last view of them is destroyed, and then calls `end`."""

    __slots__ = ("__array_interface__", "end", "owner")

    def __init__(self, owner: Any, address: int, nbytes: int, end: Callable[[], Any]) -> None:
        self.owner, self.end = owner, end
        self.__array_interface__ = {
            "version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False),
        }  # fmt: skip

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.end()


# ---- from PyOpenCL ------------------------------------------------------------------------------


def judge(a: Any) -> Plan | None:
    """Plan to copy arrays of devices that do not compute in host memory."""
    device = _queue_of(a).device
    if computes_on_host(device):
        return None
    info = _layout_of(a)
    if info.dtype not in NAMES:
        return plan_import(info, _FROM)
    copied = copy_needed(
        "gpuinterop", _FROM, info, errors.DeviceMismatchError,
        "memory of a device that computes in host memory, because PyOpenCL does not share other memory",
        f"an array on {device.name}",
    )  # fmt: skip
    return replace(copied, crosses="device_to_host")


def describe(a: Any) -> ArrayInfo:
    """Describe an array. It is mapped to find its address, and the map is one of the owners."""
    info = _layout_of(a)
    if not info.size or not computes_on_host(_queue_of(a).device):
        return info
    before, block, readonly = _mapped(a, info)
    address = block.ctypes.data + before
    return replace(info, ptr=address, readonly=readonly, owner=OwnerGroup(a, block))


def adopt(a: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the memory of `a`, or a download of it."""
    if plan.crosses != "device_to_host":
        return import_memory(a, info, plan)
    dtype = as_supported_dtype(info.dtype)
    result: Any = _core.empty(class_for(dtype), info.shape, dtype, CPU, 0)
    if info.size:
        copy_tracking.report_copy("device_to_host", plan.bytes, plan.where)
        before, block, _ = _mapped(a, info, reads_only=True)
        values = numpy.ndarray(info.shape, dtype, block, before, info.strides)
        as_numpy_view(result, written=True)[...] = values
    return result


def _layout_of(a: Any) -> ArrayInfo:
    """Describe an array without its address."""
    dtype = numpy.dtype(a.dtype)
    shape, strides = read_layout(a.shape, a.strides, dtype.itemsize)
    name = name_of(dtype) if dtype.isnative else dtype.str
    return ArrayInfo(shape, strides, name, dtype.itemsize, "cpu", library="pyopencl")


def _queue_of(a: Any) -> Any:
    """Return the queue of an array, or a new one for an array that has only a context."""
    return sys.modules["pyopencl"].CommandQueue(a.context) if a.queue is None else a.queue


def _mapped(a: Any, info: ArrayInfo, reads_only: bool = False) -> tuple[int, Any, bool]:
    """Map the bytes of an array into host memory, once all work on them is done.

    Returns the number of bytes before the first element, the bytes as a NumPy array, which ends the map when it
    is destroyed, and whether the host may only read them.
    """
    cl, memory, queue = sys.modules["pyopencl"], a.base_data, _queue_of(a)
    start, end = byte_range(operator.index(a.offset), info.shape, info.strides, info.itemsize)
    before, nbytes = operator.index(a.offset) - start, end - start
    if memory is None or start < 0 or end > (memory.size or 0):
        size = 0 if memory is None else memory.size
        raise errors.BoundsError(
            where=_FROM, expected=f"an array inside its buffer of {size} bytes",
            got=f"bytes {start} to {end}",
            fix="correct the shape, the offset or the strides of the pyopencl array",
        )  # fmt: skip
    a.finish()
    queue.finish()
    try:
        if isinstance(memory, cl.SVMPointer):
            held = memory.map(
                queue, flags=cl.map_flags.READ | cl.map_flags.WRITE * (not reads_only)
            )
            # The map must have ended before the memory is freed, which does not wait for it.
            window = _Window(a, memory.svm_ptr + start, nbytes, lambda: held.release().wait())
            return before, numpy.asarray(window), False
        readonly = reads_only or bool(memory.flags & cl.mem_flags.HOST_READ_ONLY)
        access = cl.map_flags.READ | cl.map_flags.WRITE * (not readonly)
        block, _ = cl.enqueue_map_buffer(queue, memory, access, start, (nbytes,), numpy.uint8)
    except cl.Error as e:
        raise errors.ExchangeError(
            where=_FROM, expected="memory that OpenCL maps into host memory", got=f"{e}",
            fix="copy it to a buffer that the host can read, without HOST_NO_ACCESS or HOST_WRITE_ONLY",
        ) from e  # fmt: skip
    return before, block, readonly

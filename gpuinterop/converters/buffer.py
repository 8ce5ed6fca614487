"""Python's own buffers: a memoryview over host memory, for files, sockets, hashes, ctypes and MPI.

Consumers that read a buffer as plain bytes expect C order, so the view is C-contiguous; shape, element type
and the read-only flag are those of the array.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import errors
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.converters import numpy as host
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules

ARRAY = "an object with Python's buffer protocol"
STREAM = "the host"
TO_NOTE = """The result is a C-contiguous memoryview; ``.cast("B")`` gives the bytes in one dimension. Move an array
on a GPU first, explicitly: ``x.to_device("cpu")``.

Examples
--------
>>> import gpuinterop
>>> view = gpuinterop.to(gpuinterop.ones((2, 3), device="cpu"), "buffer")
>>> view.shape, view.format, view.nbytes
((2, 3), 'f', 24)"""
FROM_NOTE = "The object cannot be resized while the result is in use."

# The element types that a buffer's format can name.
RULES = Rules("buffer", "to_buffer", frozenset(NUMPY_NAMES), frozenset({"cpu"}), "c", readonly=True)


def export(x: Any, library: Any) -> memoryview:
    """Return a memoryview over the memory of a host array."""
    return memoryview(x)


def _window(obj: Any) -> numpy.ndarray[Any, Any]:
    """Return the buffer as a NumPy array that shares it, of the element type that it names."""
    try:
        return numpy.asarray(memoryview(obj))
    except (TypeError, ValueError) as e:  # not a buffer, a released one, or an unknown format
        raise errors.ExchangeError(
            where="from_buffer",
            expected="an open buffer of numbers",
            got=f"{errors.type_name(obj)}: {e}",
            fix="pass a new memoryview of the object, or cast it: memoryview(obj).cast('B')",
        ) from e


def judge(obj: Any) -> Plan | None:
    """Judge the buffer as NumPy's arrays are judged."""
    window = _window(obj)
    return host.judge_host(window, window, "from_buffer", "buffer")


def describe(obj: Any) -> ArrayInfo:
    """Describe a buffer; the array over it is the owner."""
    window = _window(obj)
    return replace(host.describe(window), library="buffer", owner=window)


def adopt(obj: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the buffer, or a copy of it."""
    return host.adopt(info.owner, info, plan)

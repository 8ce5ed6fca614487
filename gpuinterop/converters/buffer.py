"""Python's own buffers: a memoryview over host memory, for files, sockets, hashes, ctypes and MPI.

What reads a buffer as plain bytes wants them in C order, so that is what the view promises; shape,
element type and the read-only mark travel with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import errors
from gpuinterop.converters import checks
from gpuinterop.converters import numpy as host
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_from_error, plan_layout
from gpuinterop.dtypes import NUMPY_NAMES
from gpuinterop.host_views import as_numpy_view

__all__ = ["describe", "from_buffer", "plan_from", "plan_to", "to_buffer"]

# The element types that a buffer's format can name.
_DTYPES = frozenset(NUMPY_NAMES)
_TO = Rules("buffer", "to_buffer", _DTYPES, frozenset({"cpu"}), "c", readonly=True)


def plan_to(x: Any, copyif: bool = False) -> Plan:
    """Plan `to_buffer`: what explain() shows and the converter carries out."""
    return plan_layout(checks.describe_array(x), _TO, copyif)


def to_buffer(x: Any, copyif: bool = False) -> memoryview:
    """Return a C-contiguous memoryview over the memory of a host array.

    Shares C-contiguous memory. Copies other layouts, with ``copyif=True``; an array on a GPU is moved
    first, in words: ``x.to_device("cpu")``. The dtype stays, as the buffer's format; ``.cast("B")``
    gives the bytes in one dimension. There is no stream to wait for. The view keeps `x` alive. Writes
    on either side are seen by the other; the view of a read-only `x` is read-only.

    Examples
    --------
    >>> import gpuinterop
    >>> view = gpuinterop.to(gpuinterop.ones((2, 3), device="cpu"), "buffer")
    >>> view.shape, view.format, view.nbytes
    ((2, 3), 'f', 24)
    """
    checks.require_array(x, "to_buffer")
    return as_numpy_view(checks.execute_export(x, plan_to(x, copyif))).data


def _window(obj: Any) -> numpy.ndarray[Any, Any]:
    """The buffer as NumPy reads it: sharing, and of whatever element type it names."""
    try:
        return numpy.asarray(memoryview(obj))
    except (TypeError, ValueError) as e:  # no buffer, a released one, or a format of nobody's
        raise errors.ExchangeError(
            where="from_buffer",
            expected="an open buffer of numbers",
            got=f"{type(obj).__module__}.{type(obj).__qualname__}: {e}",
            fix="make a new memoryview of the object, or cast it: memoryview(obj).cast('B')",
        ) from e


def describe(obj: Any) -> ArrayInfo:
    """Describe the foreign buffer; nothing is converted."""
    return replace(host.describe(_window(obj)), library="buffer")


def _plan(obj: Any, window: numpy.ndarray[Any, Any], copyif: bool) -> Plan:
    return host.plan_array(obj, window, copyif, "from_buffer", "buffer")


def plan_from(obj: Any, copyif: bool = False) -> Plan:
    """Plan `from_buffer`: what explain() shows and the converter carries out."""
    try:
        return _plan(obj, _window(obj), copyif)
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", "from_buffer")


def from_buffer(obj: Any, copyif: bool = False) -> Any:
    """Return a host array over the memory of a bytes, bytearray, memoryview, array.array or mmap.

    Shares every layout. Copies, with ``copyif=True``, elements that no array here can hold, off their
    alignment or of foreign byte order. The dtype is what the buffer's format names. There is no
    stream to wait for. The result keeps the object alive, which cannot be resized meanwhile. Writes
    on either side are seen by the other; where the buffer is read-only, so is the result.
    """
    checks.require_foreign(obj, "buffer", "from_buffer", "an object with Python's buffer protocol")
    window = _window(obj)
    return host.execute_import(window, window, _plan(obj, window, copyif))

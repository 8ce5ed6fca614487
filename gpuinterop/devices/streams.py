"""Streams by name, and the current stream; `gpuinterop.devices` exports them.

Work on a GPU goes to the thread's current stream, the legacy default stream unless ``with stream:``
sets another.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuinterop import _core
from gpuinterop._core import Stream
from gpuinterop.errors import StreamError, short_repr

from .device_spec import gpu
from .foreign_handles import CUDA, as_int, never_destroyed, stream_device, stream_handle


@cache
def _stream_of(index: int, handle: int) -> Stream:
    return _core.foreign_stream(CUDA, index, handle, None)


def legacy_stream(device: Any = None) -> Stream:
    """Return a device's legacy default stream, which waits for all other blocking ones."""
    place = gpu(device)
    return _stream_of(place.index, 1) if place.type == "cuda" else Stream(place)


def per_thread_stream(device: Any = None) -> Stream:
    """Return a device's per-thread default stream: another stream in every thread that uses it."""
    place = gpu(device)
    return _stream_of(place.index, 2) if place.type == "cuda" else Stream(place)


def current_stream(device: Any = None) -> Stream:
    """Return the current stream of this thread on a device."""
    place = gpu(device)
    found = _core.entered_stream(place.type_code, place.index)
    if found is not None:
        return found
    if place.type == "cpu":
        return Stream(place)
    return as_stream(_core.current_stream_handle(place.index), place)


def as_stream(stream: Any = None, device: Any = None) -> Stream:
    """Return `stream` as a `Stream`; another library's stream object is kept alive.

    Parameters
    ----------
    stream : a `Stream`, an object with ``__cuda_stream__``, ``.cuda_stream`` (torch), ``.ptr``
        (CuPy) or ``.handle`` (PyCUDA, Numba, cuda.core), or a handle as an int. None, 0 and 1 are
        the legacy default stream, 2 the per-thread one.
    device : the stream's device, for the default streams; the driver reports that of the others.

    Raises
    ------
    StreamError
        `stream` is not a stream.
    ContextError
        A stream of a CUDA context that is not a device's primary one.
    """
    if isinstance(stream, Stream):
        return stream
    if stream is None:
        return legacy_stream(device)
    handle = stream_handle(stream)
    if handle is None or not 0 <= handle < 2**64:
        kind = type(stream)
        raise StreamError(
            where="stream",
            expected="a stream: an object with __cuda_stream__, .cuda_stream, .ptr or .handle, "
            "a handle as an int from 0 to 2**64 - 1, or None",
            got=f"{short_repr(stream)} of type {kind.__module__}.{kind.__qualname__}"
            + ("" if handle is None else f", handle {short_repr(handle)}"),
            fix="pass the stream object of the other library, or gpuinterop.Stream()",
        )
    if handle in (0, 1, 2):
        place = gpu(device if device is not None else stream_device(stream))
        return per_thread_stream(place) if handle == 2 else legacy_stream(place)
    index = _core.stream_device(handle)
    keeper = None if as_int(stream) is not None else stream
    return _core.foreign_stream(CUDA, index, handle, keeper, never_destroyed(stream))


# For ``with stream(s):``, which makes it current in gpuinterop only; `gpuinterop.stream` does in other libraries too.
stream = as_stream

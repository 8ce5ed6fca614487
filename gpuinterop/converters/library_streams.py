"""One current stream for all loaded libraries.

``with gpuinterop.stream(s)`` makes `s` current here and in every library that has such a notion and
is loaded. PyCUDA, Numba, JAX, TensorFlow and cuda.core have none: their calls take a stream, or use
the default one. The converters order a conversion by events; gpuinterop does not order what such a
library queues later on its own stream (docs/devices.md, "Streams").
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from gpuinterop import _core
from gpuinterop._core import Stream, StreamScope
from gpuinterop.converters.foreign_layout import LEGACY
from gpuinterop.foreign_handles import loaded_module
from gpuinterop.streams import as_stream


def _torch(torch: Any, stream: Any) -> AbstractContextManager[Any] | None:
    if torch.version.cuda is None:
        return None
    index = stream.device.index
    if stream.handle == LEGACY:
        s = torch.cuda.default_stream(index)
    else:
        s = torch.cuda.ExternalStream(stream.handle, device=index)
    return torch.cuda.stream(s)  # type: ignore[no-any-return]


def _cupy(cupy: Any, stream: Any) -> AbstractContextManager[Any]:
    index = stream.device.index
    if stream.handle == LEGACY:
        s = cupy.cuda.Stream.null
    elif hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14 on; the other way warns there
        s = cupy.cuda.Stream.from_external(stream)
    else:
        s = cupy.cuda.ExternalStream(stream.handle, index)
    stack = ExitStack()
    # CuPy enters a stream on its own current device.
    stack.enter_context(cupy.cuda.Device(index))
    stack.enter_context(s)
    return stack


def _tvm_ffi(tvm_ffi: Any, stream: Any) -> AbstractContextManager[Any]:
    device = tvm_ffi.device("cuda", stream.device.index)
    return tvm_ffi.use_raw_stream(device, _with_zero(stream.handle))  # type: ignore[no-any-return]


def _warp(warp: Any, stream: Any) -> AbstractContextManager[Any] | None:
    if not warp.is_cuda_available():
        return None
    s = warp.Stream(f"cuda:{stream.device.index}", cuda_stream=_with_zero(stream.handle))
    return warp.ScopedStream(s, sync_enter=False)  # type: ignore[no-any-return]


def _with_zero(handle: int) -> int:
    """Return the handle with 0 for the legacy stream, the library's own default."""
    return 0 if handle == LEGACY else handle


# How each library makes a stream current: (module, gpuinterop stream) -> context manager, or None
# when the library as it is built has no GPU. Another package may add its own.
ENTERS: dict[str, Callable[[Any, Any], AbstractContextManager[Any] | None]] = {
    "torch": _torch,
    "cupy": _cupy,
    "tvm_ffi": _tvm_ffi,
    "warp": _warp,
}


def enter_libraries(s: Stream) -> ExitStack:
    """Make `s` current in every loaded library; closing the result restores each library's former one."""
    device: Any = s.device
    with ExitStack() as stack:
        if _core.cuda_available():
            # Other libraries leave their own context current, so restore the caller's.
            stack.callback(_core.set_current_context, _core.current_context())
        for name, enter in ENTERS.items() if device.type == "cuda" else ():
            module = loaded_module(name)
            scope = enter(module, s) if module is not None else None
            if scope is not None:
                stack.enter_context(scope)
        # The scopes are already entered, so the returned stack only exits them.
        return stack.pop_all()


def stream(stream: Any = None, device: Any = None) -> StreamScope:
    """Return a context manager that makes a stream current in this thread for a block.

    `stream` is anything that `gpuinterop.devices.as_stream` takes. ``with`` gives the `Stream`. It
    becomes current here and in every loaded library that has a current stream; ``with s:`` on a
    `Stream` itself does it for this library alone. One such object may be entered several times, and
    in several threads.
    """
    return StreamScope(as_stream(stream, device), enter_libraries)

"""One current stream for all loaded libraries.

``with gpuinterop.stream(s)`` makes `s` current here and in every library that has such a notion and
is loaded. PyCUDA, Numba, JAX, TensorFlow and cuda.core have none: their calls take a stream, or use
the default one, and the converters order them by events.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import gpuinterop.devices as devices
from gpuinterop.devices import Stream, stream
from gpuinterop.foreign import loaded

__all__ = ["ENTERS", "enter_libraries", "stream"]

LEGACY, PER_THREAD = 1, 2  # the driver's own handles of the default streams


def _torch(torch: Any, handle: int, index: int) -> AbstractContextManager[Any] | None:
    if torch.version.cuda is None:
        return None
    if handle == LEGACY:
        s = torch.cuda.default_stream(index)
    else:
        s = torch.cuda.ExternalStream(handle, device=index)
    return torch.cuda.stream(s)  # type: ignore[no-any-return]


def _cupy(cupy: Any, handle: int, index: int) -> AbstractContextManager[Any]:
    if handle == LEGACY:
        s = cupy.cuda.Stream.null
    elif handle == PER_THREAD:
        s = cupy.cuda.Stream.ptds
    elif hasattr(cupy.cuda.Stream, "from_external"):
        # CuPy 14 on; the other way warns there.
        s = cupy.cuda.Stream.from_external(_Named(handle))
    else:
        s = cupy.cuda.ExternalStream(handle, index)
    stack = ExitStack()
    # CuPy enters a stream on its own current device.
    stack.enter_context(cupy.cuda.Device(index))
    stack.enter_context(s)
    return stack


class _Named:
    """A stream by its handle, in the form that CuPy asks for."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _tvm_ffi(tvm_ffi: Any, handle: int, index: int) -> AbstractContextManager[Any]:
    # 0 is the legacy stream there too, and its own default.
    number = 0 if handle == LEGACY else handle
    return tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", index), number)  # type: ignore[no-any-return]


def _warp(warp: Any, handle: int, index: int) -> AbstractContextManager[Any] | None:
    if not warp.is_cuda_available():
        return None
    number = 0 if handle == LEGACY else handle
    s = warp.Stream(f"cuda:{index}", cuda_stream=number)
    return warp.ScopedStream(s, sync_enter=False)  # type: ignore[no-any-return]


# How each library makes a stream current: (module, handle, device number) -> context manager, or None
# when the library as it is built has no GPU. Another package may add its own.
ENTERS: dict[str, Callable[[Any, int, int], AbstractContextManager[Any] | None]] = {
    "torch": _torch,
    "cupy": _cupy,
    "tvm_ffi": _tvm_ffi,
    "warp": _warp,
}


def enter_libraries(s: Stream) -> AbstractContextManager[Any]:
    """Make `s` current in every loaded library; leaving restores each library's former one."""
    device: Any = s.device
    stack = ExitStack()
    if device.type != "cuda":
        return stack
    with stack:
        for name, enter in ENTERS.items():
            module = loaded(name)
            scope = enter(module, s.handle, device.index) if module is not None else None
            if scope is not None:
                stack.enter_context(scope)
        # Entered already: what is handed out only leaves them again.
        return stack.pop_all()


devices.stream_hooks.append(enter_libraries)

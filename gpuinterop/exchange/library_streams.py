"""One current stream for all loaded libraries.

``with gpuinterop.stream(s)`` makes `s` current here and in every library that has such a notion and
is loaded. PyCUDA, Numba, JAX, TensorFlow and cuda.core have none: their calls take a stream, or use
the default one. The converters order a conversion by events; gpuinterop does not order what such a
library queues later on its own stream (docs/understand/streams.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from gpuinterop import _core
from gpuinterop._core import Stream
from gpuinterop.devices.foreign_handles import loaded_module
from gpuinterop.devices.streams import as_stream

from .foreign_memory import LEGACY

# Functions that set the current stream of a library and restore it, as _core.Block takes them. An interrupt may come
# while a function runs, so that each gives the same result when it is called again.
Changes = list[tuple[Callable[[], object], Callable[[], object]]]


def torch_changes(torch: Any, stream: Any, index: int) -> Changes:
    """Return what makes a stream of torch current, and its device."""
    use, here, there = (
        torch.cuda.set_stream, torch.cuda.current_stream(), torch.cuda.current_stream(index)
    )  # fmt: skip
    return [(partial(use, here), partial(use, here)), (partial(use, stream), partial(use, there))]


def _torch(torch: Any, stream: Any) -> Changes:
    if torch.version.cuda is None:
        return []
    index = stream.device.index
    if stream.handle == LEGACY:
        return torch_changes(torch, torch.cuda.default_stream(index), index)
    return torch_changes(torch, torch.cuda.ExternalStream(stream.handle, device=index), index)


def _cupy(cupy: Any, stream: Any) -> Changes:
    index = stream.device.index
    if stream.handle == LEGACY:
        s = cupy.cuda.Stream.null
    elif hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14 on; the other way warns there
        s = cupy.cuda.Stream.from_external(stream)
    else:
        s = cupy.cuda.ExternalStream(stream.handle, index)
    # CuPy enters a stream on its own current device. These functions are compiled: no interrupt ends them.
    return [
        (cupy.cuda.Device(index).use, cupy.cuda.Device().use),
        (s.__enter__, partial(s.__exit__, None, None, None)),
    ]


def _tvm_ffi(tvm_ffi: Any, stream: Any) -> Changes:
    device = tvm_ffi.device("cuda", stream.device.index)
    former = tvm_ffi.get_raw_stream(device)
    new = _with_zero(stream.handle)
    use = tvm_ffi.use_raw_stream
    return [(use(device, new).__enter__, use(device, former).__enter__)]


def _warp(warp: Any, stream: Any) -> Changes:
    if not warp.is_cuda_available():
        return []
    device = f"cuda:{stream.device.index}"
    new, former = (
        warp.Stream(device, cuda_stream=_with_zero(stream.handle)), warp.get_stream(device)
    )  # fmt: skip
    return [(partial(warp.set_stream, new, device), partial(warp.set_stream, former, device))]


def _with_zero(handle: int) -> int:
    """Return the handle with 0 for the legacy stream, the library's own default."""
    return 0 if handle == LEGACY else handle


# How each library makes a stream current: (module, gpuinterop stream) -> changes, none when the library as it is
# built has no GPU. Another package may add its own.
ENTERS: dict[str, Callable[[Any, Any], Changes]] = {
    "torch": _torch,
    "cupy": _cupy,
    "tvm_ffi": _tvm_ffi,
    "warp": _warp,
}


def changes_in_libraries(s: Stream) -> Changes:
    """Return what makes `s` current in every loaded library, and what restores each library's stream of now."""
    device: Any = s.device
    if device.type != "cuda":
        return []
    # Other libraries leave their own context current, so restore the caller's.
    context = partial(_core.set_current_context, _core.current_context())
    changes: Changes = [(context, context)]
    try:
        for name, enter in ENTERS.items():
            module = loaded_module(name)
            if module is not None:
                changes += enter(module, s)
    except BaseException:
        # A first question starts CUDA in some libraries, which makes their context current.
        context()
        raise
    return changes


def stream(stream: Any = None, device: Any = None) -> AbstractContextManager[Stream]:
    """Return a context manager that makes a stream current in this thread for a block.

    `stream` is anything that `gpuinterop.devices.as_stream` takes. ``with`` gives the `Stream`. It
    becomes current here and in every loaded library that has a current stream; ``with s:`` on a
    `Stream` itself does it for this library alone. One such object may be entered several times, and
    in several threads.

    Examples
    --------
    >>> import gpuinterop
    >>> with gpuinterop.stream(gpuinterop.Stream("cpu")):
    ...     y = gpuinterop.ones(3, device="cpu") + 1
    """
    s = as_stream(stream, device)
    return _core.Block(
        (s.__enter__, s.__exit__), result=s, per_entry=partial(changes_in_libraries, s)
    )

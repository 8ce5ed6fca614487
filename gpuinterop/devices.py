"""Devices and streams: what names them, what is current, how much memory they have.

A device is written "cpu", "cuda", "cuda:1", "gpu0", as an int, a DLPack pair, or as another library's
device object. The default is GPUINTEROP_DEVICE, else the first GPU, else the CPU; ``with device:``
changes it for a block. Work on a GPU goes to the thread's current stream, the legacy default stream
unless ``with stream:`` says otherwise.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from functools import cache
from types import TracebackType
from typing import Any

from gpuinterop import _core
from gpuinterop._core import Event, Stream
from gpuinterop.errors import CudaError, DeviceError, StreamError
from gpuinterop.foreign import (
    CPU,
    CUDA,
    DLPACK,
    NAMES,
    as_int,
    device_pair,
    stream_device,
    stream_handle,
)

__all__ = [
    "Device",
    "Event",
    "Stream",
    "StreamScope",
    "as_stream",
    "current_stream",
    "default_device",
    "device",
    "device_properties",
    "devices",
    "empty_cache",
    "from_codes",
    "legacy_stream",
    "mem_info",
    "memory_stats",
    "per_thread_stream",
    "reset_peak_memory",
    "set_default_device",
    "show_config",
    "stream",
    "stream_hooks",
    "synchronize",
]

_SPELLING = re.compile(r"(cpu|host|cuda|gpu):?(\d+)?", re.IGNORECASE)
_ACCEPTED = '"cpu", "cuda", "cuda:1", "gpu0", an int, (type, id) or another library\'s device'


class Device:
    """One place for arrays: the CPU, or one GPU. Equal to its own name: ``x.device == "cuda:0"``.

    ``with device:`` makes it the default for the block, in the running thread or task.
    """

    __slots__ = ("index", "type", "type_code")

    type: str
    index: int
    type_code: int

    def __new__(cls, spec: Any = None) -> Device:
        """Return what `device` returns for `spec`; there is one object for each device."""
        return device(spec)

    @property
    def id(self) -> int:
        """The index, under the name that CuPy and JAX use."""
        return self.index

    @property
    def name(self) -> str:
        """The product's name."""
        return str(device_properties(self)["name"]) if self.type == "cuda" else "cpu"

    def synchronize(self) -> None:
        """Wait until everything queued on this device is done."""
        synchronize(self)

    def __enter__(self) -> Device:
        _blocks.set((*_blocks.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        _blocks.set(_blocks.get()[:-1])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return self is other if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (from_codes, (self.type_code, self.index))

    def __str__(self) -> str:
        return "cpu" if self.type == "cpu" else f"cuda:{self.index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"


@cache
def from_codes(type_code: int, index: int) -> Device:
    """Return the device of a DLPack type code and number. Whether it exists is not asked."""
    made = object.__new__(Device)
    made.type_code = DLPACK[type_code]
    made.type = "cpu" if made.type_code == CPU else "cuda"
    made.index = 0 if made.type_code == CPU else index
    return made if made.type_code == type_code else from_codes(made.type_code, made.index)


# ---- the default -------------------------------------------------------------------------------

_blocks: ContextVar[tuple[Device, ...]] = ContextVar("gpuinterop_default_devices", default=())
_lock = threading.Lock()
_process_default: Device | None = None


def default_device() -> Device:
    """Return where arrays go when no device is named.

    That of the innermost ``with device:``, else what `set_default_device` set, else
    GPUINTEROP_DEVICE, else the first GPU, else the CPU.
    """
    blocks = _blocks.get()
    if blocks:
        return blocks[-1]
    return _process_default or _find_default()


def _find_default() -> Device:
    global _process_default
    wish = os.environ.get("GPUINTEROP_DEVICE", "").strip()
    if wish:
        try:
            found = device(wish)
        except DeviceError as error:
            raise DeviceError(
                where="GPUINTEROP_DEVICE",
                expected=error.expected,
                got=f"{wish!r}: {error.got}",
                fix="unset GPUINTEROP_DEVICE or name a device that exists",
            ) from None
    elif _core.cuda_forked():
        # The parent had a GPU. Going on with the CPU would change the device silently.
        raise _no_cuda("default_device", CudaError)
    else:
        found = from_codes(CUDA, 0) if _core.cuda_device_count() else from_codes(CPU, 0)
    with _lock:
        _process_default = _process_default or found
    return _process_default


def set_default_device(spec: Any) -> None:
    """Set the default for the whole process; None goes back to GPUINTEROP_DEVICE or the first GPU."""
    global _process_default
    chosen = None if spec is None else device(spec)
    with _lock:
        _process_default = chosen


# ---- naming a device ---------------------------------------------------------------------------


def device(spec: Any = None) -> Device:
    """Return the device that `spec` names; it exists.

    Parameters
    ----------
    spec : a `Device`, None for the default, "cpu", "cuda" (the default if that is a GPU, else the
        first one), "cuda:1", "gpu1", an int for a GPU's number, a pair as ``__dlpack_device__``
        returns it, or the device object of torch, CuPy, JAX, cuda.core and others of their shape.

    Raises
    ------
    DeviceError
        No such device, or not a device that arrays here can live on.

    Examples
    --------
    >>> from gpuinterop.devices import device
    >>> device("cpu")
    Device('cpu')
    >>> device((1, 0)) == "cpu"
    True
    """
    if type(spec) is Device:
        return spec
    if spec is None:
        return default_device()
    if isinstance(spec, str):
        match = _SPELLING.fullmatch(spec.strip())
        if match is None:
            raise _unknown(spec)
        number = match[2]
        return _checked(NAMES[match[1].lower()], None if number is None else int(number), spec)
    number = as_int(spec)
    if number is not None:
        return _checked(CUDA, number, spec)
    pair = device_pair(spec)
    if pair is None:
        raise _unknown(spec)
    return _checked(*pair, spec)


_resolve = device  # for functions with an argument of that name


def _checked(code: int, index: int | None, spec: Any) -> Device:
    if code == CPU:
        if index:
            raise DeviceError(
                where="device",
                expected="one CPU, number 0",
                got=repr(spec),
                fix='write "cpu"',
            )
        return from_codes(CPU, 0)
    if index is None:
        # Not default_device(), which may be asking what GPUINTEROP_DEVICE=cuda means.
        blocks = _blocks.get()
        default = blocks[-1] if blocks else _process_default
        index = default.index if default is not None and default.type == "cuda" else 0
    count = _core.cuda_device_count()
    if not count:
        raise _no_cuda("device", CudaError if _core.cuda_forked() else DeviceError, spec)
    if not 0 <= index < count:
        numbers = "0" if count == 1 else f"0 to {count - 1}"
        raise DeviceError(
            where="device",
            expected=f"a CUDA device number from {numbers}",
            got=repr(spec),
            fix="gpuinterop.devices() lists what there is; CUDA_VISIBLE_DEVICES may hide devices",
        )
    return from_codes(CUDA, index)


def _unknown(spec: Any) -> DeviceError:
    return DeviceError(
        where="device",
        expected=_ACCEPTED,
        got=f"{spec!r} of type {type(spec).__module__}.{type(spec).__qualname__}",
        fix='write "cpu" or "cuda:N"; gpuinterop.devices() lists what there is',
    )


def _no_cuda(where: str, kind: type[Any], spec: Any = None) -> Any:
    forked = _core.cuda_forked()
    return kind(
        where=where,
        expected="a CUDA driver that answers",
        got=("" if spec is None else f"{spec!r}, but ") + _core.cuda_unavailable_reason(),
        fix='start workers with multiprocessing.get_context("spawn")'
        if forked
        else 'install the NVIDIA driver, or use device="cpu"',
    )


def devices() -> tuple[Device, ...]:
    """Return every device of this machine, the CPU first."""
    gpus = (from_codes(CUDA, i) for i in range(_core.cuda_device_count()))
    return (from_codes(CPU, 0), *gpus)


# ---- streams -----------------------------------------------------------------------------------

# A later layer adds functions here. Each gets the Stream that `stream` enters and returns a context
# manager, entered with it, which makes the stream current in another library too.
stream_hooks: list[Callable[[Stream], AbstractContextManager[Any]]] = []


@cache
def _stream_of(index: int, handle: int) -> Stream:
    return _core.foreign_stream(CUDA, index, handle, None)


def _gpu(spec: Any) -> Device:
    """The GPU meant by a stream's device argument."""
    if spec is not None:
        return device(spec)
    default = default_device()
    return default if default.type == "cuda" or not _core.cuda_device_count() else device("cuda")


def legacy_stream(device: Any = None) -> Stream:
    """Return a device's legacy default stream, which waits for all other blocking ones."""
    place = _gpu(device)
    return _stream_of(place.index, 1) if place.type == "cuda" else Stream(place)


def per_thread_stream(device: Any = None) -> Stream:
    """Return a device's per-thread default stream: another stream in every thread that uses it."""
    place = _gpu(device)
    return _stream_of(place.index, 2) if place.type == "cuda" else Stream(place)


def current_stream(device: Any = None) -> Stream:
    """Return the stream on which this thread's work on a device goes."""
    place = _gpu(device)
    if place.type == "cpu":
        return Stream(place)
    found = _core.entered_stream(place.type_code, place.index)
    if found is not None:
        return found
    return as_stream(_core.current_stream_handle(place.index), place)


def as_stream(stream: Any = None, device: Any = None) -> Stream:
    """Return `stream` as a `Stream`; a foreign one stays its owner's, and is kept alive.

    Parameters
    ----------
    stream : a `Stream`, an object with ``__cuda_stream__``, ``.cuda_stream`` (torch), ``.ptr``
        (CuPy) or ``.handle`` (PyCUDA, Numba, cuda.core), or a handle as an int. None, 0 and 1 are
        the legacy default stream, 2 the per-thread one.
    device : the stream's device, for the default streams; others are known to the driver.

    Raises
    ------
    StreamError
        Not a stream.
    ContextError
        A stream of a CUDA context that is not a device's primary one.
    """
    if isinstance(stream, Stream):
        return stream
    if stream is None:
        return legacy_stream(device)
    handle = stream_handle(stream)
    if handle is None or handle < 0:
        raise StreamError(
            where="stream",
            expected="a stream: an object with __cuda_stream__, .cuda_stream, .ptr or .handle, "
            "a handle as an int, or None",
            got=f"{stream!r} of type {type(stream).__module__}.{type(stream).__qualname__}",
            fix="pass the stream object of the other library, or gpuinterop.Stream()",
        )
    if handle in (0, 1, 2):
        place = _gpu(device if device is not None else stream_device(stream))
        return per_thread_stream(place) if handle == 2 else legacy_stream(place)
    index = _core.stream_device(handle)
    owner = None if as_int(stream) is not None else stream
    return _core.foreign_stream(CUDA, index, handle, owner)


class StreamScope:
    """What `stream` returns: enters a stream here and, through `stream_hooks`, elsewhere."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._stack: list[ExitStack] = []

    def __enter__(self) -> Stream:
        with ExitStack() as stack:
            stack.enter_context(self.stream)
            for hook in stream_hooks:
                stack.enter_context(hook(self.stream))
            self._stack.append(stack.pop_all())
        return self.stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.pop().__exit__(kind, error, trace)


def stream(stream: Any = None, device: Any = None) -> StreamScope:
    """Return a context manager that makes a stream current in this thread for a block.

    `stream` is anything that `as_stream` takes. ``with`` gives the `Stream`. ``with s:`` on a
    `Stream` itself does the same for this library alone.
    """
    return StreamScope(as_stream(stream, device))


# ---- memory and waiting ------------------------------------------------------------------------


def _started(spec: Any) -> list[Device]:
    """The GPUs that a call with an optional device means: by default all that are in use."""
    if spec is not None:
        place = _resolve(spec)
        return [place] if place.type == "cuda" else []
    return [from_codes(CUDA, i) for i in range(_core.cuda_device_count()) if _core.cuda_started(i)]


def synchronize(device: Any = None) -> None:
    """Wait until all work queued on a device is done; on every GPU in use, if none is named."""
    for place in _started(device):
        _core.cuda_synchronize(place.index)


def empty_cache(device: Any = None) -> None:
    """Give memory that is kept for later arrays back to the system; waits for the device."""
    for place in _started(device):
        _core.cuda_empty_cache(place.index)


def mem_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of a device; on the CPU, of the machine's memory."""
    place = _resolve(device)
    if place.type == "cuda":
        return _core.cuda_mem_info(place.index)
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return what this library holds on a device.

    `live_bytes`, `live_buffers`, `live_arrays`, `peak_bytes`: allocated here and in use;
    `cached_bytes`: kept for the next array; `pool_bytes`: what the driver's pool has taken from the
    device, for all libraries that allocate from it.
    """
    place = _resolve(device)
    return _core.memory_statistics(place.type_code, place.index)


def reset_peak_memory(device: Any = None) -> None:
    """Make `peak_bytes` what is live now."""
    place = _resolve(device)
    _core.reset_peak(place.type_code, place.index)


def device_properties(device: Any = None) -> dict[str, Any]:
    """Return a GPU's properties under the names of the CUDA runtime's structure."""
    place = _gpu(device)
    if place.type == "cpu":
        raise _no_cuda("device_properties", DeviceError)
    return _core.cuda_device_properties(place.index)


# ---- what there is -----------------------------------------------------------------------------


def config() -> dict[str, Any]:
    """Return what this library found on this machine, for reports."""
    import platform  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    from gpuinterop import libs  # noqa: PLC0415

    version = _core.cuda_driver_version()
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "driver": f"{version // 1000}.{version % 1000 // 10}" if version else None,
        "libcuda": _core.cuda_library_path() or None,
        "devices": [f"{place} {place.name}" for place in devices()],
        "default device": str(default_device()),
        "libraries": {name: libs.describe(name) for name in libs.NAMES},
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("GPUINTEROP_")},
    }
    if not _core.cuda_available():
        found["no CUDA because"] = _core.cuda_unavailable_reason()
    return found


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Print what this library found on this machine, or return it with ``mode="dicts"``."""
    found = config()
    if mode == "dicts":
        return found
    for key, value in found.items():
        if isinstance(value, dict):
            value = "".join(f"\n  {name}: {text}" for name, text in value.items()) or "none"
        elif isinstance(value, list):
            value = ", ".join(value)
        print(f"{key}: {value}")
    return None

"""Devices and streams. Called, as ``gpuinterop.devices()``, the module lists all devices, the CPU first.

A device is written "cpu", "cuda", "cuda:1", "gpu0", as an int, a DLPack pair, or as another library's
device object. The default is GPUINTEROP_DEVICE, else the first GPU, else the CPU; ``with device:``
changes it for a block. Work on a GPU goes to the thread's current stream, the legacy default stream
unless ``with stream:`` sets another.
"""

from __future__ import annotations

from typing import Any

from gpuinterop import _core
from gpuinterop._core import Event, Stream
from gpuinterop.errors import DeviceError
from gpuinterop.errors.context import host_memory

from .device_spec import (
    Device,
    default_device,
    device,
    device_from_dlpack,
    devices,
    gpu,
    no_cuda,
    set_default_device,
)
from .foreign_handles import CUDA
from .streams import as_stream, current_stream, legacy_stream, per_thread_stream, stream

__all__ = [
    "Device",
    "Event",
    "Stream",
    "as_stream",
    "current_stream",
    "default_device",
    "device",
    "device_properties",
    "devices",
    "empty_cache",
    "device_from_dlpack",
    "legacy_stream",
    "mem_info",
    "memory_stats",
    "per_thread_stream",
    "reset_peak_memory",
    "set_default_device",
    "stream",
    "synchronize",
]


def __dir__() -> list[str]:
    return __all__


_device = device  # for functions with an argument of that name

# ---- memory and waiting ------------------------------------------------------------------------


def _started(spec: Any) -> list[Device]:
    """Return the GPU that `spec` names, or all GPUs in use."""
    if spec is not None:
        place = _device(spec)
        return [place] if place.type == "cuda" else []
    return [
        device_from_dlpack(CUDA, i)
        for i in range(_core.cuda_device_count())
        if _core.cuda_started(i)
    ]


def synchronize(device: Any = None) -> None:
    """Wait until all work queued on a device is done, by default on every GPU in use.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.synchronize("cpu")
    """
    for place in _started(device):
        _core.cuda_synchronize(place.index)


def empty_cache(device: Any = None) -> None:
    """Return cached memory to the system; waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.empty_cache("cpu")
    """
    for place in _started(device):
        _core.cuda_empty_cache(place.index)


def mem_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of a device; on the CPU, of the machine's memory.

    The driver reports free memory only inside a context, so this creates the context of an unused GPU.

    Examples
    --------
    >>> import gpuinterop
    >>> free, total = gpuinterop.mem_info("cpu")
    >>> 0 < free <= total
    True
    """
    place = _device(device)
    if place.type == "cuda":
        return _core.cuda_mem_info(place.index)
    return host_memory()


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return the memory that gpuinterop holds on a device.

    `live_bytes`, `live_buffers`, `live_arrays`, `peak_bytes`: allocated and in use; `cached_bytes`:
    kept for the next array; `pool_bytes`: memory of the driver's pool, for all libraries that use it.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros(1000, device="cpu")
    >>> gpuinterop.memory_stats("cpu")["live_bytes"] >= 4000
    True
    """
    place = _device(device)
    return _core.memory_statistics(place.type_code, place.index)


def reset_peak_memory(device: Any = None) -> None:
    """Set `peak_bytes` to the current `live_bytes`."""
    place = _device(device)
    _core.reset_peak(place.type_code, place.index)


def device_properties(device: Any = None) -> dict[str, Any]:
    """Return a GPU's properties under the names of the CUDA runtime's structure."""
    place = gpu(device)
    if place.type == "cpu":
        raise no_cuda("device_properties", DeviceError)
    return _core.cuda_device_properties(place.index)


def resolve_device(device: Any, where: str) -> Device:
    """Return the device that `device` names; an error names `where`."""
    try:
        return _device(device)
    except DeviceError as error:
        raise error.changed(where=where) from None

"""Devices and stream handles of other libraries' objects, read by attributes; imports no library."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

CPU, CUDA = 1, 2
# DLPack's device types: pinned memory counts as the host's, managed memory as the GPU's.
DLPACK = {1: CPU, 2: CUDA, 3: CPU, 13: CUDA}
NAMES = {"cpu": CPU, "host": CPU, "cuda": CUDA, "gpu": CUDA, "kdlcpu": CPU, "kdlcuda": CUDA}


def loaded_module(name: str) -> Any:
    """Return the module `name` if it is loaded, else None.

    While another thread imports it, this waits, as an import statement does, because a partly imported
    library lacks names that a conversion needs.
    """
    return importlib.import_module(name) if is_being_imported(name) else sys.modules.get(name)


def is_being_imported(name: str) -> bool:
    """Return whether the import of a module is running in any thread."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def module_of(cls: type) -> str:
    """Return the `__module__` of a class, "" if it is not a string.

    In classes of object proxies it is a property, for the wrapped object.
    """
    name: Any = getattr(cls, "__module__", None)
    return name if isinstance(name, str) else ""


def as_int(value: Any) -> int | None:
    """Return the int of an int-like value (also DLPack's enums) that is not a bool, else None."""
    if isinstance(value, (bool, np.bool)) or not hasattr(type(value), "__index__"):
        return None
    try:
        return int(value.__index__())
    except TypeError:  # an array has __index__, but it works for one int only
        return None


def device_pair(spec: Any) -> tuple[int, int | None] | None:
    """Return (CPU or CUDA, number or None) of a pair or another library's device object, else None.

    The number is None for an object without one, such as ``torch.device("cuda")``.
    """
    if isinstance(spec, tuple):
        return _pair(*spec) if len(spec) == 2 else None
    kind = getattr(spec, "type", None)
    if isinstance(kind, str):  # torch.device, tvm_ffi.Device
        return _named(kind, getattr(spec, "index", None))
    platform = getattr(spec, "platform", None)
    if isinstance(platform, str):  # jax.Device, whose id counts over all hosts
        number = as_int(getattr(spec, "local_hardware_id", None))
        return _named(platform, getattr(spec, "id", None) if number is None else number)
    library = module_of(type(spec)).partition(".")[0]
    if getattr(spec, "is_cpu", False):  # warp
        return CPU, 0
    for attribute in ("device_id", "ordinal", "id"):  # cuda.core; warp; CuPy and Numba
        number = as_int(getattr(spec, attribute, None))
        if number is not None and (
            library in ("cuda", "cupy", "numba", "numba_cuda") or getattr(spec, "is_cuda", False)
        ):
            return CUDA, number
    pair = getattr(spec, "__dlpack_device__", None)
    return _pair(*pair()) if callable(pair) else None  # an array stands for its device


def _named(kind: str, number: Any) -> tuple[int, int | None] | None:
    code = NAMES.get(kind.lower())
    if code is None:
        return None
    return (CPU, 0) if code == CPU else (code, as_int(number))


def _pair(kind: Any, number: Any) -> tuple[int, int | None] | None:
    index = as_int(number)
    if number is not None and index is None:
        return None
    if isinstance(kind, str):
        return _named(kind, index)
    number = as_int(kind)
    code = None if number is None else DLPACK.get(number)
    if code is None:
        return None
    return code, index if code in (number, CUDA) else 0  # pinned memory has a GPU's number


def stream_handle(stream: Any) -> int | None:
    """Return the driver's handle of a stream-like object; None for anything else, including arrays and events."""
    found = as_int(stream)
    # The attributes of a class are descriptors.
    if found is not None or isinstance(stream, (bool, type)):
        return found
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:  # a method; an attribute in the first version
        pair = protocol() if callable(protocol) else protocol
        # In a later version of the protocol the second entry may have another meaning.
        known = isinstance(pair, tuple) and len(pair) == 2 and as_int(pair[0]) == 0
        return as_int(pair[1]) if known else None
    kind = type(stream)
    is_array = hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")
    if is_array or kind.__name__ == "Event":
        return None  # its address or handle is not that of a stream
    for name in ("cuda_stream", "ptr", "handle"):  # torch; CuPy; PyCUDA, Numba, cuda.core
        value: Any = getattr(stream, name, None)
        if value is not None and hasattr(value, "value"):  # a ctypes pointer, whose null is None
            value = value.value or 0
        found = as_int(value)
        if found is None and hasattr(value, "__int__") and not isinstance(value, float | bool):
            found = int(value)
        if found is not None:
            return found
    return None


def never_destroyed(stream: Any) -> bool:
    """Return whether a stream lives until the process ends, as torch's own streams do.

    In a ``torch.cuda.ExternalStream``, which may be destroyed, ``stream_id`` is the handle.
    """
    number = getattr(stream, "stream_id", None)
    return number is not None and number != getattr(stream, "cuda_stream", number)


def torch_keeps_stream(device: int, handle: int) -> bool:
    """Return whether torch's current stream has that handle and is torch's own; called once for each handle."""
    try:
        stream = sys.modules["torch"].cuda.current_stream(device)
        return bool(stream.cuda_stream == handle) and never_destroyed(stream)
    except Exception:  # a version of torch without these attributes
        return False


def stream_device(stream: Any) -> Any:
    """Return the device of another library's stream object, else None."""
    if isinstance(stream, int | np.integer):  # NumPy's integers have a device: "cpu"
        return None
    place = getattr(stream, "device", None)
    if place is not None:
        return place
    number = as_int(getattr(stream, "device_id", None))
    return number if number is not None and number >= 0 else None

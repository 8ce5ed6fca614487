"""Arrays over memory of which only an address is known."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.devices import resolve_device
from gpuinterop.devices.foreign_handles import CPU, CUDA
from gpuinterop.errors import BoundsError, messages, short_repr
from gpuinterop.errors.arguments import require_bool
from gpuinterop.errors.context import reraise_from

from .dtypes import as_supported_dtype

A = TypeVar("A", bound=_core.Array)


def from_address(
    cls: type[A],
    ptr: int,
    shape: Any,
    strides: Any,
    base: Any,
    device: Any,
    nbytes: int,
    readonly: bool,
    dtype: Any = np.float32,
    in_elements: bool = True,
    where: str = "from_gpu_pointer",
) -> A:
    """Return an array over memory at an address; strides count elements, or bytes.

    Its bounds are checked against `nbytes`, else against the memory of `base` if that is a gpuinterop
    array, else on a GPU against the driver's allocation.
    """
    if isinstance(ptr, bool | _core.Array) or not hasattr(ptr, "__index__"):
        raise messages.not_an_int(where, "address", ptr, fix="pass int(x.gpudata) or x.ptr")
    address = operator.index(ptr)
    if not 0 <= address < 1 << 64:
        raise BoundsError(where=where, expected="an address from 0 to 2**64 - 1",
                          got=short_repr(address), fix="pass x.ptr, which is not negative")  # fmt: skip
    try:
        limit = operator.index(nbytes)
    except TypeError:
        raise messages.not_an_int(where, "nbytes", nbytes) from None
    if not -1 <= limit < 1 << 63:
        raise BoundsError(where=where, expected="nbytes of at least 0, below 2**63",
                          got=short_repr(limit), fix="omit nbytes if the size is unknown")  # fmt: skip
    readonly = require_bool(readonly, "readonly", where)
    target = resolve_device(device, where) if device is not None else _locate(address)
    with reraise_from(where):  # the check of a layout may fail
        return _core.from_pointer(
            cls,
            address,
            _core.read_ints(shape, where),
            strides,
            as_supported_dtype(dtype, where),
            target.type_code,
            target.index,
            base,
            nbytes=limit,
            readonly=readonly,
            where=where,
            in_elements=in_elements,
        )


def _locate(address: int) -> devices.Device:
    """Return the device of a pointer, which may be to pinned memory; "cpu" if the driver does not know it."""
    default = devices.default_device()
    if address == 0 or not _core.cuda_device_count():
        return default
    found = _core.inspect_pointer(address)
    if default.type == "cpu" and found["memory"] != "device":  # the host can read it too
        return default
    return devices.device_from_dlpack(*((CUDA, found["device"]) if found["known"] else (CPU, 0)))

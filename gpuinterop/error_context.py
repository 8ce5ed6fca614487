"""Errors in the name of the function that was called, not of the step that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpuinterop.devices as devices
from gpuinterop.errors import DeviceError, GpuInteropError, OutOfMemoryError

__all__ = ["reraise_from", "host_out_of_memory", "resolve_device", "with_where"]


def resolve_device(device: Any, where: str) -> devices.Device:
    """Return the device that was asked for; a refusal names `where`."""
    try:
        return devices.device(device)
    except DeviceError as error:
        raise with_where(error, where) from None


@contextmanager
def reraise_from(where: str) -> Iterator[None]:
    """Let errors of the core name the function that was called, not the step that failed."""
    try:
        yield
    except GpuInteropError as error:
        raise with_where(error, where) from None


def host_out_of_memory(error: MemoryError, where: str) -> OutOfMemoryError:
    """Return NumPy's refusal of host memory as this library's."""
    free, total = devices.mem_info("cpu")
    return OutOfMemoryError(
        where=where,
        expected="host memory for the values, which NumPy allocates",
        got=f"{str(error) or 'no room'}; {free} bytes free of {total}",
        fix="work in smaller pieces",
    )


def with_where(error: GpuInteropError, where: str, fix: str = "") -> GpuInteropError:
    """Return the same error with another function's name, and perhaps another remedy."""
    return type(error)(
        where=where, expected=error.expected, got=error.got, fix=fix or error.fix,
        reason=error.reason, axis=error.axis,
    )  # fmt: skip

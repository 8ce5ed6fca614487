"""Pinned (page-locked) host memory, and asynchronous copies from and to it."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.devices import resolve_device
from gpuinterop.errors import DeviceError, type_name
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import negative_length, not_an_array, shape_too_large

from .core_view import core_view
from .dtypes import as_supported_dtype
from .numpy_views import as_numpy_view, require_aligned_host

__all__ = ["copy_async", "pinned_empty"]


def pinned_empty(shape: Any, dtype: Any = None, *, device: Any = None) -> np.ndarray[Any, Any]:
    """Return an uninitialized NumPy array in pinned memory; float32 by default.

    Copies between it and any GPU run at the full speed of the bus. After its last view is destroyed and
    the copies of `copy_async` have completed, the memory is kept for the next call; `empty_cache`
    returns it to the system. New memory costs milliseconds, and may wait for the GPU. If `device`, or
    the default device, is "cpu", the memory is pageable.

    Examples
    --------
    >>> import gpuinterop
    >>> host = gpuinterop.pinned_empty((2, 3))
    >>> host[...] = 1
    >>> gpuinterop.asarray(host).sum().item()
    6.0
    """
    extents = _core.read_ints(shape, "pinned_empty")
    kind = as_supported_dtype(np.float32 if dtype is None else dtype, "pinned_empty")
    if any(n < 0 for n in extents):
        raise negative_length("pinned_empty", extents)
    place = resolve_device(device, "pinned_empty")
    count = prod(extents)
    if place.type == "cpu" or count == 0:
        with reraise_from("pinned_empty"):
            return np.empty(extents, kind)
    nbytes = count * kind.itemsize
    if nbytes > sys.maxsize:
        raise shape_too_large("pinned_empty", extents)
    memory = _core.pinned_bytes(place.index, nbytes)
    return as_numpy_view(memory).view(kind).reshape(extents)


def _read_array(x: Any, name: str) -> _core.Array:
    if isinstance(x, _core.Array):
        return core_view(x)
    if isinstance(x, np.ndarray):
        return require_aligned_host(x, "copy_async")
    raise not_an_array(
        "copy_async",
        name,
        type_name(x),
        fix="pass a gpuinterop array or a NumPy array of pinned_empty",
    )


def copy_async(dst: Any, src: Any) -> None:
    """Queue ``dst[...] = src`` on the current stream and return without waiting.

    One array is on a GPU, the other is an array of `pinned_empty` or a C-contiguous view of one: do not
    modify `src` or read `dst` until the stream has completed the copy. The memory of both lives until
    then. For other strides the call waits for the copy. Between arrays on "cpu" it copies at once.

    Raises
    ------
    DeviceError
        The host array is pageable, which allows no asynchronous copy.
    ContiguityError
        Elements of `dst` overlap, or the elements of a NumPy array are misaligned.
    UnsupportedError
        One array is a NumPy array with masked elements.

    Examples
    --------
    >>> import gpuinterop
    >>> host, x = gpuinterop.pinned_empty(3), gpuinterop.ones(3)
    >>> gpuinterop.copy_async(host, x)
    >>> gpuinterop.synchronize()
    >>> host.tolist()
    [1.0, 1.0, 1.0]
    """
    target, source = _read_array(dst, "dst"), _read_array(src, "src")
    if (target.device.type == "cpu") != (source.device.type == "cpu"):
        host = target if target.device.type == "cpu" else source
        inside = host.is_c_contiguous()
        if inside and host.size and not _core.is_pinned_here(host.ptr, host.nbytes):
            raise DeviceError(
                where="copy_async",
                expected="a pinned host array",
                got="a pageable host array",
                fix="allocate it with gpuinterop.pinned_empty(shape, dtype), or wait for the copy: dst[...] = src",
            )
    _core.copy_into(target, source, non_blocking=True, where="copy_async")

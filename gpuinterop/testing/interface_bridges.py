"""Bridges of libraries whose arrays report their address and layout, and have no operations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from gpuinterop import converters
from gpuinterop.arrays.core_view import class_for
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import PLAIN, Layout, named_dtype
from gpuinterop.testing.memory import elements, poke


def writable_plain(layout: Layout, dtype: str, device: str) -> bool:
    """Return whether an array is writable and has a dtype of NumPy itself, as many libraries require."""
    return dtype in PLAIN and not layout.readonly


def exported(flat: Any, layout: Layout, device: str) -> Any:
    """Return a view with `layout`, which libraries that cannot allocate import by DLPack."""
    if device != "cpu":
        base = class_for(flat.dtype)(flat, device=device)
        return layout.over(base.ptr, flat.dtype, (base.device.type, base.device.index), base)
    window = layout.of(flat)
    # NumPy does not export the dtypes of ml_dtypes.
    return window if flat.dtype.name in PLAIN else converters.from_numpy(window)


Description = tuple[int, tuple[int, ...], tuple[int, ...], str, tuple[str, int]]


def described(name: str, describe: Callable[[Any], Description], **rest: Any) -> Bridge:
    """Return a bridge of a library without array operations, which reads and writes memory by address.

    `describe` returns address, shape, strides in elements, dtype and device.
    """

    def width(dtype: str) -> int:
        return np.dtype(named_dtype(dtype)).itemsize

    def values(a: Any) -> Any:
        address, shape, strides, dtype, place = describe(a)
        steps = tuple(s * width(dtype) for s in strides)
        # A wait for the whole device would hide a library that reads too early.
        return elements(address, shape, steps, np.dtype(named_dtype(dtype)), place, patient=False)

    def write(a: Any, index: tuple[int, ...], value: Any) -> None:
        address, _, strides, dtype, place = describe(a)
        steps = sum(i * s for i, s in zip(index, strides, strict=True))
        data = np.asarray(value).astype(named_dtype(dtype)).tobytes()
        poke(address + steps * width(dtype), data, place)

    return Bridge(
        name,
        address=lambda a: describe(a)[0],
        values=values,
        write=write,
        strides=lambda a: tuple(s * width(describe(a)[3]) for s in describe(a)[2]),
        dtype=lambda a: describe(a)[3],
        stream=lambda device: nullcontext(1),  # the legacy default stream
        **rest,
    )

"""Bridges of libraries whose arrays are on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.converters import registry
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.interface_bridges import described
from gpuinterop.testing.layouts import PLAIN, Layout

__all__ = ["cupy_bridge", "numba_bridge", "pycuda_bridge", "tensorflow_bridge", "warp_bridge"]


def cupy_bridge() -> Bridge:
    """CuPy."""
    import cupy  # noqa: PLC0415

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if layout.readonly or flat.dtype.name not in PLAIN:
            return None
        base = cupy.asarray(flat)
        return cupy.ndarray(
            layout.shape, flat.dtype, base.data + layout.offset * flat.itemsize,
            layout.byte_strides(flat.itemsize),
        )  # fmt: skip

    @contextmanager
    def stream(device: str) -> Iterator[int]:
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            yield side.ptr

    return Bridge(
        "cupy",
        make=make,
        address=lambda a: a.data.ptr,
        values=cupy.asnumpy,
        write=lambda a, index, value: a.__setitem__(index, value),
        strides=lambda a: tuple(a.strides),
        dtype=lambda a: a.dtype.name,
        promises=lambda layout, dtype, device: dtype in PLAIN and not layout.readonly,
        stream=stream,
        devices=("cuda",),
    )


def numba_bridge() -> Bridge:
    """Numba-CUDA; its arrays are read by address."""
    from numba import cuda  # noqa: PLC0415

    class Window:
        def __init__(self, base: Any, flat: Any, layout: Layout) -> None:
            self.base = base
            self.__cuda_array_interface__ = {
                "version": 3,
                "shape": layout.shape,
                "strides": layout.byte_strides(flat.itemsize),
                "typestr": flat.dtype.str,
                "data": (
                    base.device_ctypes_pointer.value + layout.offset * flat.itemsize, False,
                ),
                "stream": None,
            }  # fmt: skip

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if layout.readonly or flat.dtype.name not in PLAIN:
            return None
        return cuda.as_cuda_array(Window(cuda.to_device(flat), flat, layout), sync=False)

    def describe(a: Any) -> Any:
        width = a.dtype.itemsize
        strides = tuple(s // width for s in a.strides)
        address = int(a.device_ctypes_pointer.value or 0) if a.size else 0
        return address, tuple(a.shape), strides, a.dtype.name, ("cuda", 0)

    # By address, because Numba's copy to the host refuses negative strides.
    return described(
        "numba",
        describe,
        make=make,
        promises=lambda layout, dtype, device: dtype in PLAIN and not layout.readonly,
        devices=("cuda",),
    )


def pycuda_bridge() -> Bridge:
    """PyCUDA, on the primary context."""
    from gpuinterop.converters import pycuda

    pycuda.init()
    from pycuda.gpuarray import GPUArray, to_gpu  # noqa: PLC0415

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if layout.readonly or flat.dtype.name not in PLAIN:
            return None
        base = to_gpu(flat)
        return GPUArray(
            layout.shape, flat.dtype, base=base,
            gpudata=int(base.gpudata) + layout.offset * flat.itemsize,
            strides=layout.byte_strides(flat.itemsize),
        )  # fmt: skip

    def describe(a: Any) -> Any:
        strides = tuple(s // a.dtype.itemsize for s in a.strides)
        address = int(a.gpudata) if a.size else 0
        return address, tuple(a.shape), strides, a.dtype.name, ("cuda", 0)

    return described(
        "pycuda",
        describe,
        make=make,
        promises=lambda layout, dtype, device: (
            layout.name in ("C", "offset", "size-1", "0-d") and dtype in PLAIN
        ),
        devices=("cuda",),
    )


def warp_bridge() -> Bridge:
    """NVIDIA Warp."""
    warp: Any = registry.load("warp", "gpuinterop.testing")

    def make(flat: Any, layout: Layout, device: str) -> Any:
        own = getattr(warp, flat.dtype.name, None)
        if layout.readonly or own is None or not 1 <= len(layout.shape) <= 4:
            return None
        held = [flat]
        base = flat
        if device != "cpu":
            base = warp.array(flat, dtype=own, device=device)
            held = [base]
        address = base.ptr if device != "cpu" else flat.ctypes.data
        return warp.array(
            ptr=address + layout.offset * flat.itemsize, dtype=own, shape=layout.shape,
            strides=layout.byte_strides(flat.itemsize), device=device,
            deleter=lambda _pointer, _size: held.clear(),
        )  # fmt: skip

    def describe(a: Any) -> Any:
        found = np.dtype(warp.dtype_to_numpy(a.dtype)) if a.dtype is not warp.bfloat16 else None
        name = found.name if found is not None else "bfloat16"
        width = found.itemsize if found is not None else 2
        place = ("cuda", a.device.ordinal) if a.device.is_cuda else ("cpu", 0)
        return a.ptr or 0, tuple(a.shape), tuple(s // width for s in a.strides), name, place

    return described("warp", describe, make=make, devices=("cpu", "cuda"))


def tensorflow_bridge() -> Bridge:
    """TensorFlow's eager tensors."""
    tf: Any = registry.load("tensorflow", "gpuinterop.testing")

    def make(flat: Any, layout: Layout, device: str) -> Any:
        window = layout.of(flat)
        if layout.readonly or not window.flags.c_contiguous or layout.overlapping:
            return None
        with tf.device("/GPU:0" if device == "cuda" else "/CPU:0"):
            return tf.constant(window)

    def address(t: Any) -> int:
        return int(gi.from_dlpack(tf.experimental.dlpack.to_dlpack(t)).ptr)

    return Bridge(
        "tensorflow",
        make=make,
        address=address,
        values=lambda t: t.numpy(),
        dtype=lambda t: t.dtype.name,
        devices=("cpu", "cuda") if tf.config.list_physical_devices("GPU") else ("cpu",),
    )

"""Bridges of libraries whose arrays are on GPUs, or on the host as well."""

from __future__ import annotations

from contextlib import AbstractContextManager
from ctypes import c_void_p, cast
from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core, converters, creation
from gpuinterop.arrays.core_view import c_strides
from gpuinterop.exchange import registry
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.interface_bridges import described, writable_plain
from gpuinterop.testing.layouts import PLAIN, Layout


def cupy_bridge() -> Bridge:
    """CuPy."""
    import cupy  # noqa: PLC0415

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not writable_plain(layout, flat.dtype.name, device):
            return None
        base = cupy.asarray(flat)
        return cupy.ndarray(
            layout.shape, flat.dtype, base.data + layout.offset * flat.itemsize,
            layout.byte_strides(flat.itemsize),
        )  # fmt: skip

    def stream(device: str) -> AbstractContextManager[int]:
        side = cupy.cuda.Stream(non_blocking=True)
        leave = partial(side.__exit__, None, None, None)
        return _core.Block((side.__enter__, leave), result=side.ptr)

    return Bridge(
        "cupy",
        make=make,
        address=lambda a: a.data.ptr,
        values=cupy.asnumpy,
        write=lambda a, index, value: a.__setitem__(index, value),
        strides=lambda a: tuple(a.strides),
        dtype=lambda a: a.dtype.name,
        promises=writable_plain,
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
        if not writable_plain(layout, flat.dtype.name, device):
            return None
        return cuda.as_cuda_array(Window(cuda.to_device(flat), flat, layout), sync=False)

    def describe(a: Any) -> Any:
        width = a.dtype.itemsize
        strides = tuple(s // width for s in a.strides)
        address = int(a.device_ctypes_pointer.value or 0) if a.size else 0
        return address, tuple(a.shape), strides, a.dtype.name, ("cuda", 0)

    # By address, because Numba's copy to the host refuses negative strides.
    return described("numba", describe, make=make, promises=writable_plain, devices=("cuda",))


def pycuda_bridge() -> Bridge:
    """PyCUDA, on the primary context."""
    from gpuinterop.converters import pycuda

    pycuda.init()
    from pycuda.gpuarray import GPUArray, to_gpu  # noqa: PLC0415

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not writable_plain(layout, flat.dtype.name, device):
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
        base = flat if device == "cpu" else warp.array(flat, dtype=own, device=device)
        held = [base]
        address = flat.ctypes.data if device == "cpu" else base.ptr
        return warp.array(
            ptr=address + layout.offset * flat.itemsize, dtype=own, shape=layout.shape,
            strides=layout.byte_strides(flat.itemsize), device=device,
            deleter=lambda _pointer, _size: held.clear(),
        )  # fmt: skip

    def describe(a: Any) -> Any:
        narrow = a.dtype is warp.bfloat16  # which NumPy does not have
        found = np.dtype("uint16" if narrow else warp.dtype_to_numpy(a.dtype))
        name, width = "bfloat16" if narrow else found.name, found.itemsize
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
        return int(converters.from_dlpack(tf.experimental.dlpack.to_dlpack(t)).ptr)

    return Bridge(
        "tensorflow",
        make=make,
        address=address,
        values=lambda t: t.numpy(),
        dtype=lambda t: t.dtype.name,
        devices=("cpu", "cuda") if tf.config.list_physical_devices("GPU") else ("cpu",),
    )


def _matrix_place(m: Any) -> tuple[int, tuple[str, int]]:
    """Return the address of a matrix of npmat or CUDAMat, and its device."""
    struct: Any = getattr(m, "mat", None)
    if not hasattr(struct, "data_device"):
        return m.numpy_array.ctypes.data, ("cpu", 0)
    return cast(struct.data_device, c_void_p).value or 0, ("cuda", 0)


def cudamat_bridge() -> Bridge:
    """CUDAMat on GPUs, and npmat, gnumpy's replacement for it, on the host."""
    modules = {"cpu": "npmat", "cuda": "cudamat"}

    def holds(layout: Layout, dtype: str, device: str) -> bool:
        dense = layout.of(np.empty(layout.count, np.float32)).flags.f_contiguous
        return dense and len(layout.shape) == 2 and dtype == "float32" and not layout.readonly

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not holds(layout, flat.dtype.name, device):
            return None
        library = registry.load("cudamat", "gpuinterop.testing", modules[device])
        return library.CUDAMatrix(layout.of(flat))

    def describe(m: Any) -> Any:
        address, place = _matrix_place(m)
        rows, columns = m.shape
        return address, (rows, columns), (1, rows), "float32", place

    return described(
        "cudamat",
        describe,
        make=make,
        promises=holds,
        devices=tuple(kind for kind, name in modules.items() if registry.installed(name)),
    )


def gnumpy_bridge() -> Bridge:
    """Gnumpy, whose mode is either that of the host or that of the GPU."""
    gnumpy: Any = registry.load("gnumpy", "gpuinterop.testing")
    device = "cuda" if hasattr(gnumpy._cudamat, "cudamat") else "cpu"
    # The first conversion stores a garray in the module; do it before buffers are counted.
    converters.to_gnumpy(creation.zeros(1, device=device))

    def holds(layout: Layout, dtype: str, device: str) -> bool:
        dense = layout.of(np.empty(layout.count, np.float32)).flags.c_contiguous
        return dense and dtype == "float32" and not layout.readonly

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not holds(layout, flat.dtype.name, device):
            return None
        # A copy, because gnumpy keeps the memory of destroyed arrays for later ones.
        return gnumpy.garray(layout.of(flat).copy())

    def describe(g: Any) -> Any:
        address, place = _matrix_place(g._base)
        return address, g.shape, c_strides(g.shape, 1), "float32", place

    return described("gnumpy", describe, make=make, promises=holds, devices=(device,))

"""Bridges of the libraries with a converter, each of which reads and writes its arrays by itself.

`load` imports a library when it is called, not before.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import c_strides
from gpuinterop.exchange import registry
from gpuinterop.exchange.library_streams import torch_changes
from gpuinterop.exchange.package_versions import version_of
from gpuinterop.testing import peers_gpu
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.interface_bridges import described, exported, writable_plain
from gpuinterop.testing.layouts import PLAIN, Layout


def numpy_bridge() -> Bridge:
    """NumPy."""
    return Bridge(
        "numpy",
        make=lambda flat, layout, device: layout.of(flat),
        address=lambda a: a.__array_interface__["data"][0],
        write=lambda a, index, value: a.__setitem__(index, value),
        readonly=lambda a: not a.flags.writeable,
        strides=lambda a: a.strides,
        dtype=lambda a: a.dtype.name,
        promises=lambda layout, dtype, device: True,
    )


# ---- torch --------------------------------------------------------------------------------------


def _torch() -> Bridge:
    import torch  # noqa: PLC0415

    def holds(layout: Layout, dtype: str, device: str) -> bool:
        return hasattr(torch, dtype) and not (layout.negative or layout.readonly)

    def make(flat: Any, layout: Layout, device: str) -> Any:
        name = flat.dtype.name
        if not holds(layout, name, device):
            return None
        base = torch.from_numpy(flat.view(np.uint8)).to(device).view(getattr(torch, name))
        return base.as_strided(layout.shape, layout.strides, layout.offset)

    def values(t: Any) -> Any:
        # As bytes, because NumPy has no bfloat16.
        raw = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return raw.view(f"V{t.element_size()}").reshape(tuple(t.shape))

    def stream(device: str) -> AbstractContextManager[int]:
        side = torch.cuda.Stream(device)
        changes = torch_changes(torch, side, side.device_index)
        return _core.Block(*changes, result=side.cuda_stream)

    return Bridge(
        "torch",
        make=make,
        address=lambda t: t.data_ptr(),
        values=values,
        write=lambda t, index, value: t.__setitem__(index, value),
        strides=lambda t: tuple(s * t.element_size() for s in t.stride()),
        dtype=lambda t: str(t.dtype).removeprefix("torch."),
        promises=holds,
        stream=stream,
        devices=("cpu", "cuda") if torch.cuda.is_available() else ("cpu",),
    )


# ---- jax ----------------------------------------------------------------------------------------


def _jax() -> Bridge:
    import jax  # noqa: PLC0415

    platforms = {d.platform for d in jax.devices()}

    def make(flat: Any, layout: Layout, device: str) -> Any:
        window = layout.of(flat)
        # JAX makes arrays in C order only, and imports dense arrays in other orders.
        dense = layout.name in ("F", "permuted")
        if layout.readonly or layout.overlapping or not (window.flags.c_contiguous or dense):
            return None
        with jax.default_device(jax.devices("gpu" if device == "cuda" else "cpu")[0]):
            if dense or (device == "cpu" and layout.size and flat.dtype.name in PLAIN):
                source = exported(flat, layout, device)
                try:
                    made = jax.dlpack.from_dlpack(source)
                except (BufferError, TypeError, ValueError, RuntimeError):
                    return None
            else:
                made = jax.numpy.asarray(window)
        return made if made.dtype == flat.dtype else None

    def promises(layout: Layout, dtype: str, device: str) -> bool:
        narrow = dtype == "complex64" or not dtype.endswith(("64", "128"))
        return narrow and layout.name in ("C", "F", "permuted", "readonly")

    return Bridge(
        "jax",
        make=make,
        address=lambda a: a.unsafe_buffer_pointer(),
        # JAX caches an array's NumPy copy, so each read needs a new array.
        values=lambda a: np.asarray(jax.numpy.array(a, copy=True)),
        dtype=lambda a: a.dtype.name,
        promises=promises,
        devices=("cpu", "cuda") if platforms & {"gpu", "cuda"} else ("cpu",),
    )


def _tvm_ffi() -> Bridge:
    import tvm_ffi  # noqa: PLC0415

    def holds(layout: Layout, dtype: str, device: str) -> bool:
        return not (layout.readonly or dtype.startswith("complex"))

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not holds(layout, flat.dtype.name, device):
            return None
        return tvm_ffi.from_dlpack(exported(flat, layout, device))

    def describe(t: Any) -> Any:
        kind, index = t.__dlpack_device__()
        place = ("cuda" if int(kind) == 2 else "cpu", int(index))
        return t.data_ptr(), tuple(t.shape), tuple(t.strides), str(t.dtype), place

    return described("tvm_ffi", describe, make=make, promises=holds, devices=("cpu", "cuda"))


def _cuda_core() -> Bridge:
    from cuda.core.utils import StridedMemoryView  # noqa: PLC0415

    has = {*PLAIN, "bfloat16"}

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if flat.dtype.name not in has:
            return None
        stream = -1 if device == "cpu" else 1
        return StridedMemoryView.from_dlpack(exported(flat, layout, device), stream_ptr=stream)

    def describe(v: Any) -> Any:
        place = ("cuda", v.device_id) if v.device_id >= 0 else ("cpu", 0)
        shape = tuple(v.shape)
        strides = c_strides(shape, 1) if v.strides is None else tuple(v.strides)
        return v.ptr, shape, strides, np.dtype(v.dtype).name, place

    return described(
        "cuda_core",
        describe,
        make=make,
        readonly=lambda v: bool(v.readonly),
        promises=lambda layout, dtype, device: dtype in has,
        devices=("cpu", "cuda"),
    )


def _array_api() -> Bridge:
    import array_api_strict as xp  # noqa: PLC0415

    def holds(layout: Layout, dtype: str, device: str) -> bool:
        return writable_plain(layout, dtype, device) and hasattr(xp, dtype)

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not holds(layout, flat.dtype.name, device):
            return None
        return xp.asarray(layout.of(flat), copy=False)

    return Bridge(
        "array_api",
        make=make,
        address=lambda a: np.from_dlpack(a).__array_interface__["data"][0],
        values=np.from_dlpack,
        write=lambda a, index, value: a.__setitem__(index, value),
        readonly=lambda a: not np.from_dlpack(a).flags.writeable,
        strides=lambda a: np.from_dlpack(a).strides,
        dtype=lambda a: np.from_dlpack(a).dtype.name,
        promises=holds,
        options={"xp": xp},
    )


def _buffer() -> Bridge:
    formats = {"bool": "?", "float16": "e", "float32": "f", "float64": "d"}
    formats.update({np.dtype(c).name: c for c in "bBhHiIlL"})

    def make(flat: Any, layout: Layout, device: str) -> Any:
        return layout.of(flat).data if flat.dtype.name in formats else None

    return Bridge(
        "buffer",
        make=make,
        address=lambda view: np.asarray(view).__array_interface__["data"][0],
        values=np.asarray,
        # By NumPy, because a memoryview reads and writes only the formats of the struct module.
        write=lambda view, index, value: np.asarray(view).__setitem__(index, value),
        readonly=lambda view: view.readonly,
        strides=lambda view: tuple(view.strides),
        dtype=lambda view: np.asarray(view).dtype.name,
        promises=lambda layout, dtype, device: (
            dtype in PLAIN and layout.name in ("C", "offset", "size-1", "0-d", "readonly")
        ),
        version=platform.python_version(),
    )


def _pyopencl() -> Bridge:
    import pyopencl  # noqa: PLC0415
    from pyopencl import array as arrays  # noqa: PLC0415

    cpus = [d for p in pyopencl.get_platforms() for d in p.get_devices(pyopencl.device_type.CPU)]
    queue = pyopencl.CommandQueue(pyopencl.Context(cpus[:1]))
    access = pyopencl.map_flags.READ | pyopencl.map_flags.WRITE

    def make(flat: Any, layout: Layout, device: str) -> Any:
        if not writable_plain(layout, flat.dtype.name, device):
            return None
        flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.USE_HOST_PTR
        data = pyopencl.Buffer(queue.context, flags, hostbuf=flat) if flat.size else None
        return arrays.Array(
            queue, layout.shape, flat.dtype, data=data, offset=layout.offset * flat.itemsize,
            strides=layout.byte_strides(flat.itemsize),
        )  # fmt: skip

    def window(a: Any) -> Any:
        if not a.size:
            return np.empty(a.shape, a.dtype)
        whole, _ = pyopencl.enqueue_map_buffer(
            queue, a.base_data, access, 0, (a.base_data.size,), np.uint8
        )
        return np.ndarray(a.shape, a.dtype, whole, a.offset, a.strides)

    return Bridge(
        "pyopencl",
        make=make,
        address=lambda a: window(a).__array_interface__["data"][0],
        values=window,
        write=lambda a, index, value: window(a).__setitem__(index, value),
        strides=lambda a: tuple(a.strides),
        dtype=lambda a: a.dtype.name,
        promises=writable_plain,
        options={"queue": queue},
    )


_BUILDERS: dict[str, Callable[[], Bridge]] = {
    "numpy": numpy_bridge,
    "torch": _torch,
    "jax": _jax,
    "tvm_ffi": _tvm_ffi,
    "cuda_core": _cuda_core,
    "cupy": peers_gpu.cupy_bridge,
    "numba": peers_gpu.numba_bridge,
    "pycuda": peers_gpu.pycuda_bridge,
    "warp": peers_gpu.warp_bridge,
    "tensorflow": peers_gpu.tensorflow_bridge,
    "cudamat": peers_gpu.cudamat_bridge,
    "gnumpy": peers_gpu.gnumpy_bridge,
    "pyopencl": _pyopencl,
    "buffer": _buffer,
    "array_api": _array_api,
}
# The packages that a bridge needs, one of them, if it is not that of the converter.
_PACKAGES = {
    "array_api": ("array_api_strict",),
    "numba": ("numba_cuda",),
    "cudamat": ("cudamat", "npmat"),
}


def _package(name: str) -> str | None:
    """Return the installed package of a library, without importing it; None if there is none."""
    packages = _PACKAGES.get(name) or (registry.backend(name).package,)
    return next((package for package in packages if registry.installed(package)), None)


def installed(name: str) -> bool:
    """Return whether the library can be tried, without importing it."""
    return _package(name) is not None


def names() -> list[str]:
    """Return the libraries with a bridge in this file, and those whose converter may have one."""
    return [*_BUILDERS, *(name for name in registry.names() if name not in _BUILDERS)]


def load(name: str) -> Bridge | None:
    """Import a library and return its bridge; None if it has no bridge."""
    builder = _BUILDERS.get(name)
    row = registry.backend(name)
    if builder is None:
        # A converter of another package may have a bridge.
        found = getattr(row.module, "testing_bridge", None)
        bridge = found() if callable(found) else found
        return bridge if isinstance(bridge, Bridge) else None
    package = _package(name) or row.package
    if row.package:
        # Raises for an absent library, and for a file of the same name.
        registry.load(row.name, f"the bridge to {name}", "" if name == "numba" else package)
    made = builder()
    version = made.version or version_of(package)
    if name == "numba":  # numba.cuda lives in a package of its own
        version = f"{version_of(name)} with numba-cuda {version}"
    return replace(made, version=version)

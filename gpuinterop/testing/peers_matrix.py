"""Bridges of CUDAMat and Gnumpy, with test doubles, because the libraries need Python 2.

The converters recognise such matrices by their attributes, in any class: on the host those of npmat,
Gnumpy's replacement for CUDAMat, on a GPU those of CUDAMat. The classes in this file have these
attributes only.
"""

from __future__ import annotations

import ctypes
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpuinterop import converters, creation, ndarray
from gpuinterop.devices import devices
from gpuinterop.explain import explain as predict
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.interface_bridges import described
from gpuinterop.testing.layouts import Layout
from gpuinterop.testing.memory import poke

__all__ = ["MatrixStruct", "cudamat_bridge", "gnumpy_bridge"]

_STYLE = "test doubles"


class _HostMatrix:
    """A double of npmat's matrix: a column-major ndarray."""

    def __init__(self, array: Any) -> None:
        self.numpy_array = np.asarray(array, np.float32, order="F")
        self.num_elems = self.numpy_array.size

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numpy_array.shape

    def reshape(self, shape: tuple[int, int]) -> _HostMatrix:
        self.numpy_array = self.numpy_array.reshape(shape, order="F")
        return self

    def set_trans(self, flag: bool) -> None:
        raise NotImplementedError


class MatrixStruct(ctypes.Structure):
    """The struct of a matrix in CUDAMat's C library."""

    _fields_ = (
        ("data_host", ctypes.POINTER(ctypes.c_float)),
        ("data_device", ctypes.POINTER(ctypes.c_float)),
        ("on_device", ctypes.c_int),
        ("on_host", ctypes.c_int),
        ("size", ctypes.c_int * 2),
        ("is_trans", ctypes.c_int),
        ("owns_data", ctypes.c_int),
    )


class _DeviceMatrix:
    """A double of CUDAMat's matrix: a struct with a device address."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, MatrixStruct):
            self.mat = source
            return
        # The library's own upload, which gpuinterop must not count as a copy.
        self.held = creation.empty(np.size(source), device="cuda")
        data = np.asarray(source, np.float32).tobytes(order="F")
        poke(self.held.ptr, data, ("cuda", self.held.device.index))
        self.mat = struct_over(self.held.ptr, *np.shape(source))

    @property
    def shape(self) -> tuple[int, int]:
        return self.mat.size[0], self.mat.size[1]


def struct_over(address: int, rows: int, columns: int) -> MatrixStruct:
    """Return a struct over device memory, without holding a reference to it."""
    pointer = ctypes.cast(ctypes.c_void_p(address), ctypes.POINTER(ctypes.c_float))
    return MatrixStruct(None, pointer, 1, 0, (ctypes.c_int * 2)(rows, columns), 0, 0)


class _Garray:
    """A double of Gnumpy's array: a shape over a matrix with one column."""

    backend: Any

    def __init__(self, data: Any, shape: Any = None, is_alias_of: Any = None) -> None:
        if shape is None:
            host = np.asarray(data, np.float32)
            data, shape = self.backend.CUDAMatrix(host.reshape(-1, 1)), host.shape
        self._base, self.shape, self._is_alias_of = data, tuple(shape), is_alias_of


_NPMAT = SimpleNamespace(CUDAMatrix=_HostMatrix)
_CUDAMAT = SimpleNamespace(CUDAMatrix=_DeviceMatrix, cudamat=MatrixStruct)


@functools.cache
def _gnumpy(device: str) -> Any:
    """Return a double of the module gnumpy, with the backend for a device."""
    backend = _NPMAT if device == "cpu" else _CUDAMAT
    module = SimpleNamespace(
        _cudamat=backend, garray=type("garray", (_Garray,), {"backend": backend})
    )
    # The first conversion stores a garray in the module; do it before buffers are counted.
    converters.to_gnumpy(creation.zeros(1, device=device), module=module)
    return module


def _module(name: str, device: str) -> Any:
    if name == "gnumpy":
        return _gnumpy(device)
    return _NPMAT if device == "cpu" else _CUDAMAT


def _matrix(flat: Any, layout: Layout, device: str, rows: int, columns: int) -> Any:
    """Return a column-major matrix over a view with `layout` of `flat`, or of a copy on the GPU."""
    if device == "cpu":
        window = layout.of(flat).reshape((rows, columns), order="A")
        return _HostMatrix(window)
    base = ndarray.CudaNdarray(flat, device=device)
    made = _DeviceMatrix(struct_over(base.ptr + 4 * layout.offset, rows, columns))
    made.held = base
    return made


def _flags(layout: Layout) -> Any:
    return layout.of(np.empty(layout.count, np.float32)).flags


def _place(matrix: Any) -> tuple[int, tuple[str, int]]:
    """Return the address of a matrix, and its device."""
    if isinstance(matrix, _HostMatrix):
        return matrix.numpy_array.__array_interface__["data"][0], ("cpu", 0)
    return ctypes.cast(matrix.mat.data_device, ctypes.c_void_p).value or 0, ("cuda", 0)


def _bridge(name: str, describe: Any, make: Any, fits: Any) -> Bridge:
    def to(x: Any, copyif: bool) -> Any:
        return converters.to(x, library=name, copyif=copyif, module=_module(name, x.device.type))

    def explain(x: Any, to: str, copyif: bool = False) -> Any:
        if to != name:
            return predict(x, to, copyif)
        return predict(x, to, copyif, module=_module(name, x.device.type))

    def make_one(flat: Any, layout: Layout, device: str) -> Any:
        if flat.dtype != np.float32 or layout.readonly or not fits(layout):
            return None
        return make(flat, layout, device)

    for place in {place.type for place in devices()}:
        _module(name, place)
    return described(
        name,
        describe,
        to=to,
        make=make_one,
        explain=explain,
        promises=lambda layout, dtype, device: (
            dtype == "float32" and not layout.readonly and fits(layout)
        ),
        devices=("cpu", "cuda"),
        version=_STYLE,
    )


def cudamat_bridge() -> Bridge:
    """CUDAMat's matrices, and npmat's."""

    def fits(layout: Layout) -> bool:
        return len(layout.shape) == 2 and bool(_flags(layout).f_contiguous)

    def describe(m: Any) -> Any:
        address, place = _place(m)
        rows, columns = m.shape
        return address, (rows, columns), (1, rows), "float32", place

    def make(flat: Any, layout: Layout, device: str) -> Any:
        return _matrix(flat, layout, device, *layout.shape)

    return _bridge("cudamat", describe, make, fits)


def gnumpy_bridge() -> Bridge:
    """Gnumpy's arrays, on both backends."""

    def fits(layout: Layout) -> bool:
        return bool(_flags(layout).c_contiguous)

    def describe(g: Any) -> Any:
        address, place = _place(g._base)
        strides = tuple(int(np.prod(g.shape[axis + 1 :])) for axis in range(len(g.shape)))
        return address, g.shape, strides, "float32", place

    def make(flat: Any, layout: Layout, device: str) -> Any:
        column = _matrix(flat, layout, device, layout.size, 1)
        return _module("gnumpy", device.partition(":")[0]).garray(column, layout.shape)

    return _bridge("gnumpy", describe, make, fits)

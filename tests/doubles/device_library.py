"""A small library with memory and a stream on the GPU, reached through the driver alone."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from ctypes import byref, c_size_t, c_void_p

import numpy as np

import gpuinterop as gi
from doubles import driver
from gpuinterop import _core
from gpuinterop.ndarray import class_for
from gpuinterop.testing import Bridge
from gpuinterop.testing.memory import elements, poke

PLACE = ("cuda", 0)


class Library:
    """Its state: one stream, which does not wait for the legacy one."""

    def __init__(self):
        self.stream = driver.new_stream()

    def read(self, toy):
        """The elements, read on the library's own stream."""
        out = ctypes.create_string_buffer(toy.nbytes)
        size, stream = c_size_t(toy.nbytes), c_void_p(self.stream)
        with driver.Current():
            driver.call("cuMemcpyDtoHAsync_v2", out, c_void_p(toy.ptr), size, stream)
            driver.call("cuStreamSynchronize", stream)
        return np.frombuffer(out.raw, toy.dtype).reshape(toy.shape)


class Toy:
    """Contiguous memory on cuda:0."""

    def __init__(self, ptr, shape, dtype, owner):
        self.ptr, self.shape, self.dtype, self.owner = ptr, shape, np.dtype(dtype), owner
        self.nbytes = int(np.prod(shape)) * self.dtype.itemsize


class Allocation:
    def __init__(self, nbytes):
        pointer = c_void_p()
        with driver.Current():
            driver.call("cuMemAlloc_v2", byref(pointer), c_size_t(max(nbytes, 1)))
        self.ptr = pointer.value

    def __del__(self):
        with driver.Current():
            driver.call("cuMemFree_v2", c_void_p(self.ptr))


def bridge(ordered=True, beside=0):
    """The toy's bridge; without `ordered` its converter hands over bare pointers.

    `beside` is how far from the memory its results are.
    """
    library = Library()

    def to(x, copyif=False):
        if not x.is_c_contiguous():
            if not copyif:
                raise gi.ContiguityError(
                    where="to_toy", expected="C order", got=str(x.strides), fix="copyif=True"
                )
            x = x.copy()
        if x.readonly:
            raise gi.ReadOnlyError(
                where="to_toy", expected="writable memory", got="read-only", fix="x.copy()"
            )
        if ordered:
            _core.hand_over(x, library.stream, "to_toy")
        return Toy(x.ptr + beside, x.shape, x.dtype, x)

    def from_(toy, copyif=False):
        strides = [
            int(np.prod(toy.shape[i + 1 :])) * toy.dtype.itemsize for i in range(len(toy.shape))
        ]
        stream = library.stream if ordered else 1
        return _core.from_pointer(
            class_for(toy.dtype), toy.ptr, toy.shape, tuple(strides), toy.dtype, 2, 0, toy,
            False, stream, "from_toy",
        )  # fmt: skip

    def make(flat, layout, device):
        if layout.readonly or layout.size == 0 or layout.name not in ("C", "offset", "0-d"):
            return None
        owner = Allocation(flat.nbytes)
        poke(owner.ptr, flat.tobytes(), PLACE)
        return Toy(owner.ptr + layout.offset * flat.itemsize, layout.shape, flat.dtype, owner)

    def write(toy, index, value):
        steps = np.ravel_multi_index(index, toy.shape) if toy.shape else 0
        poke(
            toy.ptr + int(steps) * toy.dtype.itemsize,
            np.asarray(value).astype(toy.dtype).tobytes(),
            PLACE,
        )

    def values(toy):
        return library.read(toy) if toy.nbytes else np.empty(toy.shape, toy.dtype)

    @contextmanager
    def stream(device):
        yield library.stream

    return Bridge(
        "devicetoy", to=to, from_=from_, make=make, address=lambda toy: toy.ptr, values=values,
        write=write, dtype=lambda toy: toy.dtype.name, stream=stream, devices=("cuda",),
    )  # fmt: skip


__all__ = ["bridge", "elements"]

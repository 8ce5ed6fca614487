"""A small library with memory on the GPU, and a stream of its own that does not wait for the legacy one."""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

import gpuinterop as gi
from doubles import driver
from gpuinterop import _core
from gpuinterop.arrays.core_view import c_strides, class_for
from gpuinterop.testing import Bridge
from gpuinterop.testing.interface_bridges import described, exported


@dataclass(eq=False)
class Toy:
    """Contiguous memory on cuda:0."""

    ptr: int
    shape: tuple[int, ...]
    dtype: np.dtype
    owner: object


def bridge(ordered: bool = True, beside: int = 0) -> Bridge:
    """The toy's bridge; without `ordered` its converter passes bare pointers.

    `beside` is how far from the memory its results are.
    """
    own = driver.new_stream()

    def to(x, copyif=False):
        if x.readonly:
            raise gi.ReadOnlyError(
                where="to_toy", expected="writable memory", got="read-only", fix="x.copy()"
            )
        if ordered:
            _core.hand_over(x, own, "to_toy")
        return Toy(x.ptr + beside, x.shape, x.dtype, x)

    def from_(toy, copyif=False):
        strides = c_strides(toy.shape, toy.dtype.itemsize)
        return _core.from_pointer(
            class_for(toy.dtype), toy.ptr, toy.shape, strides, toy.dtype, 2, 0, toy, False,
            own if ordered else 1, "from_toy",
        )  # fmt: skip

    def make(flat, layout, device):
        if layout.name not in ("C", "offset", "0-d"):
            return None
        base = exported(flat, layout, device)
        return Toy(base.ptr, base.shape, base.dtype, base)

    def describe(toy):
        return toy.ptr, toy.shape, c_strides(toy.shape, 1), toy.dtype.name, ("cuda", 0)

    def values(toy):
        # On the library's own stream, as it would read them itself.
        size = int(np.prod(toy.shape))
        return driver.read(toy.ptr, size, own, dtype=toy.dtype).reshape(toy.shape)

    @contextmanager
    def stream(device):
        yield own

    made = described("devicetoy", describe, to=to, from_=from_, make=make, devices=("cuda",))
    return replace(made, values=values, stream=stream, strides=None)

"""What a user with a type checker writes; it is checked by mypy and also run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import gpuinterop as gi
from gpuinterop.converters import to_numpy

if TYPE_CHECKING or sys.version_info >= (3, 11):
    from typing import assert_type
else:
    T = TypeVar("T")

    def assert_type(value: T, kind: object) -> T:
        return value


def first_row(x: gi.CudaNdarray) -> gi.CudaNdarray:
    return x[0]


x = gi.CudaNdarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
y: gi.CudaNdarray = gi.zeros((2, 2), device="cpu")
assert_type(first_row(x), gi.CudaNdarray)
assert_type(x[1:, ::-1], gi.CudaNdarray)
assert_type(x.T, gi.CudaNdarray)
assert_type(x.reshape(4).dimshuffle("x", 0), gi.CudaNdarray)
assert_type(x.copy(), gi.CudaNdarray)
assert_type(x.norm(axis=0), gi.CudaNdarray)
assert_type(x.ptp(), gi.CudaNdarray)
assert_type(x.reduce_sum((1, 0)), gi.CudaNdarray)
assert_type(x.shape, tuple[int, ...])
assert_type(x.strides, tuple[int, ...])
assert_type(x.ptr, int)
assert_type(x.readonly, bool)
assert_type(x.device, gi.Device)
assert_type(gi.device("cpu"), gi.Device)
assert_type(gi.devices(), tuple[gi.Device, ...])
assert_type(gi.memory_stats("cpu"), dict[str, int])
assert_type(gi.explain(x, "numpy").shared, bool)
assert_type(gi.doctor().ok, bool)
assert_type(gi.mem_info("cpu"), tuple[int, int])
assert_type(gi.shares_memory(x, x.T), bool)


class Model:
    @gi.fuse
    def step(self, x: gi.CudaNdarray, rate: float = 0.5) -> gi.CudaNdarray:
        return x * rate


@gi.fuse(static_argnames="up")
def scaled(x: gi.CudaNdarray, *, up: bool = True) -> tuple[gi.CudaNdarray, gi.CudaNdarray]:
    return x * 2.0, x


assert_type(Model().step(x, 2.0), gi.CudaNdarray)
assert_type(Model.step(Model(), x, rate=1.0), gi.CudaNdarray)
assert_type(scaled(x, up=False)[0], gi.CudaNdarray)
assert_type(scaled(x, out=(x, None)), tuple[gi.CudaNdarray, gi.CudaNdarray])
graph = gi.Expression()
print(graph.compile([graph.apply("add", graph.input(), 2.0)])(x))
y[...] = to_numpy(x)
y += x * 2.0
with gi.stream(None, "cpu") as s:
    assert_type(s, gi.Stream)
with gi.no_copies(), gi.count_copies() as copies:
    to_numpy(x.T)
assert_type(copies.count, int)
try:
    gi.device("nowhere")
except gi.DeviceError as error:
    assert_type(error.fix, str)
    print(error.fix)

"""Long chains of owners, incomplete layouts, threads, subclasses that misreport what they hold."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi
from gpuinterop import _core

CHAINS = {
    "arrays": "x = _core.from_pointer(_core.Array, first.ptr, (4,), None, first.dtype, 1, 0, x)",
    "subclass": "x = gi.from_gpu_pointer(first.ptr, (4,), base=x, device='cpu')",
    "numpy": "x = gi.from_dlpack(np.from_dlpack(x))",
    "capsules": "x = gi.from_dlpack(x.__dlpack__(max_version=(1, 0)))",
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_long_chain_of_owners_is_released_without_deep_recursion(chain):
    code = f"""
import gc, threading
import numpy as np, gpuinterop as gi
from gpuinterop import _core
from gpuinterop.devices import memory_stats
gi.from_dlpack(np.ones(3))  # the engine of conversions keeps an empty array
before = memory_stats("cpu")
first = x = _core.view(_core.Array, gi.ones(4, device="cpu"))
for _ in range(100_000):
    {CHAINS[chain]}
del first, x
gc.collect()
after = memory_stats("cpu")
assert after["live_arrays"] == before["live_arrays"], (before, after)
assert after["live_bytes"] == before["live_bytes"], (before, after)
"""
    driver.run(code, timeout=120)


def making(device: str) -> gi.CudaNdarray:
    x = gi.CudaNdarray(np.arange(12, dtype="float32"), device=device)
    x._set_stride(0, 2)  # reaches 22 elements far in 12
    return x


def test_geometry_in_the_making_is_no_source_of_an_assignment(device):
    target = gi.zeros(12, device=device)
    with pytest.raises(gi.BoundsError, match="stay inside"):
        target[...] = making(device)
    assert not target.get().any()


def test_assigning_strides_ends_geometry_in_the_making(device):
    x = making(device)
    x._set_shape_i(0, 8)  # 14 elements: still too far
    assert (x.shape, x.size, x.ndim, x.nbytes, len(x)) == ((8,), 8, 1, 32, 8)
    assert not x.is_c_contiguous()
    with pytest.raises(gi.BoundsError):
        x.strides = (8,)
    x.strides = (4,)
    assert x.tolist() == list(range(8))


def test_geometry_in_the_making_shows_strides_beyond_63_bits():
    x = gi.zeros(2, device="cpu")
    x._set_stride(0, 2**62)
    assert x.strides == (2**64,)
    x._set_stride(0, 1)
    assert x.strides == (4,)


def test_a_shape_whose_bytes_do_not_fit_is_refused_however_it_is_made(device):
    one = gi.ones(1, device=device)
    with pytest.raises(gi.ShapeError, match="63 bits"):
        one.broadcast_to((2**62,))
    assert one.broadcast_to((2**60,)).nbytes == 2**62
    with pytest.raises(gi.BoundsError):
        one._restrided((2**62,), (0,), 0)
    with pytest.raises(gi.GpuInteropError):
        gi.from_gpu_pointer(one.ptr, (2**62,), (0,), base=one, device=device)
    for make in (
        lambda: gi.empty((0, 2**62), device=device),
        lambda: gi.from_gpu_pointer(one.ptr, (2**61, 0), base=one, device=device),
        lambda: one[:0].reshape((1, 0)).broadcast_to((2**61, 0)),
        lambda: gi.empty((0, 4), device=device)._set_shape_i(1, 2**62),
        lambda: setattr(gi.empty((0, 4), "int32", device=device), "shape", (0, 2**62)),
    ):
        with pytest.raises(gi.ShapeError, match="63 bits"):
            make()
    empty = gi.empty((0, 2**60), device=device)
    assert empty.strides == (2**62, 4)
    assert empty.tolist() == []


def test_an_address_between_two_elements():
    x = gi.arange(4, dtype="float32", device="cpu")
    view = x[:2]
    for step in (1, 2, 6):
        with pytest.raises(
            gi.BoundsError, match=r"_dev_data: .* aligned for float32, a multiple of 4"
        ):
            view._dev_data = x.ptr + step
    view._dev_data = x.ptr + 8
    assert view.tolist() == [2, 3]


def test_what_an_index_raises_is_passed_on():
    class Interrupted:
        def __index__(self):
            raise KeyboardInterrupt

    class InterruptedLater:
        def __init__(self, name):
            self.name = name

        def __index__(self):
            return 1

        def __getitem__(self, key):
            return self

        def __getattr__(self, name):
            if name == self.name:
                raise KeyboardInterrupt
            if name == "ndim":
                return 0
            raise AttributeError(name)

    x = gi.zeros((2, 2), device="cpu")
    assert x[InterruptedLater("nothing")].shape == (2,)
    for call in (
        lambda: x[Interrupted()],
        lambda: x[InterruptedLater("ndim")],
        lambda: x[InterruptedLater("dtype")],
        lambda: x.reshape((Interrupted(),)),
        lambda: x._permuted((Interrupted(), 0)),
        lambda: setattr(x, "strides", (Interrupted(), 4)),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()


def test_reading_while_another_thread_reshapes():
    x = gi.GpuArray(np.arange(64, dtype="float32").reshape((2,) * 6), device="cpu")
    stop = threading.Event()
    surprises = []

    def reshape():
        while not stop.is_set():
            x.shape = (64,)
            x.shape = (2,) * 6
            x.shape = (8, 8)

    def read():
        for _ in range(2000):
            view, copied = x.view(), x.copy()
            if view.size != 64 or copied.get().sum() != 2016 or x[...].get().sum() != 2016:
                surprises.append((view, copied))
            _core.view(gi.GpuArray, x).__dlpack__()

    writers = [threading.Thread(target=reshape) for _ in range(2)]
    readers = [threading.Thread(target=read) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in writers + readers:
            thread.start()
        for thread in readers:
            thread.join()
    finally:
        stop.set()
        sys.setswitchinterval(switch)
        for thread in writers:
            thread.join()
    assert not surprises


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63), 2**62, -(2**62)])
def test_the_longest_steps_stay_outside(step):
    x = gi.full(2, 7, device="cpu")
    with pytest.raises(gi.BoundsError):
        x._strides = (step,)
    with pytest.raises(gi.BoundsError):
        x.strides = (step // 4 * 4,)
    for shape in ((2,), (1, 2), (3, 1, 2)):
        with pytest.raises(gi.BoundsError):
            x._restrided(shape, (1,) * (len(shape) - 1) + (step,), 0)
        with pytest.raises(gi.BoundsError):
            gi.from_gpu_pointer(x.ptr, shape, (1,) * (len(shape) - 1) + (step,), x, device="cpu")
    assert x.tolist() == [7, 7]
    x._set_stride(0, step)
    with pytest.raises(gi.BoundsError):
        x.tolist()


def test_a_subclass_that_lies_about_its_memory():
    class Liar(gi.GpuArray):
        shape = property(lambda self: (2**40,))
        strides = property(lambda self: (2**20,))
        dtype = property(lambda self: np.dtype("float64"))

        def view(self):
            return self

    x = gi.GpuArray(np.arange(4, dtype="float32"), device="cpu")
    liar = _core.view(Liar, x)
    assert np.asarray(liar).tolist() == [0, 1, 2, 3]
    assert (x + liar).tolist() == [0, 2, 4, 6]
    x[...] = liar[::-1]
    assert x.tolist() == [3, 2, 1, 0]


def test_a_subclass_with_other_methods_of_our_names():
    class Table(gi.GpuArray):
        device = property(lambda self: "the shelf")

        def get(self, key):
            return self[key]

    table = Table([1.0, 2.0], device="cpu")
    table.sync()
    made, arguments, _ = table.__reduce__()
    assert made(*arguments).tolist() == [1, 2]


def test_taking_into_an_out_that_does_not_fit(device):
    x = gi.GpuArray(np.arange(4, dtype="float32"), device=device)
    locked = gi.zeros(2, device=device)
    locked.readonly = True
    for out in (locked, np.zeros(2, "float32"), gi.zeros(3, device=device)):
        with pytest.raises(gi.GpuInteropError, match="take"):
            x.take([0, 1], out=out)
    assert not locked.get().any()
    if x.device.type == "cuda":
        with pytest.raises(gi.DeviceMismatchError):
            x.take([0, 1], out=gi.zeros(2, device="cpu"))
        with pytest.raises(gi.DeviceMismatchError):
            x.cpu().take([0, 1], out=gi.zeros(2, device=device))


@pytest.mark.parametrize("name", [None, 3, 1.5, b"__class__", ("__class__",)])
def test_a_name_of_an_attribute_that_is_no_text(name):
    x = gi.zeros(3, device="cpu")
    with pytest.raises(TypeError, match="attribute name must be string"):
        x.__setattr__(name, int)  # as it stands: setattr() itself would have looked at the name

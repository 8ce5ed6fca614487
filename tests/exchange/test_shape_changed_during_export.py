"""An array whose shape is changed by Python code that runs in the middle of its export."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core

SHAPE = (2,) * 6  # more than five dimensions lie in a block of their own, which a change frees


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_a_copy_while_its_watcher_reshapes(size):
    host = np.arange(size, dtype="float32").reshape(*SHAPE, -1)
    x = gi.GpuArray(host, device="cpu")
    calls = []

    def reshape(frame, event, _):
        if event == "call" and frame.f_code.co_name == "report_copy":
            calls.append(frame)
            x.shape = (x.size,)

    with gi.count_copies():
        sys.setprofile(reshape)
        try:
            cap = x.__dlpack__(copy=True, max_version=(1, 3))
        finally:
            sys.setprofile(None)
    assert len(calls) == 1
    assert x.shape == (size,)
    y = gi.from_dlpack(cap)
    assert y.shape == host.shape
    np.testing.assert_array_equal(np.from_dlpack(y), host)


def test_an_argument_that_reshapes():
    class Reshaping:
        def __index__(self):
            x.shape = (64,)
            return 3

    host = np.arange(64, dtype="float32").reshape(SHAPE)
    x = gi.GpuArray(host, device="cpu")
    y = gi.from_dlpack(x.__dlpack__(max_version=(1, Reshaping())))
    assert y.shape == (64,)
    np.testing.assert_array_equal(np.from_dlpack(y), host.ravel())


def while_garbage_is_collected(change, look):
    """`look` twenty times, each with garbage whose finaliser calls `change`.

    Before Python 3.12 a tuple in the making may collect it, and finalisers run at once.
    """

    class Finaliser:
        def __del__(self):
            change()

    threshold = gc.get_threshold()
    try:
        for _ in range(20):
            gc.disable()
            gc.collect()
            gc.set_threshold(1, 1000, 1000)
            garbage = Finaliser()
            garbage.me = garbage
            del garbage
            gc.enable()
            seen = look()
            gc.disable()
            yield seen
            gc.collect()
    finally:
        gc.set_threshold(*threshold)
        gc.enable()


def test_a_dictionary_while_a_finaliser_reshapes():
    full = (2,) * 20
    x = gi.GpuArray(np.zeros(full, "u1"), device="cpu")

    def look():
        return x.__array_interface__

    x.shape = full
    for entries in while_garbage_is_collected(lambda: setattr(x, "shape", (x.size,)), look):
        assert entries["shape"] in (full, (x.size,))
        assert entries["strides"] is None
        gc.collect()
        x.shape = full


def test_parts_while_a_finaliser_reshapes():
    low, high = (1 << 20, *(1,) * 20), (2,) * 20 + (1,) * 40
    x = gi.GpuArray(np.zeros(low, "u1"), device="cpu")
    for parts in while_garbage_is_collected(
        lambda: setattr(x, "shape", high), lambda: _core.ready_parts(x, 1)
    ):
        shape, strides, _, _ = parts
        assert len(shape) == len(strides)
        assert shape in (low, high)
        assert strides == np.empty(shape, "u1").strides
        gc.collect()
        x.shape = low

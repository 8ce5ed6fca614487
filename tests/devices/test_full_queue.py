"""A launch waits while its stream's queue is full, and the work ahead of it may need the GIL."""

import pytest
from doubles import driver

pytestmark = pytest.mark.driver

# Each operation is repeated until it must wait for a Python function that the stream runs first.
PROGRAM = """
import ctypes
from doubles import driver, fake_driver
from doubles.on_fake import FAKE

if FAKE:
    fake_driver.use()
    fake_driver.set_capacity(8)
import numpy as np
import gpuinterop as gi

CUDA = "cuda:0"
stream, other = gi.Stream(CUDA), gi.Stream(CUDA)
needs_gil = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
with stream:
    x, y = gi.ones((64, 64), device=CUDA), gi.ones((64, 64), device=CUDA)
    h = x.astype("float16")
    v = gi.ones(64, device=CUDA)
    index = np.arange(4)
    graph = gi.capture(lambda a: a + a, x)
    event = gi.Event(CUDA)
    kernel = gi.ElementwiseKernel("float32 x", "float32 y", "y = x + 1", "plus_one")

    def alternate():
        with other:
            gi.add(x, 1, out=y)
        gi.add(x, 1, out=y)

    operations = {
        "elementwise": lambda: gi.add(x, y, out=y),
        "kernel": lambda: kernel(x, out=y),
        "fill": lambda: y.fill(1),
        "fill of a view": lambda: y[:, ::2].fill(1),
        "copy": lambda: y.__setitem__(..., x),
        "copy of a view": lambda: y.__setitem__(..., x.T),
        "reduction": lambda: x.sum(axis=0),
        "vector product": lambda: x @ v,
        "product": lambda: gi.matmul(x, y),
        "product of halves": lambda: gi.matmul(h, h) if not FAKE else None,
        "replay": graph.replay,
        "take": lambda: x.take(index, axis=0),
        "event": lambda: stream.record(event),
        "wait": lambda: stream.wait(other),
        "streams in turn": alternate,
        "export": lambda: x.__dlpack__(stream=other.handle),
        "interface": lambda: x.__cuda_array_interface__,
        "allocation": lambda: gi.empty(1 << 22, device=CUDA),
    }
    for name, operation in operations.items():
        operation()
        stream.synchronize()
        print(name, flush=True)
        driver.slow(stream.handle, 50_000 if FAKE else 300_000)
        with driver.Current():
            driver.call("cuLaunchHostFunc", ctypes.c_void_p(stream.handle), needs_gil, None)
        for _ in range(20 if FAKE else 1500):
            operation()
        stream.synchronize()
        other.synchronize()
print("done")
"""


def test_operations_release_the_gil_while_the_queue_is_full():
    assert driver.run(PROGRAM, timeout=120).endswith("done\n")

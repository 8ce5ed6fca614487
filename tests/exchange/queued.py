"""Work that is queued on streams of the fake driver, and counts of the driver's wait calls."""

import time

from doubles import driver, fake_driver
from doubles.driver import Gate
from peers import CUDA, capsule

import gpuinterop as gi

SYNCS = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")


def syncs() -> int:
    return sum(map(fake_driver.calls, SYNCS))


def waits() -> int:
    return fake_driver.calls("cuStreamWaitEvent")


def use(stream, x, value=7):
    """Queue a write of x, which must not wait on the host."""
    before = syncs()
    with stream:
        x[...] = value
    assert syncs() == before


def busy(stream, x, value, ms=20):
    """Queue slow work on `stream` that ends with x == value."""
    driver.slow(stream.handle, 1000 * ms)
    use(stream, x, value)


def gated(stream, x, value=7) -> Gate:
    """Queue a write of x that comes when the gate is opened."""
    gate = Gate(stream.handle)
    use(stream, x, value)
    return gate


def read(x, stream: int):
    """x as work queued on `stream`, a handle, finds it."""
    return driver.read(x.ptr, x.size, stream)


def shared(x, **fields):
    """A capsule over the memory of x, from a producer that does not say where it works."""
    return capsule(device=CUDA, data=x.ptr, shape=(64,), strides=(1,), **fields)


def soon(condition) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


def soon_synchronized(condition) -> bool:
    return soon(lambda: (gi.synchronize(), condition())[1])

"""Memory that was handed to a consumer elsewhere: freeing it waits for that consumer."""

import gc

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi

pytestmark = pytest.mark.driver

CUDA = "cuda:0"
N = 1000


class Consumer:
    """Another library: imports memory through DLPack, reads it on its stream, and releases it."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.result = gi.zeros((N,), device=CUDA)
        gi.synchronize()

    def read(self, x) -> None:
        self.capsule = x.__dlpack__(stream=self.stream, max_version=(1, 0))
        driver.slow(self.stream, 30_000)
        driver.copy(self.result.ptr, x.ptr, 4 * N, self.stream)

    def let_go(self) -> None:
        del self.capsule
        gc.collect()

    def seen(self) -> np.ndarray:
        return driver.read(self.result.ptr, N, self.stream)


def stream_of(kind: str) -> int:
    return {
        "legacy": lambda: 1,
        "foreign": driver.new_stream,
        "blocking": lambda: driver.new_stream(True),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("legacy", N),
        ("foreign", N),
        ("blocking", N),
        pytest.param("foreign", 20_000_000, id="too large for the cache"),
    ],
)
def test_memory_is_not_used_again_before_the_consumer_has_read_it(kind, size):
    consumer = Consumer(stream_of(kind))
    with gi.Stream():
        for value in (1.0, 2.0, 3.0):
            x = gi.full((size,), value, device=CUDA)
            consumer.read(x)
            del x
            consumer.let_go()
            for _ in range(3):
                gi.full(
                    (size,), -1.0, device=CUDA
                )  # the same size, so the same memory if it is free
            assert consumer.seen().tolist() == [value] * N
    gi.empty_cache()


@pytest.mark.parametrize("kind", ["legacy", "foreign"])
def test_letting_go_during_a_capture_breaks_nothing(kind):
    consumer = Consumer(stream_of(kind))
    s, t = gi.Stream(), gi.Stream()
    with t:
        x = gi.full((N,), 4.0, device=CUDA)
        consumer.read(x)
    address = x.ptr
    t.synchronize()
    with s:
        capture = driver.Capture(s.handle)
        gi.empty((N,), device=CUDA).fill(0.0)
        del x
        consumer.let_go()
        with t:  # the consumer may still read it, and a capture forbids a query
            others = [gi.full((N,), -1.0, device=CUDA) for _ in range(5)]
            assert address not in [y.ptr for y in others]
            del others
        assert capture.finish() == 1
    assert consumer.seen().max() == 4.0
    gi.synchronize()
    with t:
        assert address in [y.ptr for y in [gi.empty((N,), device=CUDA) for _ in range(40)]]

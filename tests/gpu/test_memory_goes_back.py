"""Memory of other libraries is released to them only after the GPU has finished with it."""

import gc

import numpy as np
import pytest

import gpuinterop as gi

pytestmark = pytest.mark.gpu

N = 1 << 16
SLEEP = 20_000_000  # clock cycles, some 10 ms
ROUNDS = 20


def sleep_on(torch, handle: int) -> None:
    with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
        torch.cuda._sleep(SLEEP)


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    torch.cuda._sleep(1)  # loads its kernel
    return torch


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("stream_kind", ["side", "legacy"])
def test_cupy_memory_of_a_non_blocking_stream(torch, cupy, stream_kind):
    """Our slow copy reads it; CuPy would otherwise give it to its next array of that size at once."""
    cupy_stream = cupy.cuda.Stream(non_blocking=True)
    stream = gi.Stream("cuda") if stream_kind == "side" else gi.devices.legacy_stream()
    handle = stream.handle if stream_kind == "side" else 0
    seen = []
    for value in range(1, ROUNDS + 1):
        with cupy_stream, stream:
            source = cupy.full(N, value, dtype="float32")
            x = gi.from_dlpack(source)
            sleep_on(torch, handle)
            seen.append(x.copy())
            del source, x
            cupy.full(N, -1, dtype="float32")  # takes the memory if it is free
    for value, copy in enumerate(seen, 1):
        got = np.asarray(copy)
        assert (got.min(), got.max()) == (value, value)


def test_memory_of_cupy_is_released(torch, cupy):
    cupy_stream = cupy.cuda.Stream(non_blocking=True)
    pool = cupy.cuda.MemoryPool()
    warm = gi.ones(N, device="cuda")
    warm += 1  # compiled and loaded before the clock runs
    with cupy.cuda.using_allocator(pool.malloc), cupy_stream, gi.Stream("cuda") as stream:
        x = gi.from_dlpack(cupy.ones(N, dtype="float32"))
        assert pool.used_bytes() == 4 * N
        sleep_on(torch, stream.handle)
        x += 1
        del x
        assert pool.used_bytes() == 4 * N
        stream.synchronize()
        assert pool.used_bytes() == 0


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_memory_handed_on_to_a_third_library(torch, cupy, name):
    """From one library, through us, to a slow reader of the other on a stream of its own."""
    side = torch.cuda.Stream()
    outer = cupy.cuda.Stream(non_blocking=True)
    seen = []
    for value in range(1, ROUNDS + 1):
        if name == "torch":
            source = torch.full((N,), float(value), device="cuda")
            x = gi.from_dlpack(source)
            with outer:
                sleep_on(torch, outer.ptr)
                seen.append(cupy.from_dlpack(x).copy())
            del source, x
            torch.full((N,), -1.0, device="cuda")
        else:
            with outer:
                source = cupy.full(N, value, dtype="float32")
                x = gi.from_dlpack(source)
            with torch.cuda.stream(side):
                torch.cuda._sleep(SLEEP)
                seen.append(torch.from_dlpack(x).clone())
            with outer:
                del source, x
                cupy.full(N, -1, dtype="float32")
        gc.collect()
    gi.synchronize()
    for value, copy in enumerate(seen, 1):
        assert (float(copy.min()), float(copy.max())) == (value, value)

"""What reaches the driver, and what happens when it refuses."""

import gc
import random

import numpy as np
import pytest
from doubles import driver, fake_driver, internals
from helpers.threads import in_threads

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import CudaError, OutOfMemoryError

CUDA = "cuda:0"
CONTEXT = ("cuCtxGetId", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent")
ALLOCATE = "cuMemAllocAsync"


def empty(n):
    return gi.empty((n,), device=CUDA)


def test_a_warm_allocation_does_not_reach_the_driver():
    empty(1234)
    for place in (devices.legacy_stream(CUDA), devices.per_thread_stream(CUDA)):
        with place:
            empty(1234)
            fake_driver.clear_log()
            for _ in range(100):
                empty(1234)
            assert set(fake_driver.log()) <= {"cuStreamIsCapturing", *CONTEXT}
            assert fake_driver.calls(ALLOCATE) == 0
    fake_driver.clear_log()
    empty(1234)
    assert fake_driver.log() == []


def test_no_question_about_captures_without_a_context():
    """The call would return an error, which is harmless but appears in tools that check driver calls."""
    assert driver.current_context() is None
    for place in (devices.legacy_stream(CUDA), devices.per_thread_stream(CUDA)):
        with place:
            assert not internals.is_capturing_anywhere()
            empty(1234)
    assert fake_driver.faults() == ""


def test_no_call_fails_without_a_current_context():
    """A call of the driver that fails takes 1.2 us, and appears in tools that check driver calls."""
    assert driver.current_context() is None
    x = gi.ones(3, device=CUDA)
    x + x
    fake_driver.clear_log()
    x + x
    names = [name for name in fake_driver.log() if name in CONTEXT]
    assert names == ["cuCtxGetCurrent", "cuCtxGetId", "cuCtxPushCurrent", "cuCtxPopCurrent"]


def test_a_slow_device_keeps_no_array_alive():
    """Objects go with their last name, however much of their work is still queued."""
    x = gi.zeros((4, 4), device=CUDA)
    value = np.ones((2, 4), np.float32)
    before = gi.memory_stats(CUDA)
    fake_driver.set_delay(2000)
    try:
        for _ in range(50):
            view = x[1:3]
            view.T.view()
            view[...] = value
            view.copy()
        del view
        assert not devices.current_stream(CUDA).query()  # all of that has yet to happen
        after = gi.memory_stats(CUDA)
        for key in ("live_bytes", "live_buffers", "live_arrays"):
            assert after[key] == before[key]
    finally:
        fake_driver.set_delay(0)


def test_an_allocation_is_tried_again_once_after_giving_back():
    kept = empty(50_000)
    del kept
    assert gi.memory_stats(CUDA)["cached_bytes"] > 0
    fake_driver.clear_log()
    fake_driver.fail(ALLOCATE, 2)
    x = empty(60_000)
    assert fake_driver.calls(ALLOCATE) == 2
    assert fake_driver.calls("cuMemPoolTrimTo") == 1
    assert gi.memory_stats(CUDA)["cached_bytes"] == 0
    x.fill(1.0)
    assert np.asarray(x).max() == 1.0


def test_other_failures_name_the_call_and_the_code():
    fake_driver.fail(ALLOCATE, 719)
    with pytest.raises(CudaError, match="LAUNCH_FAILED") as error:
        empty(70_001)
    assert ALLOCATE in str(error.value)
    assert "restart the process" in error.value.fix
    x = empty(100)
    for name, call in {
        "cuMemcpyDtoDAsync": lambda: x.copy(),
        "cuMemcpyDtoHAsync": lambda: np.asarray(x),
        "cuEventCreate": lambda: gi.Event(CUDA),
        "cuStreamSynchronize": lambda: gi.Stream(CUDA).synchronize(),
    }.items():
        for _ in range(2):  # the second time as a warm call
            fake_driver.fail(name, 700)
            with pytest.raises(CudaError, match=name):
                call()
            call()
    x.fill(2.0)
    assert np.asarray(x.copy()).max() == 2.0


def test_a_failing_upload_frees_what_it_allocated():
    before = gi.memory_stats(CUDA)["live_bytes"]
    for size in (100, 3_000_000):
        fake_driver.fail("cuMemcpyHtoDAsync", 700)
        with pytest.raises(CudaError):
            gi.asarray(np.ones(size, np.float32), device=CUDA)
    gc.collect()
    assert gi.memory_stats(CUDA)["live_bytes"] == before


def test_order_costs_no_call_on_the_same_stream():
    x, y = empty(100), empty(100)
    x.fill(1.0)
    fake_driver.clear_log()
    for _ in range(10):
        x.fill(2.0)
        y.fill(3.0)
    assert set(fake_driver.log()) <= {*CONTEXT, "cuMemsetD32Async"}


def test_no_call_synchronises_in_ordinary_work():
    streams = [gi.Stream() for _ in range(3)]
    x = gi.ones((1000,), device=CUDA)
    fake_driver.clear_log()
    for i in range(30):
        with streams[i % 3]:
            y = x.copy()
            y.fill(float(i))
            x = y
            capsule = x.__dlpack__(stream=1)
            del capsule
    host = gi.asarray(np.ones(50_000, np.float32), device=CUDA)
    del host
    assert not [
        name for name in fake_driver.log() if "Synchronize" in name and name != "cuEventSynchronize"
    ]


def test_cached_blocks_are_freed_for_a_large_array():
    gi.empty_cache()
    used = fake_driver.used()
    fake_driver.set_memory(used + (64 << 20))
    try:
        x = [empty(1 << 20) for _ in range(12)]  # 48 MiB
        x[0].fill(1.0)
        del x
        y = empty(12 << 20)
        y.fill(2.0)
        with pytest.raises(OutOfMemoryError, match="fix"):
            empty(12 << 20)
        del y
        assert empty(15 << 20).nbytes == 60 << 20
    finally:
        fake_driver.set_memory(1 << 30)
        gi.empty_cache()


def test_many_threads_on_many_streams():
    streams = [gi.Stream() for _ in range(4)]
    shared = [gi.full((500,), float(i), device=CUDA) for i in range(4)]

    def work(seed):
        chance = random.Random(seed)
        for step in range(150):
            with chance.choice(
                [*streams, devices.per_thread_stream(CUDA), devices.legacy_stream(CUDA)]
            ):
                value = float(step)
                x = gi.full((chance.choice([100, 500, 5000]),), value, device=CUDA)
                y = x.copy()
                z = chance.choice(shared).copy()
                if step % 10 == 0:
                    assert {*np.asarray(y).tolist()} == {value}, (seed, step)
                    assert len({*np.asarray(z).tolist()}) == 1, (seed, step)
            if step % 50 == 0:
                gi.empty_cache(CUDA)

    in_threads(work, range(6))

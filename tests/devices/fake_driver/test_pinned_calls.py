"""Driver calls for page-locked memory."""

import gc

import numpy as np
import pytest
from doubles import driver, fake_driver

import gpuinterop as gi
from gpuinterop.errors import OutOfMemoryError

CUDA = "cuda:0"


def test_pinned_memory_is_cached_after_its_copies_and_freed_on_demand():
    gi.empty_cache(CUDA)
    gi.zeros((), device=CUDA).item()  # allocates the memory in which small downloads land
    fake_driver.clear_log()
    with gi.Stream() as stream:
        x = gi.zeros((100,), device=CUDA)
        host, spare = (gi.pinned_empty(100, device=CUDA) for _ in range(2))
        host[...] = 3
        address = host.ctypes.data
        gate = driver.Gate(stream.handle)
        gi.copy_async(x, host)
        gi.copy_async(x, host)
        del host, spare
        gc.collect()
        assert gi.pinned_empty(100, device=CUDA).ctypes.data != address
        gate.open()
        stream.synchronize()
        assert np.asarray(x).max() == 3
    again = [gi.pinned_empty(n, device=CUDA) for n in (90, 110)]
    assert address in [a.ctypes.data for a in again]
    assert fake_driver.calls("cuMemHostAlloc") == 2
    del again
    gi.empty_cache(CUDA)
    assert fake_driver.calls("cuMemFreeHost") == 3


def test_copies_on_two_streams_are_both_waited_for():
    x, y = gi.zeros((100,), device=CUDA), gi.zeros((100,), device=CUDA)
    host, spare = (gi.pinned_empty(100, device=CUDA) for _ in range(2))
    host[...] = 3
    address = host.ctypes.data
    gates = []
    for a in (x, y):
        with gi.Stream() as stream:
            gates.append((stream, driver.Gate(stream.handle)))
            gi.copy_async(a, host)
    del host, spare
    for stream, gate in gates:
        assert gi.pinned_empty(100, device=CUDA).ctypes.data != address
        gate.open()
        stream.synchronize()
    gi.synchronize(CUDA)
    assert np.asarray(x).max() == np.asarray(y).max() == 3


def test_memory_of_a_finished_copy_is_free_at_once():
    with gi.Stream():
        x = gi.zeros((100,), device=CUDA)
        host = gi.pinned_empty(100, device=CUDA)
        x.set(host)
        fake_driver.clear_log()
        del host
        gc.collect()
        assert fake_driver.calls("cuEventRecord") == 0  # nothing to wait for


def test_much_larger_memory_is_not_spent_on_little():
    large = gi.pinned_empty(1 << 20, device=CUDA)
    address = large.ctypes.data
    del large
    assert gi.pinned_empty(100, device=CUDA).ctypes.data != address
    assert gi.pinned_empty(1 << 20, device=CUDA).ctypes.data == address


def test_cached_pinned_memory_is_freed_before_an_allocation_fails():
    gi.empty_cache(CUDA)
    del_me = gi.pinned_empty(100, device=CUDA)
    del del_me
    fake_driver.clear_log()
    fake_driver.fail("cuMemHostAlloc", 2)
    assert gi.pinned_empty(1 << 20, device=CUDA).nbytes == 4 << 20
    assert fake_driver.calls("cuMemFreeHost") == 1


def test_idle_pinned_memory_is_bounded_by_the_peak_use():
    gi.empty_cache(CUDA)
    fake_driver.clear_log()
    for mebibytes in range(1, 61):  # each block is larger than every idle one
        host = gi.pinned_empty(mebibytes << 18, device=CUDA)  # float32
        del host
        if mebibytes == 11:  # 55 MiB were idle
            assert fake_driver.calls("cuMemFreeHost") == 0
    assert fake_driver.calls("cuMemHostAlloc") == 60
    # 64 MiB may stay idle: the ten smallest blocks, 55 MiB, and the last one.
    assert fake_driver.calls("cuMemFreeHost") >= 60 - 11
    gi.empty_cache(CUDA)
    assert fake_driver.calls("cuMemFreeHost") == 60


def test_out_of_pinned_memory_error_names_the_memory():
    gi.empty_cache(CUDA)
    fake_driver.fail("cuMemHostAlloc", 2)
    with pytest.raises(OutOfMemoryError, match="pinned host memory"):
        gi.pinned_empty(100, device=CUDA)

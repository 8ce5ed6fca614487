"""Allocation, reuse, exhaustion, statistics, what the driver says of pointers."""

import gc

import numpy as np
import pytest
from doubles import driver, internals

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import DeviceError, OutOfMemoryError

pytestmark = pytest.mark.driver

CUDA = "cuda:0"


def stats(device=CUDA):
    return gi.memory_stats(device)


def empty(n, device=CUDA):
    return gi.empty((n,), device=device)


def test_memory_is_aligned():
    for n in (1, 3, 17, 1000, 123_457):
        assert empty(n).ptr % 256 == 0
        assert gi.empty((n,), device="cpu").ptr % 64 == 0


def test_freed_memory_serves_the_next_array_of_its_size():
    gc.collect()
    a = empty(1000)
    address = a.ptr
    del a
    assert empty(1000).ptr == address
    assert empty(1020).ptr == address  # the same class of 512 bytes
    b = empty(5000)
    assert b.ptr != address


def test_freed_memory_stays_with_its_stream():
    s = gi.Stream()
    a = empty(2000)
    address = a.ptr
    del a
    with s:
        b = empty(2000)
        assert b.ptr != address
        second = b.ptr
        del b
        assert empty(2000).ptr == second
    assert empty(2000).ptr == address


def test_memory_moves_to_the_stream_of_its_last_use():
    s = gi.Stream()
    a = empty(3000)
    address = a.ptr
    with s:
        a.copy()
    assert a._stream == s.handle
    del a
    assert empty(3000).ptr != address
    with s:
        held = [empty(3000), empty(3000)]
        assert address in [x.ptr for x in held]


def test_statistics_count_and_return():
    gc.collect()
    devices.reset_peak_memory(CUDA)
    before = stats()
    x = empty(1000)
    y = x[::2]
    during = stats()
    assert during["live_bytes"] - before["live_bytes"] == 4000
    assert during["live_buffers"] - before["live_buffers"] == 1
    z = empty(500)
    del x, z
    assert stats()["live_bytes"] - before["live_bytes"] == 4000  # the view holds it
    del y
    after = stats()
    assert after["live_bytes"] == before["live_bytes"]
    assert after["live_buffers"] == before["live_buffers"]
    assert after["peak_bytes"] - before["live_bytes"] == 6000
    devices.reset_peak_memory(CUDA)
    assert stats()["peak_bytes"] == after["live_bytes"]


def test_statistics_of_the_devices_are_apart(second_device):
    before = stats(CUDA)["live_bytes"]
    x = empty(1000, second_device)
    assert stats(CUDA)["live_bytes"] == before
    assert stats(second_device)["live_bytes"] >= x.nbytes


def test_empty_cache_gives_everything_back():
    gi.empty_cache(CUDA)  # a cache that other tests have filled is emptied when it is full
    x = [empty(250_000) for _ in range(4)]
    gi.synchronize()
    del x
    assert stats()["cached_bytes"] >= 4_000_000
    free, total = gi.mem_info(CUDA)
    gi.empty_cache(CUDA)
    assert stats()["cached_bytes"] == 0
    assert gi.mem_info(CUDA)[0] >= free
    assert gi.mem_info(CUDA)[1] == total


def test_the_cache_is_bounded():
    _, total = gi.mem_info(CUDA)
    limit = min(total // 16, 2 << 30)
    for _ in range(3):
        x = [empty(limit // 32) for _ in range(12)]
        del x
        assert stats()["cached_bytes"] <= limit
    big = empty(limit // 8)  # half the limit in one block: not cached
    del big
    assert stats()["cached_bytes"] <= limit
    gi.empty_cache(CUDA)


def test_many_sizes_do_not_fill_the_cache_for_good():
    for n in range(1, 2000):
        empty(n * 128)
    x = empty(777 * 128)
    address = x.ptr
    del x
    assert empty(777 * 128).ptr == address
    gi.empty_cache(CUDA)


def test_out_of_memory_error_names_the_size_and_the_next_allocation_works():
    x = empty(1000)
    x.fill(3.0)
    total = gi.mem_info(CUDA)[1]
    with pytest.raises(OutOfMemoryError) as error:
        empty(total)  # four times as many bytes
    assert isinstance(error.value, MemoryError)
    assert str(4 * total) in error.value.expected
    assert "free" in error.value.got
    assert str(total) in error.value.got
    assert "hold" in error.value.got
    y = empty(1000)
    y.fill(4.0)
    assert (np.asarray(x).max(), np.asarray(y).max()) == (3.0, 4.0)


def test_unknown_devices():
    count = len(gi.devices()) - 1
    with pytest.raises(DeviceError, match="device number"):
        gi.empty(3, device=(2, count))
    with pytest.raises(DeviceError):
        gi.empty(3, device=(2, -1))
    for call in (gi.mem_info, devices.device_properties):
        with pytest.raises(DeviceError):
            call(f"cuda:{count}")


# ---- pointers -----------------------------------------------------------------------------------


def test_inspect_pointer_reports_the_driver_attributes():
    x, host = empty(1000), np.zeros(100)
    found = internals.inspect_pointer(x.ptr + 40)
    assert found["start"] <= x.ptr
    assert found["start"] + found["nbytes"] >= x.ptr + x.nbytes
    pinned, managed = driver.allocate_pinned(4096), driver.allocate_managed(4096)
    context = driver.new_context()
    foreign = driver.allocate(4096, context)
    for address, memory, device, same_context in (
        *((empty(9, d).ptr, "device", d.index, True) for d in gi.devices()[1:]),
        (foreign, "device", 0, False),
        (pinned, "pinned", 0, True),
        (managed, "managed", 0, True),
    ):
        found = internals.inspect_pointer(address)
        assert (found["known"], found["memory"], found["device"]) == (True, memory, device)
        assert found["same_context"] == same_context
    for address in (0, 8, host.ctypes.data, 2**63 + 5):
        assert not internals.inspect_pointer(address)["known"]
    driver.free(foreign, context)
    driver.free(managed)
    driver.free_pinned(pinned)


# ---- contexts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["none", "own", "foreign", "second"])
def test_the_callers_context_stays_current(which, request):
    if which == "foreign":
        driver.push(driver.new_context())
    elif which == "own":
        driver.push(driver.primary(0))
    elif which == "second":
        request.getfixturevalue("second_device")
        driver.push(driver.primary(1))
    before = driver.current_context()
    try:
        s = gi.Stream()
        with s:
            x = gi.ones((1000,), device=CUDA)
            y = x.copy()
        np.asarray(y)
        e = s.record()
        e.synchronize()
        s.wait(devices.legacy_stream(CUDA))
        gi.mem_info(CUDA)
        gi.synchronize()
        internals.inspect_pointer(x.ptr)
        with pytest.raises(OutOfMemoryError):
            empty(gi.mem_info(CUDA)[1])
        del x, y
        gi.empty_cache()
        assert driver.current_context() == before
    finally:
        if which != "none":
            driver.pop()


def test_device_of_a_pointer_does_not_depend_on_the_default_device():
    x = gi.full((4,), 3.0, device="cuda:0")
    host = gi.zeros((4,), device="cpu")
    for default in ("cpu", "cuda:0"):
        with gi.device(default):
            for base in (x, [x]):
                y = gi.from_gpu_pointer(x.ptr, (4,), None, base)
                assert y.device == "cuda:0"
                assert y.tolist() == [3.0] * 4
            assert gi.from_gpu_pointer(host.ptr, (4,), None, host).device == "cpu"
    pinned = gi.pinned_empty(4, device="cuda:0")
    with gi.device("cpu"):
        assert gi.from_gpu_pointer(pinned.ctypes.data, (4,), None, pinned).device == "cpu"


def test_memory_of_an_array_is_not_imported_on_another_device():
    x, host = gi.zeros((4,), device="cuda:0"), gi.zeros((4,), device="cpu")
    pairs = [(x, "cpu"), (host, "cuda:0")]
    if len(gi.devices()) > 2:
        pairs.append((gi.zeros((4,), device="cuda:1"), "cuda:0"))
    for base, device in pairs:
        with pytest.raises(gi.DeviceMismatchError, match=f"{base.device}, which"):
            gi.from_gpu_pointer(base.ptr, (4,), None, base, device=device)

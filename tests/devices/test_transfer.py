"""Copies between host and device, and between devices."""

import ctypes

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi

pytestmark = pytest.mark.driver

CUDA = "cuda:0"
MiB = 1 << 20


def pattern(n, seed=0):
    return np.random.default_rng(seed).random(n, np.float32)


@pytest.mark.parametrize("n", [1000, 3 * MiB])
def test_source_may_change_as_soon_as_the_upload_returns(n):
    s = gi.Stream()
    host = pattern(n)
    kept = host.copy()
    with s:
        driver.slow(s.handle, 20_000)
        x = gi.asarray(host, device=CUDA)
    host[:] = -1.0
    assert np.array_equal(np.asarray(x), kept)


def test_pinned_source_may_change_after_a_blocking_upload():
    pinned = driver.allocate_pinned(4 * MiB)
    host = np.frombuffer((ctypes.c_char * (4 * MiB)).from_address(pinned), np.float32)
    host[:] = 3.0
    s = gi.Stream()
    with s:
        driver.slow(s.handle, 20_000)
        x = gi.asarray(host, device=CUDA)
    host[:] = 4.0
    assert np.asarray(x).max() == 3.0
    driver.free_pinned(pinned)


# ---- between devices ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 1000, 3 * MiB])
def test_peer_round_trip(second_device, n):
    host = pattern(n)
    x = gi.asarray(host, device=CUDA)
    y = x.to_device(second_device)
    assert str(y.device) == second_device
    assert np.array_equal(np.asarray(y), host)
    assert np.array_equal(np.asarray(y.to_device(CUDA)), host)


def test_peer_copy_is_ordered_on_both_sides(second_device):
    here, there = gi.Stream(CUDA), gi.Stream(second_device)
    for value in range(5):
        with here, there:
            driver.slow(here.handle, 5000)
            x = gi.full((1000,), float(value), device=CUDA)
            y = x.to_device(second_device)
            assert y._stream == there.handle
            x.fill(-1.0)  # after the copy has read it
        assert np.asarray(y).tolist() == [float(value)] * 1000
        assert np.asarray(x).max() == -1.0


def test_peer_copy_leaves_the_source_free_to_die(second_device):
    here, there = gi.Stream(CUDA), gi.Stream(second_device)
    with here, there:
        x = gi.full((1000,), 5.0, device=CUDA)
        driver.slow(there.handle, 20_000, device=1)
        y = x.to_device(second_device)
        del x
        gi.full((1000,), 6.0, device=CUDA)
    assert np.asarray(y).max() == 5.0

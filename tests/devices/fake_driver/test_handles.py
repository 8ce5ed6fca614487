"""A stream handle that the driver reuses while gpuinterop still stores it."""

import numpy as np
import pytest
from doubles import driver, fake_driver
from doubles.streams import CuPy

import gpuinterop as gi
from gpuinterop import devices

CUDA = "cuda:0"


def given_again(wrap=CuPy):
    """A stream that was destroyed before its work was done, and its successor."""
    handle = driver.new_stream()
    stream = devices.as_stream(wrap(handle))
    with stream:
        x = gi.zeros((1000,), device=CUDA)
        gate = driver.Gate(handle)
        x.fill(2.0)
    driver.destroy_stream(handle)
    fake_driver.give_handle_again(handle)
    return stream, x, gate


def wrap_anew(stream):
    return devices.as_stream(stream.handle)


def take_as_it_is(stream):
    return stream


@pytest.mark.parametrize("wrap", [CuPy, int])
@pytest.mark.parametrize("again", [wrap_anew, take_as_it_is])
def test_stream_with_a_reused_handle_waits_for_work_of_the_old_stream(again, wrap):
    """Both streams have the same handle, so by the handle alone the new one would not wait: not for arrays, not for
    freed blocks, not for the counters of reductions."""
    stream, x, gate = given_again(wrap)
    successor = again(stream)
    with successor:
        y = x.copy()
        assert not driver.is_done(successor.handle)
        gate.open()
        assert np.asarray(y).max() == 2.0


def test_live_stream_with_the_same_handle_does_not_wait():
    handle, other = driver.new_stream(), driver.new_stream()
    stream = devices.as_stream(handle)
    with stream:
        gi.zeros((1000,), device=CUDA)
    stream.synchronize()
    gate = driver.Gate(other)
    fake_driver.clear_log()
    for again in (stream, devices.as_stream(handle)):
        with again:
            gi.zeros((1000,), device=CUDA)
    assert fake_driver.calls("cuStreamGetId") == 2
    assert fake_driver.calls("cuCtxRecordEvent") == 0
    stream.synchronize()
    gate.open()

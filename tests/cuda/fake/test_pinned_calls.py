"""What page-locked memory asks of the driver."""

from __future__ import annotations

import gc

import helper
import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import OutOfMemoryError

CUDA = "cuda:0"


def test_it_is_given_back_once_and_after_its_copies():
    with gi.Stream() as stream:
        x = gi.zeros((100,), device=CUDA)
        host = gi.pinned_empty(100, device=CUDA)
        host[...] = 3
        helper.clear_log()
        gate = helper.Gate(stream.handle)
        gi.copy_async(x, host)
        gi.copy_async(x, host)
        del host
        gc.collect()
        assert helper.fake_calls("cuMemFreeHost") == 0
        gate.open()
        stream.synchronize()
        assert helper.fake_calls("cuMemFreeHost") == 1
        assert np.asarray(x).max() == 3


def test_copies_on_two_streams_are_both_waited_for():
    x, y = gi.zeros((100,), device=CUDA), gi.zeros((100,), device=CUDA)
    host = gi.pinned_empty(100, device=CUDA)
    host[...] = 3
    helper.clear_log()
    gates = []
    for a in (x, y):
        with gi.Stream() as stream:
            gates.append((stream, helper.Gate(stream.handle)))
            gi.copy_async(a, host)
    del host
    for stream, gate in gates:
        assert helper.fake_calls("cuMemFreeHost") == 0
        gate.open()
        stream.synchronize()
    gi.synchronize(CUDA)
    assert helper.fake_calls("cuMemFreeHost") == 1
    assert np.asarray(x).max() == np.asarray(y).max() == 3


def test_a_large_copy_needs_no_staging():
    host = gi.pinned_empty(3_000_000, device=CUDA)
    host[...] = 2
    helper.clear_log()
    x = gi.asarray(host, device=CUDA)
    assert helper.fake_calls("cuMemcpyHtoDAsync") == 1
    assert helper.fake_calls("cuMemHostAlloc") == 0
    assert np.asarray(x).min() == 2


def test_no_room_is_an_error_that_names_it():
    helper.fail("cuMemHostAlloc", 2)
    with pytest.raises(OutOfMemoryError, match="page-locked"):
        gi.pinned_empty(100, device=CUDA)

"""Page-locked memory: asynchronous copies, and memory that is kept until they have completed."""

import gc
import threading

import numpy as np
import pytest
from doubles import driver, internals

import gpuinterop as gi
from gpuinterop.errors import DeviceError

pytestmark = pytest.mark.driver

CUDA = "cuda:0"


def pinned(values):
    values = np.asarray(values, np.float32)
    host = gi.pinned_empty(values.shape, device=CUDA)
    host[...] = values
    return host


def test_pinned_array_is_page_locked_and_a_numpy_array():
    host = gi.pinned_empty((3, 4), "int16", device=CUDA)
    assert type(host) is np.ndarray
    assert (host.shape, host.dtype) == ((3, 4), np.int16)
    assert host.flags.c_contiguous
    assert host.flags.writeable
    assert internals.inspect_pointer(host.ctypes.data)["memory"] == "pinned"
    assert gi.pinned_empty((), device=CUDA).shape == ()
    assert gi.pinned_empty((0, 3), device=CUDA).shape == (0, 3)


def test_copies_are_queued_in_both_directions():
    values = np.arange(1000, dtype=np.float32)
    source, target = pinned(values), pinned(np.zeros(1000))
    with gi.Stream() as stream:
        x = gi.zeros((1000,), device=CUDA)
        gate = driver.Gate(stream.handle)
        gi.copy_async(x, source)
        gi.copy_async(target, x)
        assert not stream.query()  # both calls came back before anything ran
        assert target.max() == 0
        gate.open()
        stream.synchronize()
    np.testing.assert_array_equal(target, values)


def test_memory_stays_until_its_copies_have_passed():
    """Without the pending copy, released memory would be reused and overwritten at once."""
    values = np.arange(1000, dtype=np.float32)
    with gi.Stream() as stream:
        x = gi.zeros((1000,), device=CUDA)
        source, spare = pinned(values), pinned(values)
        gate = driver.Gate(stream.handle)
        gi.copy_async(x, source[:])
        del source, spare  # the spare one is what the next get: taking more would wait for the gate
        gc.collect()
        for _ in range(4):
            pinned(np.full(1000, -1))
        gate.open()
        np.testing.assert_array_equal(np.asarray(x), values)


def test_a_view_keeps_the_memory():
    host = pinned(np.arange(12).reshape(3, 4))
    view = host.T[1:, ::2]
    address = host.ctypes.data
    del host
    gc.collect()
    assert internals.is_pinned_here(address, 48)
    assert view.tolist() == [[1, 9], [2, 10], [3, 11]]
    del view
    assert not internals.is_pinned_here(address, 48)


@pytest.mark.parametrize("key", [np.s_[::2], np.s_[::-1], np.s_[1:3]])
def test_any_strides_are_copied(key):
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    host, x = pinned(values), gi.asarray(values, device=CUDA)
    landed = pinned(np.zeros((4, 3)))
    y = gi.zeros((4, 3), device=CUDA)
    gi.copy_async(y[: len(host[key])], host[key])
    gi.copy_async(landed[: len(host[key])], x[: len(host[key])])
    gi.synchronize()
    np.testing.assert_array_equal(np.asarray(y)[: len(host[key])], values[key])
    np.testing.assert_array_equal(landed[: len(host[key])], values[: len(host[key])])


def test_ordinary_memory_is_refused():
    x = gi.zeros((4,), device=CUDA)
    for pair in ((x, np.ones(4, np.float32)), (np.ones(4, np.float32), x)):
        with pytest.raises(DeviceError, match="pinned_empty"):
            gi.copy_async(*pair)
    assert np.asarray(x).max() == 0


def test_a_graph_holds_a_copy_and_its_memory():
    host, x = pinned(np.ones(100)), gi.zeros((100,), device=CUDA)
    gi.synchronize()  # or the graph would wait for the zeros, in a node
    with gi.capture(device=CUDA) as graph:
        gi.copy_async(x, host)
    assert graph.nodes == 1
    assert np.asarray(x).max() == 0
    address = host.ctypes.data
    host[...] = 5
    del host
    gc.collect()
    assert internals.is_pinned_here(address, 400)
    graph.replay()
    assert np.asarray(x).tolist() == [5.0] * 100


def test_a_capture_survives_the_end_of_memory():
    stream = gi.Stream()
    host = pinned(np.ones(100))
    capture = driver.Capture(stream.handle)
    del host
    gc.collect()
    assert capture.finish() == 0
    pinned(np.ones(3))


@pytest.mark.parametrize("key", [np.s_[::2], np.s_[::-1]])
def test_a_strided_source_waits_for_what_is_queued_into_it(key):
    host, z, y = pinned(np.full(6, 7)), gi.ones((6,), device=CUDA), gi.zeros((6,), device=CUDA)
    part = y[: len(host[key])]
    with gi.Stream() as stream:
        gate = driver.Gate(stream.handle)
        gi.copy_async(host, z)
        opener = threading.Timer(0.1, gate.open)
        opener.start()
        gi.copy_async(part, host[key])
        opener.join()
        stream.synchronize()
    assert part.tolist() == [1.0] * len(host[key])

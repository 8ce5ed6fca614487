"""What a graph capture may see: no synchronisation, memory of its own, order where it can be had."""

import time

import numpy as np
import pytest
from doubles import driver, internals
from doubles.streams import Torch
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import CaptureError

pytestmark = pytest.mark.driver

CUDA = "cuda:0"
MODES = [driver.Capture.GLOBAL, driver.Capture.THREAD_LOCAL, driver.Capture.RELAXED]


def empty(n):
    return gi.empty((n,), device=CUDA)


def filled(n, value):
    return gi.full((n,), value, device=CUDA)


def comes_back(address):
    """Whether memory of a graph that has ended serves others; the driver reports the end later."""
    held = []  # each round allocates more than the idle blocks hold
    for _ in range(100):
        held += [empty(1000) for _ in range(40)]
        if address in [x.ptr for x in held[-40:]]:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def stream():
    s = gi.Stream()
    s.synchronize()
    with s:
        yield s
        driver.Capture.end_all()  # a test may have failed inside a capture, and later tests reuse `s`


@pytest.mark.parametrize("mode", MODES)
def test_a_captured_fill_runs_when_the_graph_does(stream, mode):
    x = filled(1000, 1.0)
    stream.synchronize()
    capture = driver.Capture(stream.handle, mode)
    assert stream.is_capturing
    assert internals.is_capturing_anywhere()
    x.fill(2.0)
    assert capture.end() == 1
    assert not stream.is_capturing
    assert not internals.is_capturing_anywhere()
    assert np.asarray(x).max() == 1.0
    for value in (5.0, 6.0):
        x.fill(value)
        capture.launch(stream.handle)
        assert np.asarray(x).tolist() == [2.0] * 1000
    capture.destroy()


@pytest.mark.parametrize("mode", MODES)
def test_synchronising_call_is_refused_and_the_capture_survives(stream, mode):
    x = filled(10, 1.0)
    host = np.ones(10, np.float32)
    event = stream.record()
    event.synchronize()
    capture = driver.Capture(stream.handle, mode)
    x.fill(3.0)
    refused = [
        stream.synchronize,
        stream.query,
        gi.synchronize,
        lambda: np.asarray(x),
        lambda: gi.asarray(host, device=CUDA),
        lambda: x[0].item(),
    ]
    for call in refused:
        with pytest.raises(CaptureError):
            call()
    gi.empty_cache()  # gives back what it can, and waits for nothing
    assert event.query()
    assert capture.finish() == 1


@pytest.mark.parametrize("mode", MODES)
def test_allocation_in_a_capture_adds_no_node_and_does_not_wait(stream, mode):
    capture = driver.Capture(stream.handle, mode)
    x = empty(1000)
    y = empty(3_000_000)
    x.fill(1.0)
    y.fill(2.0)
    z = x.copy()
    assert capture.end() == 3
    capture.launch(stream.handle)
    assert np.asarray(z).tolist() == [1.0] * 1000
    assert np.asarray(y).min() == 2.0
    capture.destroy()


def test_memory_of_a_capture_serves_that_capture_only(stream):
    capture = driver.Capture(stream.handle)
    a = empty(1000)
    address = a.ptr
    a.fill(1.0)
    del a
    b = empty(1000)
    assert b.ptr == address  # reuse inside the graph is ordered by the graph
    del b
    capture.end()
    outside = [empty(1000) for _ in range(20)]
    assert address not in [x.ptr for x in outside]  # each launch writes there
    del outside
    capture.launch(stream.handle)
    stream.synchronize()
    capture.destroy()
    assert comes_back(address)


def test_memory_of_a_graph_outlives_it_while_an_array_holds_it(stream):
    capture = driver.Capture(stream.handle)
    x = empty(1000)
    x.fill(4.0)
    capture.end()
    capture.launch(stream.handle)
    stream.synchronize()
    capture.destroy()
    address = x.ptr
    assert address not in [empty(1000).ptr for _ in range(5)]
    assert np.asarray(x).max() == 4.0
    del x
    assert comes_back(address)


def test_entering_a_stream_that_its_owner_captures_leaves_the_capture_whole():
    raw = driver.new_stream()
    x = filled(10, 1.0)
    gi.synchronize(CUDA)
    capture = driver.Capture(raw)
    with gi.stream(raw):
        x.fill(2.0)
    assert capture.end() == 1
    capture.launch(raw)
    gi.synchronize(CUDA)
    assert np.asarray(x).max() == 2.0
    capture.destroy()
    driver.destroy_stream(raw)


def test_freeing_outside_memory_in_a_capture_adds_no_node(stream):
    x, y = filled(1000, 1.0), filled(2_000_000, 1.0)
    stream.synchronize()
    capture = driver.Capture(stream.handle)
    z = x.copy()
    del x, y
    gi.empty_cache()
    assert capture.finish() == 1
    del z
    gi.empty_cache()
    assert gi.memory_stats(CUDA)["cached_bytes"] == 0


def test_unfinished_work_outside_is_waited_for_by_the_launch(stream):
    side = gi.Stream()
    with side:
        x = filled(1000, 1.0)
        side.synchronize()
        driver.slow(side.handle, 60_000)
        x.fill(3.0)
    capture = driver.Capture(stream.handle)
    y = x.copy()
    capture.end()
    capture.launch(stream.handle)
    assert np.asarray(y).max() == 3.0
    capture.destroy()


def test_arrays_of_a_running_capture_are_its_own():
    """Another thread gets an error with a fix; the capture stays valid, and afterwards the arrays work again."""
    operand, untouched = filled(1000, 1.0), filled(1000, 4.0)
    graph = gi.capture(device=CUDA)
    refused = []

    def elsewhere(result):
        for call in (
            operand.copy,
            lambda: operand.fill(9.0),
            lambda: np.asarray(operand),
            operand.__dlpack__,
            result.copy,
        ):
            with pytest.raises(CaptureError, match="ended") as error:
                call()
            refused.append(error.value)
        return operand[1:].shape, np.asarray(untouched).max()

    with graph:
        result = operand.copy()
        values = in_thread(elsewhere, result)
    assert len(refused) == 5
    assert all("legacy" in e.got for e in refused)
    assert values == ((999,), 4.0)
    assert np.asarray(operand).max() == 1.0
    graph.replay()
    assert np.asarray(result).max() == 1.0


def test_a_capture_takes_no_stream_on_which_an_array_was_last_used():
    other, gone = gi.Stream(), gi.Stream()
    with gone:
        x = filled(1000, 1.0)
    gone.synchronize()
    del gone

    def beside():
        with other:
            return np.asarray(x.copy()).max()

    with gi.capture(device=CUDA):
        assert in_thread(beside) == 1.0


def test_fork_and_join_inside_a_capture(stream):
    side = gi.Stream()
    x = filled(1000, 1.0)
    stream.synchronize()
    capture = driver.Capture(stream.handle)
    x.fill(2.0)
    side.wait(stream)
    assert side.is_capturing
    with side:
        y = x.copy()
    stream.wait(side)
    z = y.copy()
    capture.end()
    assert not side.is_capturing
    capture.launch(stream.handle)
    assert np.asarray(z).max() == 2.0
    capture.destroy()


@pytest.mark.parametrize(
    "handed",
    ["no stream", "the same stream", "another stream", "before a use elsewhere", "unnamed stream"],
)
def test_memory_used_by_another_stream_of_the_capture_is_not_reused(stream, handed):
    """Later work is ordered after that use only if it runs on the same stream."""
    other = gi.Stream()
    capture = driver.Capture(stream.handle)
    other.wait(stream)
    x = empty(1000)
    x.fill(1.0)
    address = x.ptr
    consumers = {"no stream": None, "another stream": other.handle, "unnamed stream": -1}
    consumer = consumers.get(handed, stream.handle)
    if consumer is not None:
        capsule = x.__dlpack__(stream=consumer, max_version=(1, 3))
        del capsule
    if handed == "before a use elsewhere":
        with other:
            x.fill(2.0)
    del x
    last_stream = other if handed == "before a use elsewhere" else stream
    with last_stream:
        later = empty(1000)
        later.fill(3.0)
    again = later.ptr == address
    stream.wait(other)
    capture.finish()
    assert again == (handed in ("no stream", "the same stream"))
    del later
    with last_stream:
        assert comes_back(address)


def test_a_failed_capture_leaves_its_stream_behind(stream):
    """Its stream is not reused, and the next capture works."""
    broken = gi.Stream()
    capture = driver.Capture(broken.handle)
    handle = broken.handle
    del broken
    others = [gi.Stream() for _ in range(8)]
    assert handle not in [s.handle for s in others]
    assert not any(s.is_capturing for s in others)
    driver.Capture.end_all()
    assert driver.Capture.open == []
    capture = driver.Capture(stream.handle)
    empty(1000).fill(1.0)
    assert capture.finish() == 1


@pytest.mark.parametrize("mode", MODES)
def test_calls_that_concern_no_captured_stream_spoil_nothing(stream, mode):
    side, host = gi.Stream(), np.arange(1000, dtype=np.float32)
    with side:
        x = filled(1000, 1.0)
    start = side.record(gi.Event(timing=True))
    side.synchronize()
    capture = driver.Capture(stream.handle, mode)
    empty(1000).fill(1.0)
    with side:
        for n in (1000, 700_000):  # through the staging buffers of the driver and of gpuinterop
            y = gi.asarray(np.resize(host, n), device=CUDA)
            assert np.asarray(y)[:1000].tolist() == host.tolist()
        assert np.asarray(gi.asarray(host[::2], device=CUDA)).tolist() == host[::2].tolist()
        z = gi.empty((50_000_000,), device=CUDA)  # too large for any cache
        z.fill(0.0)
        del y, z
    assert side.query() in (True, False)
    side.synchronize()
    end = side.record(gi.Event(timing=True))
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0.0
    assert gi.mem_info(CUDA)[0] > 0
    assert internals.inspect_pointer(x.ptr)["known"]
    assert gi.memory_stats(CUDA)["live_bytes"] > 0
    gi.Stream(blocking=True)
    gi.Stream(priority=-1)
    del start, end
    gi.empty_cache()
    with side:
        assert np.asarray(gi.from_dlpack(x)).max() == 1.0
    assert capture.finish() == 1


def exported(n):
    """An array whose address was exported without a stream."""
    x = empty(n)
    assert x.__cuda_array_interface__["data"][0] == x.ptr
    return x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["lent", "own"])
def test_a_capture_on_a_stream_that_is_known_survives(stream, mode, kind):
    """Though it was begun elsewhere, and the stream is not current."""
    raw = driver.new_stream()
    known = devices.as_stream(Torch(raw)) if kind == "lent" else gi.Stream()
    with known:  # in use from here on
        empty(10).fill(0)
    known.synchronize()
    x = exported(1000)
    address = x.ptr
    capture = driver.Capture(known.handle, mode)
    del x
    gi.empty_cache()
    with pytest.raises(CaptureError, match="synchronize"):
        gi.synchronize(CUDA)
    assert capture.end() == 0
    gi.synchronize(CUDA)
    assert comes_back(address)


@pytest.mark.parametrize("mode", MODES[1:])
def test_an_unknown_capture_survives_an_empty_cache(mode):
    raw = driver.new_stream()
    kept = [filled(1000, 1.0) for _ in range(4)]
    capture = driver.Capture(raw, mode)
    del kept
    gi.empty_cache()
    assert capture.end() == 0
    assert gi.memory_stats(CUDA)["cached_bytes"] == 0
    driver.destroy_stream(raw)


def test_an_unknown_capture_that_is_broken_breaks_nothing_else():
    """gpuinterop cannot detect it, so the release of exported memory makes a driver call that breaks it."""
    raw = driver.new_stream()
    x, keep = exported(1000), filled(1000, 3.0)
    address = x.ptr
    capture = driver.Capture(raw, driver.Capture.THREAD_LOCAL)
    del x
    assert address not in [y.ptr for y in [empty(1000) for _ in range(8)]]
    with pytest.raises(AssertionError, match="cuStreamEndCapture returned 901"):
        capture.end()
    driver.destroy_stream(raw)
    gi.synchronize(CUDA)
    assert np.asarray(keep).tolist() == [3.0] * 1000
    assert comes_back(address)

"""Streams, events and the order that they promise."""

import threading
import time
import weakref

import numpy as np
import pytest
from doubles import driver
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import StreamError

pytestmark = pytest.mark.driver

PAUSE = 30_000  # microseconds


def filled(value, n=1000):
    return gi.full((n,), value, device="cuda:0")


def test_default_is_the_legacy_stream():
    s = devices.current_stream("cuda:0")
    assert (s.handle, s.ptr, s.cuda_stream, s.__cuda_stream__()) == (1, 1, 1, (0, 1))
    assert s == devices.legacy_stream("cuda:0")
    assert s != devices.per_thread_stream("cuda:0")
    assert "legacy" in repr(s)


def test_with_block_sets_and_restores_the_current_stream():
    a, b = gi.Stream(), gi.Stream()
    assert a != b
    assert hash(a) == hash(devices.as_stream(a.handle))
    with a as entered:
        assert entered is a
        assert devices.current_stream() is a
        with b, a, b:
            assert devices.current_stream() is b
        assert devices.current_stream() is a
        with pytest.raises(KeyError), b:
            raise KeyError
        assert devices.current_stream() is a
    assert devices.current_stream().handle == 1


def test_thread_that_ends_inside_a_block_releases_the_stream():
    alive = []

    def enter():
        s = gi.Stream()
        alive.append(weakref.ref(s))
        s.__enter__()

    for _ in range(3):
        in_thread(enter)
    # The system's thread ends a little later than join() returns.
    end = time.monotonic() + 10
    while any(s() is not None for s in alive) and time.monotonic() < end:
        time.sleep(0.001)
    assert [s() for s in alive] == [None] * 3


def test_current_streams_of_two_devices_are_apart(second_device):
    s = gi.Stream(second_device)
    with s:
        assert devices.current_stream("cuda:0").handle == 1
        assert devices.current_stream(second_device) is s
        assert gi.zeros((3,), device=second_device)._stream == s.handle
        assert gi.zeros((3,), device="cuda:0")._stream == 1


def test_work_is_queued_on_the_current_stream_without_waiting():
    s = gi.Stream()
    with s:
        gate = driver.Gate(s.handle)
        x = filled(3.0)
        assert x._stream == s.handle
        assert not s.query()
    assert devices.legacy_stream().query()
    gate.open()
    s.synchronize()
    assert s.query()
    assert np.asarray(x).max() == 3.0


def test_a_use_on_another_stream_waits_for_the_last_one():
    a, b = gi.Stream(), gi.Stream()
    for value in range(20):
        with a:
            driver.slow(a.handle, 2000)
            x = filled(float(value))
        with b:
            y = x.copy()
        assert y._stream == x._stream == b.handle
        assert np.asarray(y).tolist() == [float(value)] * 1000


def test_a_later_write_waits_for_an_earlier_read():
    reader = gi.Stream()
    x = filled(1.0)
    with reader:
        driver.slow(reader.handle, PAUSE)
        y = x.copy()
    x.fill(2.0)  # on the legacy stream, after the copy
    assert np.asarray(y).max() == 1.0
    assert np.asarray(x).min() == 2.0


def test_wait_orders_streams_and_events():
    a, b, c = gi.Stream(), gi.Stream(), gi.Stream()
    gate = driver.Gate(a.handle)
    event = a.record()
    assert not event.query()
    b.wait(a)
    c.wait(event)
    assert not b.query()
    assert not c.query()
    event.wait(c)
    gate.open()
    event.synchronize()
    assert event.query()
    for s in (a, b, c):
        s.synchronize()


def test_wait_between_devices(second_device):
    a, b = gi.Stream("cuda:0"), gi.Stream(second_device)
    gate = driver.Gate(a.handle)
    b.wait(a)
    assert not b.query()
    gate.open()
    b.synchronize()
    assert a.query()
    with pytest.raises(StreamError, match="cuda:1"):
        gi.Event("cuda:0").record(b)


def test_events_measure():
    start, end = gi.Event(timing=True), gi.Event(timing=True)
    s = gi.Stream()
    with s:
        start.record()
        driver.slow(s.handle, PAUSE)
        end.record()
    assert start.elapsed_time(end) > 0.8 * PAUSE / 1000


def test_events_that_cannot_measure_give_the_reason():
    timed = gi.Event(timing=True)
    with pytest.raises(StreamError, match="never recorded"):
        timed.elapsed_time(timed)
    plain = gi.Event()
    plain.record()
    with pytest.raises(StreamError, match="timing=True"):
        plain.elapsed_time(plain)
    assert gi.Event().query()


@pytest.mark.parametrize("what", ["stream", "event", "device", "transfer", "large transfer"])
def test_waiting_lets_other_threads_run(what):
    s = gi.Stream()
    with s:
        x = filled(1.0, 1 << 20 if what == "large transfer" else 1000)
    gate = driver.Gate(s.handle)
    thread = threading.Timer(0.05, gate.open)  # needs the GIL that the waiting thread has
    thread.start()
    waits = {"stream": s.synchronize, "event": s.record().synchronize, "device": gi.synchronize}
    with s:
        waits.get(what, x.get)()
    assert s.query()
    thread.join()


@pytest.mark.parametrize("kind", [{}, {"priority": -1}, {"blocking": True}])
def test_streams_of_every_kind_are_handed_on_and_never_destroyed(kind):
    first = gi.Stream(**kind)
    handle = first.handle
    with first:
        x = filled(1.0)
    del first
    assert gi.Stream(**kind).handle == handle  # and x may go on referring to it
    assert gi.Stream(priority=-2).handle != handle
    assert np.asarray(x).max() == 1.0


def test_priority_and_blocking():
    assert gi.Stream(priority=-1).priority == -1
    s = gi.Stream(blocking=True)
    driver.slow(s.handle, PAUSE)
    devices.legacy_stream().synchronize()  # which waits for blocking streams
    assert s.query()


# ---- the per-thread default stream --------------------------------------------------------------


def test_per_thread_streams_of_two_threads_are_ordered():
    def produce():
        with devices.per_thread_stream("cuda:0"):
            driver.slow(driver.PER_THREAD, PAUSE)
            x = filled(8.0)
            return x, x._stream

    with devices.per_thread_stream("cuda:0"):
        filled(0.0)
        x, handle = in_thread(produce)
        y = x.copy()  # the same handle as in the other thread, another stream
        assert np.asarray(y).max() == 8.0
    assert handle == driver.PER_THREAD


def test_memory_freed_on_a_per_thread_stream_by_another_thread():
    box = []

    def produce():
        with devices.per_thread_stream("cuda:0"):
            driver.slow(driver.PER_THREAD, PAUSE)
            box.append(filled(1.0))
            box.append(box[0].copy())

    in_thread(produce)
    del box[0]
    for _ in range(4):
        filled(2.0)  # must not land in the freed block before the copy was made
    assert np.asarray(box[0]).max() == 1.0

"""Streams, events and the order that they promise."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import ExitStack

import helper
import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import ContextError, StreamError

PAUSE = 30_000  # microseconds


def filled(value, n=1000):
    x = gi.empty((n,), device="cuda:0")
    x.fill(value)
    return x


def test_default_is_the_legacy_stream():
    s = devices.current_stream("cuda:0")
    assert (s.handle, s.ptr, s.cuda_stream, s.__cuda_stream__()) == (1, 1, 1, (0, 1))
    assert s == devices.legacy_stream("cuda:0")
    assert s != devices.per_thread_stream("cuda:0")
    assert "legacy" in repr(s)


def test_with_makes_it_current_and_puts_the_old_one_back():
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


def test_leaving_out_of_order_is_refused():
    a, b = gi.Stream(), gi.Stream()
    a.__enter__()
    b.__enter__()
    with pytest.raises(StreamError, match="reverse order"):
        a.__exit__(None, None, None)
    assert devices.current_stream() is b
    b.__exit__(None, None, None)
    assert devices.current_stream().handle == 1
    with pytest.raises(StreamError):
        a.__exit__(None, None, None)


def test_generators_that_close_out_of_order_leave_no_stream_current():
    before = helper.c_void_p(helper.current_context())

    def inside():
        with gi.stream(gi.Stream()) as s:
            yield s

    first, second, third = inside(), inside(), inside()
    next(first)
    middle = next(second)
    next(third)
    with pytest.raises(StreamError, match="reverse order"):
        first.close()
    third.close()
    assert devices.current_stream() is middle
    second.close()
    assert devices.current_stream().handle == 1
    # Contexts come back in the order of the closing, where other libraries' streams were entered too.
    helper.call("cuCtxSetCurrent", before)


def test_a_thread_that_ends_inside_a_stream_lets_go_of_it():
    alive = []

    def enter():
        s = gi.Stream()
        alive.append(weakref.ref(s))
        s.__enter__()

    for _ in range(3):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    # The thread itself goes a little later than join, and the main thread drops the stream.
    end = time.monotonic() + 10
    while any(s() is not None for s in alive) and time.monotonic() < end:
        time.sleep(0.001)
    assert [s() for s in alive] == [None] * 3


def test_leaving_a_scope_that_was_not_entered():
    scope = gi.stream(gi.Stream())
    with pytest.raises(StreamError, match="not entered"):
        scope.__exit__(None, None, None)


def test_recording_what_is_no_event():
    with pytest.raises(TypeError, match=r"Stream\.record: .*Event"):
        gi.Stream().record(5)


def test_current_stream_is_the_threads_own():
    seen = []
    with gi.Stream():
        thread = threading.Thread(
            target=lambda: seen.append(devices.current_stream("cuda:0").handle)
        )
        thread.start()
        thread.join()
    assert seen == [1]


def test_current_streams_of_two_devices_are_apart(second_device):
    s = gi.Stream(second_device)
    with s:
        assert devices.current_stream("cuda:0").handle == 1
        assert devices.current_stream(second_device) is s
        assert gi.zeros((3,), device=second_device)._stream == s.handle
        assert gi.zeros((3,), device="cuda:0")._stream == 1


def test_work_goes_to_the_current_stream_and_calls_return_at_once():
    s = gi.Stream()
    with s:
        gate = helper.Gate(s.handle)
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
            helper.slow(a.handle, 2000)
            x = filled(float(value))
        with b:
            y = x.copy()
        assert y._stream == x._stream == b.handle
        assert np.asarray(y).tolist() == [float(value)] * 1000


def test_a_later_write_waits_for_an_earlier_read():
    reader = gi.Stream()
    x = filled(1.0)
    with reader:
        helper.slow(reader.handle, PAUSE)
        y = x.copy()
    x.fill(2.0)  # on the legacy stream, after the copy
    assert np.asarray(y).max() == 1.0
    assert np.asarray(x).min() == 2.0


def test_freed_memory_is_not_overwritten_while_its_stream_still_reads_it():
    reader = gi.Stream()
    results = []
    for _ in range(10):
        x = filled(5.0)
        with reader:
            helper.slow(reader.handle, 2000)
            results.append(x.copy())
        del x  # its memory may serve the next array on `reader`, not on the legacy stream
        filled(9.0)
    assert all(np.asarray(y).max() == 5.0 for y in results)


def test_wait_orders_streams_and_events():
    a, b, c = gi.Stream(), gi.Stream(), gi.Stream()
    gate = helper.Gate(a.handle)
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
    with pytest.raises(StreamError):
        a.wait(3)


def test_wait_between_devices(second_device):
    a, b = gi.Stream("cuda:0"), gi.Stream(second_device)
    gate = helper.Gate(a.handle)
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
        helper.slow(s.handle, PAUSE)
        end.record()
    assert start.elapsed_time(end) > 0.8 * PAUSE / 1000


def test_events_that_cannot_measure_say_why():
    timed = gi.Event(timing=True)
    with pytest.raises(StreamError, match="never recorded"):
        timed.elapsed_time(timed)
    plain = gi.Event()
    plain.record()
    with pytest.raises(StreamError, match="timing=True"):
        plain.elapsed_time(plain)
    assert gi.Event().query()


@pytest.mark.parametrize("what", ["stream", "event", "device"])
def test_waiting_lets_other_threads_run(what):
    s = gi.Stream()
    gate = helper.Gate(s.handle)
    thread = threading.Timer(0.05, gate.open)  # needs the GIL that the waiting thread has
    thread.start()
    {"stream": s.synchronize, "event": s.record().synchronize, "device": gi.synchronize}[what]()
    assert s.query()
    thread.join()


def test_own_streams_are_handed_on_and_never_destroyed():
    first = gi.Stream()
    handle = first.handle
    x = None
    with first:
        x = filled(1.0)
    del first
    assert gi.Stream().handle == handle  # and x may go on referring to it
    assert np.asarray(x).max() == 1.0


def test_priority_and_blocking():
    assert gi.Stream(priority=-1).priority == -1
    s = gi.Stream(blocking=True)
    helper.slow(s.handle, PAUSE)
    devices.legacy_stream().synchronize()  # which waits for blocking streams
    assert s.query()


# ---- foreign streams ----------------------------------------------------------------------------


class Torch:
    def __init__(self, handle):
        self.cuda_stream = handle


class CuPy:
    device_id = 0

    def __init__(self, handle):
        self.ptr = handle


class PyCUDA:
    def __init__(self, handle):
        self.handle = handle


class Protocol:
    def __init__(self, handle):
        self._handle = handle

    def __cuda_stream__(self):
        return (0, self._handle)


class Attribute:
    def __init__(self, handle):
        self.__dict__["__cuda_stream__"] = (0, handle)


@pytest.mark.parametrize("kind", [Torch, CuPy, PyCUDA, Protocol, Attribute, int])
def test_foreign_streams(kind):
    handle = helper.new_stream()
    foreign = kind(handle)
    s = devices.as_stream(foreign)
    assert s.handle == handle
    assert s.owner is (None if kind is int else foreign)
    with gi.stream(foreign) as entered:
        assert entered == s
        x = filled(4.0)
        assert x._stream == handle
    assert np.asarray(x).max() == 4.0
    del s, entered
    gi.synchronize()


@pytest.mark.parametrize(
    ("value", "handle"),
    [
        (None, 1), (0, 1), (1, 1), (2, 2), (Torch(0), 1), (CuPy(2), 2),
        (np.int64(0), 1), (np.int64(1), 1), (np.uint8(2), 2),
    ],
)  # fmt: skip
def test_defaults_by_number(value, handle):
    s = devices.as_stream(value)
    assert (s.handle, str(s.device)) == (handle, "cuda:0")


@pytest.mark.parametrize("value", [True, -1, "s", 2.0, object(), 12345, Protocol("x"), np.zeros(3)])
def test_what_is_no_stream(value):
    with pytest.raises(StreamError) as error:
        devices.as_stream(value)
    assert error.value.fix


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_arrays_and_events_have_a_handle_of_something_else(place):
    for value in (gi.ones(3, device=place), gi.zeros((), "int64", device=place), np.array(2)):
        with pytest.raises(StreamError, match="got: an array, of type"):
            gi.stream(value)
    with pytest.raises(StreamError, match=r"got: an event, of type gpuinterop\._core\.Event"):
        gi.stream(gi.Event(place))


def test_no_junk_handle_reaches_the_driver():
    x = filled(1.0)

    class Producer:
        def __init__(self, stream):
            self.__cuda_array_interface__ = {**x.__cuda_array_interface__, "stream": stream}

    for junk in (99, 0xDEAD0000):
        for call in (
            lambda junk=junk: x.__dlpack__(stream=junk),
            lambda junk=junk: gi.asarray(Producer(junk)),
        ):
            with pytest.raises(
                StreamError, match=f"living CUDA stream\n  got: {junk:#x}"
            ) as caught:
                call()
            assert "cuStreamGetCtx" not in str(caught.value)


def test_a_copy_takes_no_stream_of_a_device_that_has_no_part_in_it(second_device):
    x = filled(1.0)
    for target in ("cpu", "cuda:0"):
        with pytest.raises(StreamError, match=r"to_device: expected a stream of cuda:0") as caught:
            x.to_device(target, stream=gi.Stream(second_device), copy=True)
        assert str(second_device) in caught.value.got
    with pytest.raises(StreamError, match="to_device"):
        x.to_device("cpu", stream=gi.Stream("cpu"))
    for s in (gi.Stream("cuda:0"), gi.Stream(second_device)):
        assert x.to_device(second_device, stream=s).get().max() == 1


def test_owner_lives_as_long_as_its_stream_is_in_use():
    foreign = Torch(helper.new_stream())
    alive = weakref.ref(foreign)
    s = devices.as_stream(foreign)
    del foreign
    with s:
        del s
        gc.collect()
        assert alive() is not None
        x = filled(1.0)
    gc.collect()
    assert alive() is None
    assert np.asarray(x).max() == 1.0


def test_owner_and_stream_in_a_cycle_are_collected():
    foreign = Torch(helper.new_stream())
    foreign.mine = devices.as_stream(foreign)
    alive = weakref.ref(foreign)
    del foreign
    gc.collect()
    assert alive() is None


def test_a_destroyed_foreign_stream_is_not_touched_again():
    for _ in range(5):
        handle = helper.new_stream()
        with devices.as_stream(Torch(handle)):
            helper.slow(handle, 2000)
            x, y = filled(6.0), filled(7.0)
        gc.collect()
        helper.destroy_stream(handle)
        assert np.asarray(x).max() == 6.0  # ordered after work of a stream that is gone
        del y


def test_two_wrappers_of_one_foreign_stream():
    handle = helper.new_stream()
    first, second = devices.as_stream(Torch(handle)), devices.as_stream(Torch(handle))
    with first:
        x = filled(1.0)
    with second:
        del first
        helper.slow(handle, PAUSE)
        x.fill(2.0)
        assert x._stream == handle
    y = x.copy()
    assert np.asarray(y).max() == 2.0


def test_stream_of_a_foreign_context_is_refused():
    context = helper.c_void_p()
    helper.call("cuCtxCreate_v2", helper.byref(context), 0, 0)
    stream = helper.c_void_p()
    helper.call("cuStreamCreateWithPriority", helper.byref(stream), 1, 0)
    helper.call("cuCtxPopCurrent_v2", helper.byref(context))
    try:
        with pytest.raises(ContextError, match="autoprimaryctx"):
            devices.as_stream(stream.value)
    finally:
        helper.call("cuCtxDestroy_v2", context)


# ---- the per-thread default stream --------------------------------------------------------------


def test_per_thread_streams_of_two_threads_are_ordered():
    result = {}

    def produce():
        with devices.per_thread_stream("cuda:0"):
            helper.slow(helper.PER_THREAD, PAUSE)
            result["x"] = filled(8.0)
            result["handle"] = result["x"]._stream

    with devices.per_thread_stream("cuda:0"):
        filled(0.0)
        thread = threading.Thread(target=produce)
        thread.start()
        thread.join()
        y = result["x"].copy()  # the same handle as in the other thread, another stream
        assert np.asarray(y).max() == 8.0
    assert result["handle"] == helper.PER_THREAD


def test_memory_freed_on_a_per_thread_stream_by_another_thread():
    box = []

    def produce():
        with devices.per_thread_stream("cuda:0"):
            helper.slow(helper.PER_THREAD, PAUSE)
            box.append(filled(1.0))
            box.append(box[0].copy())

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    del box[0]
    for _ in range(4):
        filled(2.0)  # must not land in the freed block before the copy was made
    assert np.asarray(box[0]).max() == 1.0


def test_hooks_enter_and_leave_other_libraries():
    seen = []

    class Other:
        def __init__(self, s):
            self.s = s

        def __enter__(self):
            seen.append(("enter", self.s.handle))

        def __exit__(self, *error):
            seen.append(("exit", self.s.handle))

    devices.stream_hooks.append(Other)
    try:
        s = gi.Stream()
        with gi.stream(s), pytest.raises(ZeroDivisionError), gi.stream(None):
            raise ZeroDivisionError
        assert seen == [("enter", s.handle), ("enter", 1), ("exit", 1), ("exit", s.handle)]
    finally:
        devices.stream_hooks.remove(Other)


@pytest.mark.parametrize("before", ["none", "primary", "foreign"])
def test_the_context_is_as_before_when_a_library_leaves_its_own(before):
    def switch(s):
        stack = ExitStack()
        helper.call("cuCtxSetCurrent", helper.c_void_p(helper.primary()))
        stack.callback(helper.call, "cuCtxSetCurrent", helper.c_void_p(helper.primary()))
        return stack

    def broken(s):
        helper.call("cuCtxSetCurrent", helper.c_void_p(helper.primary()))
        raise ZeroDivisionError

    context = helper.c_void_p()
    if before == "foreign":
        helper.call("cuCtxCreate_v2", helper.byref(context), 0, 0)
        helper.call("cuCtxPopCurrent_v2", helper.byref(context))
    elif before == "primary":
        context.value = helper.primary()
    at_first = helper.current_context()
    helper.call("cuCtxSetCurrent", context)
    found = helper.current_context()  # "none" uncovers what another library pushed before
    try:
        for hook in (switch, broken):
            devices.stream_hooks.append(hook)
            try:
                with gi.stream(gi.Stream()):
                    assert helper.current_context() == helper.primary()
            except ZeroDivisionError:
                assert hook is broken
            finally:
                devices.stream_hooks.remove(hook)
            assert helper.current_context() == found
    finally:
        helper.call("cuCtxSetCurrent", helper.c_void_p(at_first))
        if before == "foreign":
            helper.call("cuCtxDestroy_v2", context)

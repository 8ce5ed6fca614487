"""Streams of other libraries: accepted, held while they are in use, and entered together with gpuinterop streams."""

import gc
import sys
import types
import weakref
from functools import partial

import numpy as np
import pytest
from doubles import driver, internals
from doubles.streams import Attribute, CuPy, Protocol, PyCUDA, Torch

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import ContextError, StreamError

pytestmark = pytest.mark.driver

PAUSE = 30_000  # microseconds


def filled(value, n=1000):
    return gi.full((n,), value, device="cuda:0")


@pytest.mark.parametrize("kind", [Torch, CuPy, PyCUDA, Protocol, Attribute, int])
def test_foreign_streams(kind):
    handle = driver.new_stream()
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


@pytest.mark.parametrize(
    "value",
    [True, -1, 2**64, np.int64(-3), "s", 2.0, object(), 12345, Protocol("x"), Protocol(-1), CuPy(2**200), np.zeros(3),
     gi.Stream, Torch],
)  # fmt: skip
def test_invalid_stream_is_refused(value):
    with pytest.raises(StreamError):
        devices.as_stream(value)


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_handles_of_arrays_and_events_are_not_streams(place):
    for value in (gi.ones(3, device=place), gi.Event(place)):
        with pytest.raises(StreamError):
            gi.stream(value)


def test_no_junk_handle_reaches_the_driver():
    x = filled(1.0)

    for junk in (99, 0xDEAD0000, driver.new_stream() + 1, driver.new_stream() + 8):
        for call in (
            lambda junk=junk: x.__dlpack__(stream=junk),
            lambda junk=junk: gi.asarray(Producer(x, junk)),
        ):
            with pytest.raises(StreamError, match=f"got: {junk:#x}") as caught:
                call()
            assert "cuStreamGetCtx" not in str(caught.value)


class Producer:
    """Of a dict that names a stream."""

    def __init__(self, x, stream):
        self.keep = x
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, "stream": stream}


ENTRANCES = {
    "stream": lambda x, s: gi.stream(s).__enter__(),
    "as_stream": lambda x, s: devices.as_stream(s),
    "torch": lambda x, s: gi.stream(Torch(s)).__enter__(),
    "cupy": lambda x, s: gi.stream(CuPy(s)).__enter__(),
    "protocol": lambda x, s: gi.stream(Protocol(s)).__enter__(),
    "to_device": lambda x, s: x.to_device("cpu", stream=s),
    "wait": lambda x, s: gi.Stream(x.device).wait(s),
    "record": lambda x, s: gi.Event(x.device).record(s),
    "__dlpack__": lambda x, s: x.__dlpack__(stream=s),
    "dict": lambda x, s: gi.asarray(Producer(x, s)),
}


@pytest.mark.parametrize("value", [-1, -16, 2**64 - 1, 2**64 - 16, 16])
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_no_entrance_takes_a_number_that_is_no_address_of_a_stream(entrance, value):
    x = filled(1.0)
    if (entrance, value) != ("__dlpack__", -1):  # to which DLPack gives a meaning
        with pytest.raises(gi.GpuInteropError):
            ENTRANCES[entrance](x, value)
    x.fill(2.0)
    assert x.get().max() == 2


def test_a_copy_takes_no_stream_of_a_device_that_has_no_part_in_it(second_device):
    x = filled(1.0)
    for target in ("cpu", "cuda:0"):
        with pytest.raises(StreamError, match=r"^to_device: .*cuda:0") as caught:
            x.to_device(target, stream=gi.Stream(second_device), copy=True)
        assert str(second_device) in caught.value.got
    with pytest.raises(StreamError, match="to_device"):
        x.to_device("cpu", stream=gi.Stream("cpu"))
    for s in (gi.Stream("cuda:0"), gi.Stream(second_device)):
        assert x.to_device(second_device, stream=s).get().max() == 1


def test_owner_lives_as_long_as_its_stream_is_in_use():
    foreign = Torch(driver.new_stream())
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


def test_a_destroyed_foreign_stream_is_not_touched_again():
    for _ in range(5):
        handle = driver.new_stream()
        with devices.as_stream(Torch(handle)):
            driver.slow(handle, 2000)
            x, y = filled(6.0), filled(7.0)
        gc.collect()
        driver.destroy_stream(handle)
        assert np.asarray(x).max() == 6.0  # ordered after work of a destroyed stream
        del y


def test_two_wrappers_of_one_foreign_stream():
    handle = driver.new_stream()
    first, second = devices.as_stream(Torch(handle)), devices.as_stream(Torch(handle))
    with first:
        x = filled(1.0)
    with second:
        del first
        driver.slow(handle, PAUSE)
        x.fill(2.0)
        assert x._stream == handle
    y = x.copy()
    assert np.asarray(y).max() == 2.0


@pytest.mark.parametrize("wrap", [int, CuPy, Protocol])
@pytest.mark.parametrize("inside", [False, True])
def test_own_stream_by_its_handle_is_the_same_stream(wrap, inside):
    """As other libraries name it, which own nothing of it."""
    s = gi.Stream()
    x = filled(0.0)
    with s if inside else gi.Stream():
        with gi.stream(wrap(s.handle)):
            x.fill(1.0)
        gc.collect()
    with s:
        gate = driver.Gate(s.handle)
        x.fill(2.0)
    with gi.Stream() as reader:
        x.copy()
        assert not reader.query()
        gate.open()
    assert np.asarray(x).max() == 2.0


def test_stream_of_a_foreign_context_is_refused():
    context = driver.new_context()
    stream = driver.new_stream(context=context)
    try:
        with pytest.raises(ContextError, match="autoprimaryctx"):
            devices.as_stream(stream)
    finally:
        driver.call("cuCtxDestroy_v2", driver.c_void_p(context))


@pytest.fixture
def another_library(monkeypatch):
    """Returns what makes a library with a current stream seem to be loaded."""

    def load(*enters):
        libraries = {f"another{i}": enter for i, enter in enumerate(enters)}
        for name in libraries:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        internals.enter_streams_also_by(monkeypatch, **libraries)

    return load


def test_other_libraries_are_entered_and_left(another_library):
    seen = []

    def other(module, stream):
        what = module.__name__, stream.handle

        def leave():
            assert seen.pop() == what  # the last that was entered is left first

        return [(lambda: seen.append(what), leave)]

    another_library(other, other)
    s = gi.Stream()
    with gi.stream(s):
        outside = [("another0", s.handle), ("another1", s.handle)]
        assert seen == outside
        with pytest.raises(ZeroDivisionError), gi.stream(None):
            assert seen == [*outside, ("another0", 1), ("another1", 1)]
            raise ZeroDivisionError
        assert seen == outside
    assert not seen

    def failing(module, stream):
        raise RuntimeError("not entered")

    before = devices.current_stream("cuda:0")
    for late in (
        failing,
        lambda *what: [(partial(failing, *what), list)],
    ):  # while it is asked, while it is set
        another_library(other, late)
        with pytest.raises(RuntimeError, match="not entered"), gi.stream(s):
            pass
        assert not seen
        assert devices.current_stream("cuda:0") == before
    with devices.stream(s):  # current in gpuinterop only, whatever libraries were loaded before
        assert devices.current_stream() is s
        assert not seen


@pytest.mark.parametrize("before", ["none", "primary", "foreign"])
def test_the_context_is_as_before_when_a_library_leaves_its_own(before, another_library):
    def switch(*_):
        set_primary = partial(driver.call, "cuCtxSetCurrent", driver.c_void_p(driver.primary()))
        set_primary()
        return [(set_primary, set_primary)]

    def broken(*_):
        switch()
        raise ZeroDivisionError

    context = driver.c_void_p()
    if before == "foreign":
        context.value = driver.new_context()
    elif before == "primary":
        context.value = driver.primary()
    at_first = driver.current_context()
    driver.call("cuCtxSetCurrent", context)
    found = driver.current_context()  # "none" uncovers what another library pushed before
    try:
        for hook in (switch, broken):
            another_library(hook)
            try:
                with gi.stream(gi.Stream()):
                    assert driver.current_context() == driver.primary()
            except ZeroDivisionError:
                assert hook is broken
            assert driver.current_context() == found
    finally:
        driver.call("cuCtxSetCurrent", driver.c_void_p(at_first))
        if before == "foreign":
            driver.call("cuCtxDestroy_v2", context)

"""The order of streams between libraries, on a driver whose streams run on threads and can be slow."""

import gc
import sys
import threading
import types
from functools import partial

import numpy as np
import pytest
from doubles import driver, fake_driver, internals
from doubles.fake_pycuda import DeviceAllocation
from helpers.cases import host

import gpuinterop as gi
from gpuinterop import converters


@pytest.fixture
def slow():
    """Everything queued on a stream takes 20 ms."""
    fake_driver.set_delay(20_000)
    yield
    fake_driver.set_delay(0)


def test_memory_is_released_to_its_library_after_the_last_use(pycuda, monkeypatch):
    """The library's stream waits for the gpuinterop stream before the owner is released."""
    waits = lambda: fake_driver.calls("cuStreamWaitEvent")  # noqa: E731
    at_free = []
    free = DeviceAllocation.free
    monkeypatch.setattr(
        DeviceAllocation, "free", lambda self: (at_free.append(waits()), free(self))
    )
    g = pycuda.gpuarray.to_gpu(host(64))
    x = gi.from_any(g)
    del g
    with gi.stream(gi.Stream()):
        x.fill(3)
    before = waits()
    del x
    gc.collect()
    assert at_free
    assert at_free[0] > before


def test_consumer_on_the_legacy_stream_waits_for_the_gpuinterop_stream(pycuda, slow):
    s = gi.Stream()
    x = gi.array(np.zeros(64, "float32"), device="cuda")
    with gi.stream(s):
        x[...] = gi.array(host(64), device="cuda")
    g = gi.to_gpuarray(x)
    # A copy on the legacy stream, as PyCUDA's get() makes.
    assert np.array_equal(driver.read(int(g.gpudata), 64, driver.LEGACY), host(64))


def test_we_wait_for_a_producer_on_the_legacy_stream(pycuda, slow):
    source = pycuda.gpuarray.to_gpu(host(64))
    target = pycuda.gpuarray.to_gpu(np.zeros(64, "float32"))
    driver.copy(int(target.gpudata), int(source.gpudata), 256, driver.LEGACY)
    with gi.stream(gi.Stream()):
        x = gi.from_any(target)
        copy = x.copy()
    assert np.array_equal(copy.get(), host(64))


def test_one_scope_in_two_threads(monkeypatch):
    """Each thread returns to its own previous stream, whichever thread leaves first."""
    current = threading.local()

    def changes(_, stream):
        use = partial(partial, setattr, current, "stream")
        return [(use(stream.handle), use(current.stream))]

    internals.enter_streams_by(monkeypatch, one=changes)
    monkeypatch.setitem(sys.modules, "one", types.ModuleType("one"))
    scope = gi.stream(gi.Stream())
    entered, first_is_out, after = threading.Event(), threading.Event(), []

    def second():
        current.stream = "second's own"
        with scope:
            entered.set()
            assert first_is_out.wait(30)
        after.append(current.stream)

    current.stream = "first's own"
    thread = threading.Thread(target=second)
    with scope:
        thread.start()
        assert entered.wait(30)
    after.append(current.stream)
    first_is_out.set()
    thread.join()
    assert after == ["first's own", "second's own"]


def test_transfers_are_logged():
    a = host(16)
    with gi.log_transfers() as t:
        x = gi.array(a, device="cuda")
        converters.to_numpy(x, copyif=True)
    assert [(entry.kind, entry.bytes) for entry in t] == [
        ("host_to_device", 64),
        ("device_to_host", 64),
    ]
    assert all("test_library_streams.py" in entry.caller for entry in t)
    with pytest.raises(gi.CopyForbiddenError, match="device to host"), gi.no_copies():
        x.get()

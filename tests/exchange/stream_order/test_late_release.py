"""Imported CUDA memory is released to its producer only after the device has finished with it.

On the fake driver, whose streams are threads that gates hold up. A producer that reuses its memory on a stream of
its own cannot wait for gpuinterop, so its deleter must be called late. These tests check that.
"""

import ctypes
import gc
import sys
import time
import weakref

import pytest
from doubles import driver, fake_driver
from peers import CUDA, Producer, capsule, consume, counting, forever, interface, peer, run, struct
from queued import busy, gated, read, shared, soon, soon_synchronized, syncs, use, waits

import gpuinterop as gi

pytestmark = pytest.mark.fake_driver


def legacy():
    return gi.devices.legacy_stream("cuda:0")


# What notices that the last use has passed.
LOOKS = {
    "the stream's synchronisation": lambda gpu: gpu.own_stream.synchronize(),
    "the device's synchronisation": lambda gpu: gi.synchronize(),
    "empty_cache": lambda gpu: gi.empty_cache(),
    "an import": lambda gpu: gi.from_dlpack(shared(gpu.x, deleter=None)),
    "an allocation": lambda gpu: gi.empty((64,), device="cuda:0"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_release_comes_after_the_last_use_and_without_waiting_for_it(gpu, freed, name):
    y = gi.from_dlpack(shared(gpu.x))
    gate = gated(gpu.own_stream, y)
    before = syncs()
    del y
    assert (freed(), syncs()) == (0, before)
    gate.open()
    assert soon(lambda: (LOOKS[name](gpu), freed() == 1)[1])


def test_release_comes_at_once_when_the_last_use_has_passed(gpu, freed):
    y = gi.from_dlpack(shared(gpu.x))
    use(gpu.own_stream, y)
    gpu.own_stream.synchronize()
    before = fake_driver.calls("cuEventQuery")
    del y
    assert (freed(), fake_driver.calls("cuEventQuery")) == (1, before)


def test_release_comes_after_the_legacy_stream_too(gpu):
    """The streams of some producers keep no order with it: JAX's, and those of torch's pool."""
    producer = Producer(device=CUDA, data=gpu.x.ptr, shape=(64,), strides=(1,))
    for source in (shared(gpu.x), producer):
        freed, y = counting(), gi.from_dlpack(source)
        gate = gated(legacy(), y)
        del y
        assert freed() == 0
        gate.open()
        assert soon_synchronized(lambda freed=freed: freed() == 1)


@pytest.mark.parametrize("ending", ["peer_delete_later", "peer_delete_on_thread"])
def test_memory_handed_on_is_kept_until_that_consumer_is_through(gpu, freed, ending):
    y = gi.from_dlpack(shared(gpu.x))
    held = consume(y.__dlpack__(stream=gpu.other_stream.handle, max_version=(1, 3)))
    gate = gated(
        gpu.other_stream, gi.zeros((64,), device="cuda:0")
    )  # the consumer's own use, unknown to y
    del y
    getattr(peer(), ending)(held, 0)
    time.sleep(0.02)
    assert freed() == 0
    gate.open()
    assert soon_synchronized(lambda: freed() == 1)


def test_memory_handed_on_is_released_by_a_thread_without_the_gil(gpu, freed):
    y = gi.from_dlpack(shared(gpu.x))
    held = consume(y.__dlpack__(stream=-1, max_version=(1, 3)))
    del y
    gi.synchronize()
    fake_driver.fail("cuCtxRecordEvent", 801)  # an old driver: the whole context is waited for
    peer().peer_delete_on_thread(held)
    assert freed() == 1


def test_memory_exported_to_the_legacy_stream_is_released_after_it(gpu):
    owner = interface(shape=(64,), data=(gpu.x.ptr, False), stream=gpu.other_stream.handle)
    y = gi.from_dlpack(owner)
    held = consume(y.__dlpack__(max_version=(1, 3)))
    busy(legacy(), gpu.x, 9, ms=60)  # stands for the consumer's work, for it does not touch y
    del y
    peer().peer_delete_later(held, 0)
    del owner
    assert soon(lambda: (read(gpu.x, gpu.other_stream.handle) == 9).all())


def borrowed(x, stream=None):
    """An object with an array dictionary that can be referred to weakly."""
    entries = {
        "shape": (64,),
        "typestr": "<f4",
        "data": (x.ptr, False),
        "version": 3,
        "stream": stream,
    }
    return type("Owner", (), {"__cuda_array_interface__": entries})()


OWNERS = {
    "a dictionary": borrowed,
    "a capsule without a deleter":
        lambda x: Producer(lambda **_: shared(x, deleter=None), device=CUDA),
    "a legacy capsule without a deleter":
        lambda x: Producer(lambda **_: shared(x, deleter=None, legacy=True), device=CUDA),
}  # fmt: skip


@pytest.mark.parametrize("handed_on", [False, True])
def test_owner_on_the_legacy_stream_is_kept_only_for_consumers_on_other_streams(gpu, handed_on):
    """The legacy stream waits for our own use, so the owner may go at once. No stream waits for a consumer's use."""
    owner = borrowed(gpu.x, legacy().handle)
    alive, y = weakref.ref(owner), gi.from_dlpack(owner)
    if handed_on:
        held = consume(y.__dlpack__(stream=gpu.other_stream.handle, max_version=(1, 3)))
        gate = gated(gpu.other_stream, gi.zeros((64,), device="cuda:0"))  # the consumer's own use
    else:
        held, gate = None, gated(gpu.other_stream, y)
    del owner, y
    if held is not None:
        peer().peer_delete_later(held, 0)
        time.sleep(0.02)
    kept = alive() is not None
    gate.open()
    assert kept == handed_on
    assert soon_synchronized(lambda: alive() is None)


@pytest.mark.parametrize("cycle", [False, True])
@pytest.mark.parametrize("name", OWNERS)
def test_owner_of_borrowed_memory_lives_as_long(gpu, name, cycle):
    owner = OWNERS[name](gpu.x)
    alive = weakref.ref(owner)
    y = gi.from_dlpack(owner)
    view = y[:32]
    gate = gated(gpu.own_stream, view)
    if cycle:
        owner.array = view
    del owner, y
    assert alive() is not None
    del view
    if not cycle:
        gc.collect()
        assert alive() is not None
    gate.open()
    gpu.own_stream.synchronize()
    gc.collect()
    gpu.own_stream.synchronize()
    assert alive() is None


@pytest.mark.parametrize("used_on", ["own_stream", "legacy"])
def test_stream_that_its_producer_has_destroyed_is_not_used(gpu, used_on):
    stream = driver.new_stream()
    stream_used = gpu.own_stream if used_on == "own_stream" else legacy()
    owner = borrowed(gpu.x, stream)
    alive = weakref.ref(owner)
    y = gi.from_dlpack(owner)
    type(owner).__cuda_array_interface__["stream"] = 1  # as CuPy, which names whichever is current
    driver.destroy_stream(stream)
    gate = gated(stream_used, y)
    before = waits()
    del owner, y
    assert waits() == before
    assert alive() is not None
    gate.open()
    stream_used.synchronize()
    assert alive() is None


def test_pending_releases_are_bounded(gpu, freed):
    for _ in range(100):
        y = gi.from_dlpack(shared(gpu.x))
        busy(gpu.own_stream, y, 7, ms=5)
        del y
    assert freed() >= 36 - 1, freed()  # 64 may be pending
    gpu.own_stream.synchronize()
    for _ in range(40):  # each look takes what has passed
        gi.empty_cache()
    assert freed() == 100, freed()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_last_use_inside_a_capture(gpu, freed, mode):
    y = gi.from_dlpack(shared(gpu.x))
    capture = driver.Capture(gpu.own_stream.handle, mode)
    with gpu.own_stream:
        y[...] = 3
    del y
    gi.zeros((64,), device="cuda:0")
    assert freed() == 0
    capture.finish()
    # The first look can only now mark the place, a later one finds it passed.
    assert soon_synchronized(lambda: freed() == 1)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_capture_elsewhere_is_not_disturbed(gpu, freed, mode):
    y, z = gi.from_dlpack(shared(gpu.x)), gi.from_dlpack(shared(gpu.x))
    gate = gated(gpu.own_stream, y)
    held = consume(z.__dlpack__(stream=gpu.own_stream.handle, max_version=(1, 3)))
    capture = driver.Capture(gpu.other_stream.handle, mode)
    del y, z
    peer().peer_delete_on_thread(held)
    gate.open()
    gpu.own_stream.synchronize()
    assert freed() == 1  # the other was exported, and the capture forbids waiting for all streams
    capture.finish()
    assert soon_synchronized(lambda: freed() == 2)


def test_error_of_an_owner_that_ends_is_not_raised(gpu, monkeypatch):
    def complain(self):
        raise ValueError("of the owner")

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    owner = borrowed(gpu.x)
    type(owner).__del__ = complain
    y = gi.from_dlpack(owner)
    del owner
    use(gpu.own_stream, y)
    del y
    gpu.own_stream.synchronize()
    gi.synchronize()
    assert len(unraisable) == 1


def test_release_that_the_end_of_the_process_overtakes_is_dropped():
    run("""
import gpuinterop as gi
from queued import busy, shared
x, own_stream = gi.zeros((64,), device="cuda:0"), gi.Stream("cuda:0")
y = gi.from_dlpack(shared(x))
busy(own_stream, y, 7, ms=1000)
del y
""")


def test_deleter_that_runs_within_an_import_finds_its_capsule_consumed(gpu):
    ended = []

    def made(name, body=lambda: None):
        deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda _: (ended.append(name), body()))
        managed = struct(device=CUDA, data=gpu.x.ptr, shape=(64,), strides=(1,))
        managed.deleter = ctypes.cast(forever(deleter), ctypes.c_void_p).value
        return capsule(managed)

    def take_second():
        try:
            gi.from_dlpack(second)
        except ValueError:
            ended.append("refused")

    second = made("second")
    y = gi.from_dlpack(made("first", take_second))
    gate = gated(gpu.own_stream, y)
    del y
    done = gpu.own_stream.record()  # after the event of the deferred release
    assert ended == []
    gate.open()
    assert soon(done.query)
    z = gi.from_dlpack(second)
    assert ended == ["first", "refused"]
    del z
    assert ended == ["first", "refused", "second"]

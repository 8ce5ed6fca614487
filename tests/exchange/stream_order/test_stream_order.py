"""Order of streams at every hand-over, seen on the fake driver, whose streams are slow threads.

The fake driver delays what is queued, so a missing wait shows as old values, and counts calls, so an
unrequested host synchronisation is detected too.
"""

import ctypes

import numpy as np
import pytest
from doubles import driver
from helpers.threads import in_thread
from peers import (
    CUDA,
    TO_STRUCT,
    WORK_STREAM,
    Producer,
    content,
    entries_of,
    interface,
    peer,
)
from queued import busy, read, shared, syncs, waits

import gpuinterop as gi

pytestmark = pytest.mark.fake_driver

# The handle that an export is given; None for the second stream. 1 is the default of __dlpack__.
EXPORTS = {
    "another stream": (lambda gpu: {"stream": gpu.other_stream.handle}, None),
    "no stream": (lambda gpu: {}, 1),
    "the legacy stream": (lambda gpu: {"stream": 1}, 1),
    "the stream of the thread": (lambda gpu: {"stream": 2}, 2),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_export_waits_on_the_given_stream(gpu, name):
    options, reader = EXPORTS[name]
    busy(gpu.own_stream, gpu.x, 5)
    before = syncs()
    gpu.x.__dlpack__(**options(gpu))
    assert syncs() == before
    assert (read(gpu.x, reader or gpu.other_stream.handle) == 5).all()


def test_export_that_needs_no_order_waits_for_nothing(gpu):
    busy(
        gpu.own_stream, gpu.x, 5, ms=1000
    )  # long enough for a reader on a crowded machine to come first
    before = waits(), syncs()
    gpu.x.__dlpack__(stream=gpu.own_stream.handle)
    gpu.x.__dlpack__(stream=-1)
    assert (waits(), syncs()) == before
    assert (
        read(gpu.x, gpu.other_stream.handle) == 0
    ).all()  # without order the reader is too early


def test_export_of_a_copy_is_ordered(gpu):
    x = gpu.x
    busy(gpu.own_stream, x, 5)
    before = syncs()
    cap = x.__dlpack__(stream=gpu.other_stream.handle, copy=True, max_version=(1, 3))
    assert syncs() == before
    assert content(cap).flags == 2
    assert content(cap).tensor.data != x.ptr
    assert (read(gi.from_dlpack(cap), gpu.other_stream.handle) == 5).all()


@pytest.mark.parametrize("place", [(1, 0), (2, 1)])
def test_export_to_another_device_is_a_complete_copy(gpu, place):
    busy(gpu.own_stream, gpu.x, 5)
    cap = gpu.x.__dlpack__(dl_device=place, max_version=(1, 3))
    tensor = content(cap).tensor
    assert (content(cap).flags, tensor.device_type, tensor.device_id) == (2, *place)
    assert (np.asarray(gi.from_dlpack(cap)) == 5).all()
    busy(gpu.own_stream, gpu.x, 6)
    assert (np.from_dlpack(gpu.x, device="cpu") == 6).all()


def test_dictionary_names_the_stream_of_the_last_use(gpu):
    x = gpu.x
    busy(gpu.own_stream, x, 5)
    entry = x.__cuda_array_interface__
    assert entry == {
        "version": 3, "strides": None, "shape": (64,), "typestr": "<f4", "data": (x.ptr, False),
        "stream": gpu.own_stream.handle,
    }  # fmt: skip
    assert x[::2].__cuda_array_interface__["strides"] == (8,)
    assert gi.zeros((0, 3), device="cuda:0").__cuda_array_interface__["data"] == (0, False)
    assert not hasattr(x, "__array_interface__")


def test_dictionary_orders_consumers_that_ignore_its_stream(gpu):
    busy(gpu.own_stream, gpu.x, 5)
    before = syncs()
    _ = gpu.x.__cuda_array_interface__
    assert syncs() == before
    assert (read(gpu.x, driver.LEGACY) == 5).all()


@pytest.mark.parametrize("blocking", [False, True])
def test_dictionary_leaves_captures_alone(gpu, blocking):
    busy(gpu.own_stream, gpu.x, 5)
    capture = driver.Capture(gi.Stream("cuda:0", blocking=blocking).handle)
    assert gpu.x.__cuda_array_interface__["stream"] == gpu.own_stream.handle
    assert capture.finish() == 0


def test_exchange_table_orders_on_the_current_stream(gpu):
    table = entries_of(type(gpu.x))
    take, where = TO_STRUCT(table[3]), WORK_STREAM(table[6])
    busy(gpu.own_stream, gpu.x, 5)
    with gpu.other_stream:
        handle, managed = ctypes.c_void_p(), ctypes.c_void_p()
        assert where(2, 0, ctypes.byref(handle)) == 0
        assert handle.value == gpu.other_stream.handle
        before = syncs()
        assert take(gpu.x, ctypes.byref(managed)) == 0
        assert syncs() == before
        assert (read(gpu.x, handle.value) == 5).all()
    peer().peer_delete_on_thread(managed)
    with pytest.raises(ValueError):
        where(2, 7, ctypes.byref(handle))


def test_import_names_the_current_stream(gpu):
    producer = Producer(device=CUDA, data=gpu.x.ptr, shape=(64,), strides=(1,))
    gi.from_dlpack(producer)
    with gpu.own_stream:
        y = gi.from_dlpack(producer)
    assert [c["stream"] for c in producer.calls] == [1, gpu.own_stream.handle], producer.calls
    assert [c["max_version"] for c in producer.calls] == [(1, 3)] * 2
    assert y._stream == gpu.own_stream.handle


def test_import_waits_for_the_stream_of_the_producer(gpu):
    x, own_stream, other_stream = gpu.x, gpu.own_stream, gpu.other_stream
    legacy = gi.devices.legacy_stream("cuda:0")

    class Old:
        def __dlpack__(self):
            return shared(x, legacy=True)

        def __dlpack_device__(self):
            return CUDA

    def dictionary(**entries):
        return interface(shape=(64,), data=(x.ptr, False), **entries)

    for value, (producer, stream) in enumerate(
        [
            (Old(), legacy),
            (dictionary(stream=other_stream.handle), other_stream),
            (dictionary(version=2), legacy),
        ]
    ):
        busy(stream, x, value)
        before = syncs()
        with own_stream:
            y = gi.from_dlpack(producer)
            assert syncs() == before
            assert (np.asarray(y.copy()) == value).all()
    before = waits()
    with own_stream:
        gi.from_dlpack(dictionary(stream=None))
    assert waits() == before


def test_producer_gets_its_memory_back_in_order(gpu, freed):
    # The last use is still queued when the array is released, so the producer's stream must wait for it.
    owner = interface(shape=(64,), data=(gpu.x.ptr, False), stream=gpu.other_stream.handle)
    for make, reader in ((lambda: owner, gpu.other_stream.handle), (lambda: shared(gpu.x), 1)):
        y = gi.from_dlpack(make())
        busy(gpu.own_stream, y, 7)
        before = syncs()
        del y
        assert freed() == 0
        assert syncs() == before
        assert (read(gpu.x, reader) == 7).all()
    gi.synchronize()
    assert freed() == 1


def test_a_borrower_may_queue_its_work_after_another_thread(gpu):
    """It may release the GIL between the call of the table and its own launch."""
    borrow = TO_STRUCT(entries_of(type(gpu.x))[5])
    x, y = gi.full((64,), 5, device="cuda:0"), gi.zeros((64,), device="cuda:0")
    gi.synchronize()
    with gpu.own_stream:
        place = ctypes.create_string_buffer(64)
        assert borrow(x, ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))) == 0

    def other(array):
        with gpu.other_stream:
            _ = array + 1

    in_thread(other, x)
    gate = driver.Gate(gpu.own_stream.handle)
    driver.copy(y.ptr, x.ptr, 256, gpu.own_stream.handle)
    del x
    with gpu.other_stream:
        again = gi.full((64,), 9, device="cuda:0")
    gate.open()
    gi.synchronize()
    assert (np.asarray(y) == 5).all()
    assert (np.asarray(again) == 9).all()


def test_default_streams_of_threads_are_distinguished(gpu):
    busy(gi.devices.per_thread_stream("cuda:0"), gpu.x, 5)

    def other():
        gpu.x.__dlpack__(stream=2)
        return (read(gpu.x, 2) == 5).all()

    assert in_thread(other)


def test_from_the_host_to_a_device_and_back(gpu):
    n = np.arange(64, dtype="float32")
    y = gi.from_dlpack(n, device="cuda:1")
    assert (str(y.device), y.base) == ("cuda:1", None)
    back = gi.from_dlpack(gi.from_dlpack(y, device="cuda:0"), device="cpu")
    assert (np.asarray(back) == n).all()

"""CUDA memory, streams and contexts that are not what a producer says, on the fake driver."""

import functools
import gc

import numpy as np
import pytest
from doubles import driver
from peers import ADDRESS, CUDA, MANAGED, Producer, capsule, counting, interface, name_of, run

import gpuinterop as gi

pytestmark = pytest.mark.fake_driver


def take(obj, **options):
    return gi.from_dlpack(obj, cls=gi.GpuArray, **options)


@functools.cache
def there(device: int = 0) -> gi.CudaNdarray:
    """An array on each of the two devices."""
    return gi.zeros((2, 3), device=f"cuda:{device}")


other_context = functools.cache(driver.new_context)


def freed_memory() -> int:
    address = driver.allocate(64)
    driver.free(address)
    return address


def shown(**entries):
    return interface(data=(there().ptr, False), **entries)


def held(device=CUDA, data=None, **fields):
    return capsule(device=device, data=there().ptr if data is None else data, **fields)


def copied_to_the_host(**options):
    return there().__dlpack__(dl_device=(1, 0), **options)


# A producer or a capsule, and how it is refused.
REFUSED = {
    "no such device": (lambda: take(held((2, 2))), ValueError, "from 0 to 1"),
    "a negative device": (lambda: take(held((2, -1))), ValueError, ""),
    "no such device by the method": (
        lambda: take(Producer(device=(2, 99), data=there().ptr)), ValueError, ""),
    "the method says cuda, the capsule cpu": (
        lambda: take(Producer(lambda **_: capsule(), device=CUDA)), BufferError, "cpu"),
    "the method says cuda:1, the capsule cuda:0": (
        lambda: take(Producer(lambda **_: held(), device=(2, 1))), BufferError, "cuda:1"),
    "memory of cuda:1 as cuda:0": (lambda: take(held(data=there(1).ptr)), BufferError, "cuda:1"),
    "host memory": (lambda: take(held(data=ADDRESS)), ValueError, "live"),
    "host memory in a dictionary": (lambda: take(interface()), ValueError, "live"),
    "freed memory": (lambda: take(held(data=freed_memory())), ValueError, "live"),
    "a null pointer": (lambda: take(interface(data=(0, False))), BufferError, "null"),
    "more than was allocated": (lambda: take(held(shape=(1 << 20, 3))), BufferError, "allocation"),
    "strides beyond all addresses": (lambda: take(held(strides=(2**61, 1))), BufferError, "address"),
    "unsigned strides out of the allocation": (
        lambda: take(held(shape=(6, 8), strides=(2**62 - 8 - 2**20, 1))), BufferError, ""),
    "memory of another context": (
        lambda: take(held(data=driver.allocate(64, other_context()))), RuntimeError, "primary"),
    "a dictionary from another context": (
        lambda: take(interface(data=(driver.allocate(64, other_context()), False))), RuntimeError, "primary"),
    "a negative extent": (lambda: take(shown(shape=(-2, 3))), ValueError, ""),
    "extents of 2**70": (lambda: take(shown(shape=(2**70, 3))), ValueError, ""),
    "too few strides": (lambda: take(shown(strides=(4,))), ValueError, ""),
    "an unknown typestr": (lambda: take(shown(typestr="<x4")), ValueError, ""),
    "another device's stream in a dictionary": (
        lambda: take(shown(stream=gi.Stream("cuda:1").handle)), ValueError, "cuda:0"),
    "another device's stream": (
        lambda: there().__dlpack__(stream=gi.Stream("cuda:1").handle), ValueError, "cuda:0"),
    "another context's stream": (
        lambda: there().__dlpack__(stream=driver.new_stream(context=other_context())), ValueError, "cuda:0"),
    "a stream for a copy on the host": (lambda: copied_to_the_host(stream=1), ValueError, "None"),
    **{f"stream {stream!r}": (lambda stream=stream: there().__dlpack__(stream=stream), error, "")
       for error, streams in ((ValueError, (0, -2, 2**64)), (TypeError, (True, "1"))) for stream in streams},
    **{f"dl_device {place}": (lambda place=place: there().__dlpack__(dl_device=place), BufferError, "dl_device")
       for place in ((2, 2), (2, 99), (2, -1))},
    "copy=False from the host": (
        lambda: take(np.zeros(3), device="cuda:0", copy=False), BufferError, "copy=False"),
    "read-only memory to an old consumer": (
        lambda: take(held(flags=1)).__dlpack__(), BufferError, "read-only"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_claim_that_contradicts_the_driver_is_refused(name):
    call, error, word = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert word in str(caught.value)


@pytest.mark.parametrize("device", [0, 1])
def test_device_of_memory_is_what_the_driver_reports(device):
    x = there(device)
    for obj in (held((2, device), x.ptr), interface(data=(x.ptr, False))):
        y = take(obj)
        assert (y.ptr, y.shape, y.device) == (x.ptr, (2, 3), x.device)
    managed = take(capsule(device=MANAGED, data=driver.allocate_managed(64, device)))
    assert (managed.memory, managed.device) == ("managed", x.device)
    # An empty array has no memory to find.
    empty = take(capsule(device=(2, device), shape=(0,), strides=(1,), data=3))
    assert empty.device == x.device
    assert take(interface(shape=(0, 3), data=(0, False))).size == 0
    locked = take(held((2, device), x.ptr, flags=1))
    assert locked.__cuda_array_interface__["data"] == (x.ptr, True)
    with pytest.raises(gi.ReadOnlyError):
        locked[...] = 0


def test_producer_that_refuses_to_move_is_copied():
    def make(dl_device=None, **_):
        if dl_device is not None:
            raise BufferError("cannot move")
        return held()

    there().fill(3)
    for producer in (Producer(make, device=CUDA), Producer(device=CUDA, data=there().ptr)):
        assert take(producer, device="cpu").tolist() == [[3, 3, 3], [3, 3, 3]]


def test_refused_capsule_can_still_be_consumed(freed):
    cap = held()
    before = name_of(cap)
    with pytest.raises(BufferError, match="copy=False"):
        take(cap, device="cuda:1", copy=False)
    assert (name_of(cap), freed()) == (before, 0)
    assert take(cap).ptr == there().ptr


def test_dictionary_may_be_emptied_while_it_is_read():
    class Emptying:
        def __index__(self):
            fields.clear()
            gc.collect()
            self.reused = [(0, True) for _ in range(1000)]  # the memory of what was in it
            return 2

    fields = {"typestr": "<f4", "data": (there().ptr, False), "version": 3}
    fields["shape"] = (Emptying(), 3)
    x = take(type("Emptied", (), {"__cuda_array_interface__": fields})())
    assert (x.ptr, x.shape) == (there().ptr, (2, 3))


def test_memory_is_freed_once():
    gi.synchronize()  # what other tests left comes late
    take(held())
    gi.synchronize()
    freed = counting()
    x = take(held())
    assert freed() == 0
    del x
    assert freed() == 1


# ---- captures -------------------------------------------------------------------------------------


@pytest.fixture
def captured():
    """An array, and the stream that is captured now; the capture must survive the test."""
    x, stream = gi.zeros((2, 3), device="cuda:0"), gi.Stream("cuda:0")
    with stream:
        x.fill(1)
        capture = driver.Capture(stream.handle, driver.Capture.RELAXED)
        yield x, stream
        capture.finish()


def test_exports_in_a_capture(captured):
    x, stream = captured
    x.__dlpack__(stream=-1)
    x.__dlpack__(stream=stream.handle)
    with pytest.raises(RuntimeError, match="capture"):
        x.__dlpack__(dl_device=(1, 0))
    x.fill(2)
    with pytest.raises(RuntimeError, match="captur"):
        x.__dlpack__(stream=1)


def test_imports_in_a_capture_are_not_ordered(captured):
    producer = Producer(lambda **_: held(), device=CUDA)
    take(producer)
    assert producer.calls[0]["stream"] == -1


# ---- processes ------------------------------------------------------------------------------------


FIRST_USE = """
import gpuinterop as gi
from doubles import driver
from peers import ADDRESS, CUDA, capsule

address = driver.allocate(64)
try:
    gi.from_dlpack(capsule(device=CUDA, data=ADDRESS))
except ValueError as error:
    assert "live" in str(error), error
else:
    raise AssertionError("host memory was taken for the device's")
x = gi.from_dlpack(capsule(device=CUDA, data=address))
assert (x.ptr, str(x.device)) == (address, "cuda:0")
"""


def test_import_may_be_the_first_use_of_the_driver():
    run(FIRST_USE)

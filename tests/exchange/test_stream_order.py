"""Order of streams at every hand-over, seen on the fake driver, whose streams are slow threads.

The fake driver delays each queued operation, so a missing wait shows as old values, and counts calls,
so a host synchronisation that nobody asked for shows too.
"""

from __future__ import annotations

import pytest
from peers import has_compiler, library, run_on_fake_driver

pytestmark = [
    pytest.mark.fake_driver,
    pytest.mark.skipif(not has_compiler(), reason="no C++ compiler"),
]

PRELUDE = """
import ctypes, os
import numpy as np
import gpuinterop as gi
from gpuinterop import _core
from peers import CUDA, Producer, api, capsule, consume, content, freed, interface, peer
from peers import start_counting
driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
driver.fakecuda_calls.argtypes = [ctypes.c_char_p]
SYNC = [b"cuStreamSynchronize", b"cuCtxSynchronize", b"cuEventSynchronize"]

def syncs():
    return sum(driver.fakecuda_calls(name) for name in SYNC)

def waits():
    return driver.fakecuda_calls(b"cuStreamWaitEvent")

def busy(stream, x, value, delay_us=20000):
    '''Queue slow work on `stream` that ends with x == value.'''
    # A pause of its own: the delay of all operations is read when they run, perhaps too late.
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxPushCurrent_v2(context)
    usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    handle = ctypes.c_void_p(stream.handle)
    assert driver.cuLaunchHostFunc(handle, usleep, ctypes.c_void_p(delay_us)) == 0
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    with stream:
        x[...] = value

def read(x, stream):
    '''x as work queued on `stream`, a handle, finds it.'''
    out = np.zeros(x.shape, "float32")
    p, to, size = ctypes.c_void_p(stream), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(x.nbytes)
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxPushCurrent_v2(context)
    assert driver.cuMemcpyDtoHAsync_v2(to, ctypes.c_void_p(x.ptr), size, p) == 0
    assert driver.cuStreamSynchronize(p) == 0
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    return out

x = gi.zeros((64,), device="cuda:0")
mine, theirs = gi.Stream("cuda:0"), gi.Stream("cuda:0")
x[...] = 0
gi.synchronize()
"""

PROGRAMS = {
    "export waits on the given stream": """
busy(mine, x, 5)
before = syncs()
x.__dlpack__(stream=theirs.handle)
assert syncs() == before
assert (read(x, theirs.handle) == 5).all()
""",
    "export without a stream means the legacy one": """
busy(mine, x, 5)
x.__dlpack__()
assert (read(x, 1) == 5).all()
""",
    "export on 1 and 2": """
for handle in (1, 2):
    busy(mine, x, handle)
    x.__dlpack__(stream=handle)
    assert (read(x, handle) == handle).all()
""",
    "export on -1 orders nothing": """
busy(mine, x, 5, delay_us=1000000)  # long enough for a reader on a crowded machine to come first
before = waits(), syncs()
x.__dlpack__(stream=-1)
assert (waits(), syncs()) == before
assert (read(x, theirs.handle) == 0).all()  # without order the reader is too early
""",
    "export on the own stream needs no wait": """
busy(mine, x, 5)
before = waits(), syncs()
x.__dlpack__(stream=mine.handle)
assert (waits(), syncs()) == before
""",
    "export of a copy": """
busy(mine, x, 5)
before = syncs()
cap = x.__dlpack__(stream=theirs.handle, copy=True, max_version=(1, 3))
assert syncs() == before
assert content(cap).flags == 2
assert content(cap).tensor.data != x.ptr
assert (read(gi.from_dlpack(cap), theirs.handle) == 5).all()
""",
    "export to the host is complete when it returns": """
busy(mine, x, 5)
cap = x.__dlpack__(dl_device=(1, 0), max_version=(1, 3))
assert content(cap).flags == 2
assert content(cap).tensor.device_type == 1
assert (np.asarray(gi.from_dlpack(cap)) == 5).all()
busy(mine, x, 6)
assert (np.from_dlpack(x, device="cpu") == 6).all()
""",
    "export to another GPU": """
busy(mine, x, 5)
cap = x.__dlpack__(dl_device=(2, 1), max_version=(1, 3))
t = content(cap).tensor
assert (t.device_type, t.device_id) == (2, 1)
assert (np.asarray(gi.from_dlpack(cap)) == 5).all()
""",
    "the dictionary names the stream of the last use": """
busy(mine, x, 5)
entry = x.__cuda_array_interface__
assert entry["version"] == 3 and entry["strides"] is None and entry["data"] == (x.ptr, False)
assert entry["stream"] == mine.handle
assert x[::2].__cuda_array_interface__["strides"] == (8,)
assert gi.zeros((0, 3), device="cuda:0").__cuda_array_interface__["data"] == (0, False)
assert not hasattr(x, "__array_interface__")
""",
    "the exchange table orders on the current stream": """
take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
i32 = ctypes.c_int32
where = ctypes.PYFUNCTYPE(ctypes.c_int, i32, i32, ctypes.POINTER(ctypes.c_void_p))
at = api.PyCapsule_GetPointer(type(x).__dlpack_c_exchange_api__, b"dlpack_exchange_api")
table = (ctypes.c_void_p * 7).from_address(at)
busy(mine, x, 5)
with theirs:
    handle, managed = ctypes.c_void_p(), ctypes.c_void_p()
    assert where(table[6])(2, 0, ctypes.byref(handle)) == 0
    assert handle.value == theirs.handle
    before = syncs()
    assert take(table[3])(x, ctypes.byref(managed)) == 0
    assert syncs() == before
    assert (read(x, handle.value) == 5).all()
peer().peer_delete_on_thread(managed)
try:
    where(table[6])(2, 7, ctypes.byref(handle))
except ValueError:
    pass
else:
    raise AssertionError
""",
    "import passes our stream on": """
producer = Producer(device=CUDA, data=x.ptr, shape=(64,), strides=(1,))
gi.from_dlpack(producer)
with mine:
    y = gi.from_dlpack(producer)
assert [c["stream"] for c in producer.calls] == [1, mine.handle], producer.calls
assert [c["max_version"] for c in producer.calls] == [(1, 3)] * 2
assert y._stream == mine.handle
""",
    "import from an old producer waits for the legacy stream": """
class Old:
    def __dlpack__(self):
        return capsule(device=CUDA, data=x.ptr, shape=(64,), strides=(1,), legacy=True)
    def __dlpack_device__(self):
        return CUDA
busy(gi.devices.legacy_stream("cuda:0"), x, 5)
before = syncs()
with mine:
    y = gi.from_dlpack(Old())
    assert syncs() == before
    assert (np.asarray(y.copy()) == 5).all()
""",
    "import of a dictionary waits for its stream": """
def door(**entries):
    return interface(shape=(64,), data=(x.ptr, False), **entries)
busy(theirs, x, 5)
before = syncs()
with mine:
    y = gi.from_dlpack(door(stream=theirs.handle))
    assert syncs() == before
    assert (np.asarray(y.copy()) == 5).all()
busy(gi.devices.legacy_stream("cuda:0"), x, 6)
for version in (0, 1, 2):
    with mine:
        y = gi.from_dlpack(door(version=version))
        assert (np.asarray(y.copy()) == 6).all()
before = waits()
with mine:
    z = gi.from_dlpack(door(stream=None))
assert waits() == before
""",
    "a producer gets its memory back in order": """
# Our last use is still queued when the array goes: the producer's stream must wait for it.
owner = interface(shape=(64,), data=(x.ptr, False), stream=theirs.handle)
y = gi.from_dlpack(owner)
busy(mine, y, 7)
before = syncs()
del y
assert syncs() == before
assert (read(x, theirs.handle) == 7).all()
""",
    "a capsule's producer gets its memory back in order": """
start_counting()
y = gi.from_dlpack(capsule(device=CUDA, data=x.ptr, shape=(64,), strides=(1,)))
busy(mine, y, 7)
before = syncs()
del y
assert freed() == 0  # nobody knows where it goes on, so it comes late: test_late_release.py
assert syncs() == before
assert (read(x, 1) == 7).all()
gi.synchronize()
assert freed() == 1
""",
    "memory that a consumer may still read is not handed out": """
# The consumer's work is still queued when its deleter runs, and the block is taken again at once.
x[...] = 5
gi.synchronize()
held = consume(x.__dlpack__(stream=theirs.handle, max_version=(1, 3)))
address = x.ptr
y = gi.zeros((64,), device="cuda:0")
driver.fakecuda_set_delay_us(20000)
with theirs:
    y[...] = x  # stands for the consumer's own work
driver.fakecuda_set_delay_us(0)
del x
peer().peer_delete_on_thread(held)
with mine:
    z = gi.zeros((64,), device="cuda:0")
    z[...] = 9
assert (np.asarray(y) == 5).all()
""",
    "per-thread default streams are told apart": """
import threading
two = gi.devices.per_thread_stream("cuda:0")
busy(two, x, 5)
seen = []
def other():
    x.__dlpack__(stream=2)
    seen.append((read(x, 2) == 5).all())
t = threading.Thread(target=other)
t.start()
t.join()
assert seen == [True]
""",
    "from the host to a device and back": """
n = np.arange(64, dtype="float32")
y = gi.from_dlpack(n, device="cuda:1")
assert str(y.device) == "cuda:1"
z = gi.from_dlpack(y, device="cuda:0")
back = gi.from_dlpack(z, device="cpu")
assert (np.asarray(back) == n).all()
assert y.base is None
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_order(name):
    library()
    run_on_fake_driver(PRELUDE + PROGRAMS[name])

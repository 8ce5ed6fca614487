"""Imported CUDA memory goes back to its producer when the device is through with it, and not before.

On the fake driver, whose streams are threads that gates hold up. A producer that reuses its memory on a stream of
its own cannot be told to wait, so its deleter has to come late: that is what these programs look at.
"""

from __future__ import annotations

import pytest
from peers import has_compiler, library, run_on_fake_driver
from test_stream_order import PRELUDE

pytestmark = [
    pytest.mark.fake_driver,
    pytest.mark.skipif(not has_compiler(), reason="no C++ compiler"),
]

SETUP = """
import gc, time, types, weakref
from doubles.driver import Gate, slow
from peers import forever, struct
start_counting()

def taken(**more):
    '''The memory of x from a producer that does not say where it works.'''
    return gi.from_dlpack(capsule(device=CUDA, data=x.ptr, shape=(64,), strides=(1,), **more))

def work(stream, y, value=7):
    '''Queue a use of y that comes when the gate is opened, which is the answer.'''
    gate = Gate(stream.handle)
    use(stream, y, value)
    return gate

def slow_work(stream, y, value=7, ms=60):
    '''Queue a use of y that comes after a while.'''
    slow(stream.handle, 1000 * ms)
    use(stream, y, value)

def use(stream, y, value=7):
    before = syncs()
    with stream:
        y[...] = value
    assert syncs() == before

def soon(condition):
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False

context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
legacy = gi.devices.legacy_stream("cuda:0")
"""

PROGRAMS = {
    "later than the last use, and without waiting for it": """
y = taken()
gate = work(mine, y)
before = syncs()
del y
assert freed() == 0
assert syncs() == before
gate.open()
mine.synchronize()
assert freed() == 1
""",
    "found at the next import": """
y = taken()
gate = work(mine, y)
del y
assert freed() == 0
gate.open()
def look():
    gi.from_dlpack(capsule(device=CUDA, data=x.ptr, shape=(64,), strides=(1,), deleter=None))
    return freed() == 1
assert soon(look)
""",
    "found at the next allocation": """
y = taken()
gate = work(mine, y)
del y
assert gi.empty((64,), device="cuda:0") is not None and freed() == 0
gate.open()
assert soon(lambda: gi.empty((64,), device="cuda:0") is not None and freed() == 1)
""",
    "found by the whole device's synchronisation and by empty_cache": """
for wait in (gi.synchronize, gi.empty_cache):
    start_counting()
    y = taken()
    gate = work(mine, y)
    del y
    assert freed() == 0
    gate.open()
    wait()
    assert freed() == 1, wait
""",
    "at once when the last use has passed": """
y = taken()
use(mine, y)
mine.synchronize()
before = driver.fakecuda_calls(b"cuEventQuery")
del y
assert freed() == 1
assert driver.fakecuda_calls(b"cuEventQuery") == before
""",
    "after the legacy stream too, with which the producer's own need keep no order (JAX, torch's pool)": """
for one in (taken, lambda: gi.from_dlpack(Producer(device=CUDA, data=x.ptr, shape=(64,), strides=(1,)))):
    start_counting()
    y = one()
    gate = work(legacy, y)
    del y
    assert freed() == 0
    gate.open()
    assert soon(lambda: (gi.synchronize(), freed() == 1)[1])
""",
    "memory handed on is kept until that consumer is through": """
for ending in (lambda held: peer().peer_delete_later(held, 0), peer().peer_delete_on_thread):
    start_counting()
    y = taken()
    held = consume(y.__dlpack__(stream=theirs.handle, max_version=(1, 3)))
    gate = work(theirs, gi.zeros((64,), device="cuda:0"))  # the consumer's own use, unknown to y
    del y
    ending(held)
    time.sleep(0.02)
    assert freed() == 0
    gate.open()
    assert soon(lambda: (gi.synchronize(), freed() == 1)[1])
""",
    "memory handed on is let go of by a thread without the GIL, when nothing is left to wait for": """
y = taken()
held = consume(y.__dlpack__(stream=-1, max_version=(1, 3)))
del y
gi.synchronize()
driver.fakecuda_fail(b"cuCtxRecordEvent", 801, 0, 1)  # an old driver: the whole context is waited for
peer().peer_delete_on_thread(held)
assert freed() == 1
""",
    "memory handed on to the legacy stream goes back after it": """
owner = interface(shape=(64,), data=(x.ptr, False), stream=theirs.handle)
y = gi.from_dlpack(owner)
held = consume(y.__dlpack__(max_version=(1, 3)))
slow_work(legacy, x, 9)  # stands for the consumer's work, for it does not touch y
del y
before = syncs()
peer().peer_delete_later(held, 0)
del owner
assert soon(lambda: (read(x, theirs.handle) == 9).all())
""",
    "borrowed memory keeps its owner": """
class Owner:
    __cuda_array_interface__ = {"shape": (64,), "typestr": "<f4", "data": (x.ptr, False),
                                "version": 3, "stream": None}
owner = Owner()
alive = weakref.ref(owner)
y = gi.from_dlpack(owner)
view = y[:32]
gate = work(mine, view)
del owner, y
assert alive() is not None
del view
gc.collect()
assert alive() is not None
gate.open()
mine.synchronize()
assert alive() is None
""",
    "a capsule without a deleter keeps its producer": """
for legacy_struct in (False, True):
    producer = Producer(lambda **_: capsule(device=CUDA, data=x.ptr, shape=(64,), strides=(1,),
                                            deleter=None, legacy=legacy_struct), device=CUDA)
    alive = weakref.ref(producer)
    y = gi.from_dlpack(producer)
    gate = work(mine, y)
    del producer
    assert alive() is not None
    del y
    assert alive() is not None
    gate.open()
    mine.synchronize()
    assert alive() is None
""",
    "a stream that its producer has destroyed is not spoken to": """
handle = ctypes.c_void_p()
driver.cuCtxPushCurrent_v2(context)
for used_on in (mine, legacy):
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    class Current:
        "As CuPy: keeps no stream and names whichever is current."
        stream = handle.value
        @property
        def __cuda_array_interface__(self):
            return {"shape": (64,), "typestr": "<f4", "data": (x.ptr, False), "version": 3,
                    "stream": self.stream}
    owner = Current()
    alive = weakref.ref(owner)
    y = gi.from_dlpack(owner)
    Current.stream = 1
    assert driver.cuStreamDestroy_v2(handle) == 0
    gate = work(used_on, y)
    before = waits()
    del owner, y
    assert waits() == before
    assert alive() is not None
    gate.open()
    used_on.synchronize()
    assert alive() is None
""",
    "borrowed memory in a cycle with its owner": """
class Owner:
    __cuda_array_interface__ = {"shape": (64,), "typestr": "<f4", "data": (x.ptr, False),
                                "version": 3, "stream": None}
owner = Owner()
alive = weakref.ref(owner)
owner.array = gi.from_dlpack(owner)
gate = work(mine, owner.array)
del owner
gc.collect()
gate.open()
mine.synchronize()
gc.collect()
assert alive() is None
""",
    "not too many and not too much": """
for i in range(100):
    y = taken()
    slow_work(mine, y, ms=5)
    del y
assert freed() >= 36 - 1, freed()  # 64 may be pending
mine.synchronize()
gi.synchronize()
for _ in range(40):  # each look takes what has passed
    gi.empty_cache()
assert freed() == 100, freed()
""",
    "a last use inside a capture": """
driver.cuCtxPushCurrent_v2(context)
for mode in (0, 1, 2):
    start_counting()
    y = taken()
    handle, graph = ctypes.c_void_p(mine.handle), ctypes.c_void_p()
    assert driver.cuStreamBeginCapture_v2(handle, mode) == 0
    with mine:
        y[...] = 3
    del y
    assert freed() == 0
    gi.zeros((64,), device="cuda:0")
    assert freed() == 0
    assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0, mode
    # The first look can only now mark the place, a later one finds it passed.
    assert soon(lambda: (gi.synchronize(), freed() == 1)[1])
""",
    "a capture elsewhere is not disturbed": """
driver.cuCtxPushCurrent_v2(context)
for mode in (0, 1, 2):
    start_counting()
    handle, graph = ctypes.c_void_p(theirs.handle), ctypes.c_void_p()
    y = taken()
    gate = work(mine, y)
    z = taken()
    held = consume(z.__dlpack__(stream=mine.handle, max_version=(1, 3)))
    assert driver.cuStreamBeginCapture_v2(handle, mode) == 0
    assert theirs.is_capturing
    del y, z
    peer().peer_delete_on_thread(held)
    gate.open()
    mine.synchronize()
    assert freed() == 1, (mode, freed())  # the other was handed on, and the capture forbids to wait for everyone
    assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0, mode
    assert soon(lambda: (gi.synchronize(), freed() == 2)[1])
""",
    "an exception on its way survives": """
class Owner:
    __cuda_array_interface__ = {"shape": (64,), "typestr": "<f4", "data": (x.ptr, False),
                                "version": 3, "stream": None}
    def __del__(self):
        raise ValueError("of the owner")
sys_hook = []
import sys
sys.unraisablehook = sys_hook.append
y = gi.from_dlpack(Owner())
use(mine, y)
del y
try:
    mine.synchronize()
    raise KeyError(1)
except KeyError:
    pass
gi.synchronize()
assert len(sys_hook) == 1
""",
    "dropped without a word when the process ends first": """
y = taken()
slow_work(mine, y, ms=1000)
del y
assert freed() == 0
""",
    "a deleter that runs within an import finds its capsule taken": """
ended, taken_twice = [], []
def deleter(name, body=lambda: None):
    return forever(ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda _: (ended.append(name), body())))
def made(function):
    managed = struct(device=CUDA, data=x.ptr, shape=(64,), strides=(1,))
    managed.deleter = ctypes.cast(function, ctypes.c_void_p).value
    return capsule(managed)
def take_second():
    try:
        taken_twice.append(gi.from_dlpack(second))
    except ValueError as error:
        assert "consumed already" in str(error)
        ended.append("refused")
second = made(deleter("second"))
y = gi.from_dlpack(made(deleter("first", take_second)))
gate = work(mine, y)
del y
done = mine.record()  # after the event of the deferred release
assert ended == []
gate.open()
assert soon(done.query)
z = gi.from_dlpack(second)
assert ended == ["first", "refused"], ended
assert taken_twice == []
del z
assert ended == ["first", "refused", "second"]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_late_release(name):
    library()
    run_on_fake_driver(PRELUDE + SETUP + PROGRAMS[name])

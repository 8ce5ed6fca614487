"""Who keeps whom alive: owners, views, subclasses, cycles, threads, pickles, interpreter exit."""

import copy
import gc
import os
import pickle
import sys
import weakref

import numpy as np
import pytest
from doubles import driver
from helpers.threads import in_threads

import gpuinterop as gi
from gpuinterop.devices import memory_stats

pytestmark = pytest.mark.lifetime


def live(device: str) -> tuple[int, int, int]:
    gc.collect()
    stats = memory_stats(device)
    return stats["live_arrays"], stats["live_buffers"], stats["live_bytes"]


class Sub(gi.CudaNdarray):
    """A user's subclass, with a dict of its own."""


def test_views_keep_the_memory_and_owners_go_at_once(device):
    before = live(device)
    x = gi.CudaNdarray(np.arange(12, dtype="float32").reshape(3, 4), device=device)
    ref = weakref.ref(x)
    view = x[1:, ::2]
    del x
    assert ref() is not None
    np.testing.assert_array_equal(view.get(), [[4, 6], [8, 10]])
    del view
    assert ref() is None
    assert live(device) == before


def test_subclasses_survive_views_and_copies(device):
    x = Sub(np.ones((2, 3), "float32"), device=device)
    x.note = "kept"
    results = [x[0], x.T, x.view(), x.copy(), x.reshape(3, 2), x.squeeze(), x.broadcast_to(4, 2, 3),
               copy.copy(x), copy.deepcopy(x), x.dimshuffle(1, "x", 0), x.to_device("cpu")]  # fmt: skip
    assert all(type(r) is Sub for r in results)
    restored = pickle.loads(pickle.dumps(x))
    assert type(restored) is Sub
    assert restored.note == "kept"
    ref = weakref.ref(x)
    del results, x
    assert ref() is None


def test_cycles_are_collected(device):
    before = live(device)

    class Holder:
        """Owns memory and holds a view of it."""

    holder = Holder()
    memory = gi.ones(8, device=device)
    holder.view = gi.from_gpu_pointer(memory.ptr, (8,), (1,), holder, device=device)
    ref = weakref.ref(holder)
    del holder
    gc.collect()
    assert ref() is None
    knot = Sub(np.ones(8, "float32"), device=device)
    knot.self = knot[1:]
    del knot, memory
    assert live(device) == before


def test_pickle_keeps_values_dtype_and_place(device):
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        y = pickle.loads(pickle.dumps(x[:, ::-1], protocol))
        assert y.device == x.device
        assert not gi.shares_memory(y, x)
        np.testing.assert_array_equal(y.get(), x.get()[:, ::-1])
    z = pickle.loads(pickle.dumps(gi.GpuArray(np.arange(3, dtype="uint16"), device=device)))
    assert (type(z), z.dtype, z.tolist()) == (gi.GpuArray, np.uint16, [0, 1, 2])


def test_pickles_with_buffers_share_memory():
    x = gi.GpuArray(np.arange(6, dtype="float64").reshape(2, 3), device="cpu").T
    buffers = []
    text = pickle.dumps(x, 5, buffer_callback=buffers.append)
    y = pickle.loads(text, buffers=buffers)
    assert gi.shares_memory(x, y)
    np.testing.assert_array_equal(y.get(), x.get())
    memory = bytes(buffers[0].raw())
    unaligned = memoryview(bytearray(b"_" + memory))[1:]
    for buffer in (memory, unaligned):
        y = pickle.loads(text, buffers=[buffer])
        y[...] = y + 1
        np.testing.assert_array_equal(y.get(), x.get() + 1)
    assert bytes(unaligned) == memory


def test_unpickling_without_the_device(monkeypatch):
    load, host = gi.zeros(1, device="cpu").__reduce_ex__(5)[0], np.ones(2, "float32")
    with pytest.raises(ValueError, match="GPUINTEROP_UNPICKLE_DEVICE"):
        load(gi.CudaNdarray, host, "cuda:63")
    monkeypatch.setenv("GPUINTEROP_UNPICKLE_DEVICE", "cpu")
    assert load(gi.CudaNdarray, host, "cuda:63").device == "cpu"


def test_references_are_counted_exactly(device):
    x = gi.CudaNdarray(np.ones((3, 4), "float32"), device=device)
    key = (slice(1, None), slice(None, None, 2))
    value = np.float32([1, 2])
    x[key] = value
    watched = [x, key, value, gi.CudaNdarray, np.dtype("float32")]
    gc.collect()
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(2000):
        view = x[key]
        view.T.reshape(-1)
        x[key] = value
        x[0, 0] = 1.0
        _ = (x.shape, x.strides, x._strides, x.dtype, x.device, x.base, view.base, x.flags)
        with pytest.raises(IndexError):
            x[5]
    del view
    gc.collect()  # the tracebacks of the caught errors
    after = [sys.getrefcount(o) for o in watched]
    assert all(abs(a - b) <= 2 for a, b in zip(after, before, strict=True))


def test_threads_share_arrays(device):
    x = gi.zeros((64, 64), device=device)
    before = live(device)

    def work(row: int) -> None:
        for i in range(200):
            view = x[row : row + 1][:, ::2]
            view[...] = float(i)
            assert (view.get() == i).all()
            assert view.copy().base is None

    in_threads(work, range(8))
    assert live(device) == before


def test_a_bare_object_is_an_empty_array():
    for cls in (gi.CudaNdarray, gi.GpuArray):
        bare = cls.__base__.__new__(cls)
        assert bare.shape == (0,)
        assert bare.copy().shape == (0,)
        assert bare[::-1].size == 0
        bare[...] = 1
    with pytest.raises(TypeError):
        gi.CudaNdarray()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_waits_for_a_first_use_in_another_thread():
    program = """
import os, signal, sys, threading, time
import gpuinterop as gi

loading = threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "gpuinterop.creation":
            loading.set()
            time.sleep(1)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: gi.zeros(3, device="cpu"))
thread.start()
loading.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # ends the child where it hangs
    gi.zeros(3, device="cpu")
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if gi.ones(2, device="cpu").sum() == 2 else 1)
    os._exit(os.waitpid(grandchild, 0)[1])
status = os.waitpid(child, 0)[1]
thread.join()
print(status, gi.ones(2, device="cpu").tolist())
"""
    assert driver.run(program).strip() == "0 [1.0, 1.0]"

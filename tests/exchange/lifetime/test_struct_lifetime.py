"""Who keeps whom alive: each struct ends once, nothing grows, and no thread or exit is too late."""

import ctypes
import gc
import os
import sys
import threading
import weakref
from typing import ClassVar

import numpy as np
import pytest
from helpers.process_memory import resident_bytes
from helpers.threads import in_threads
from peers import Producer, capsule, consume, forever, peer, run, struct

import gpuinterop as gi
from gpuinterop.devices import memory_stats

# 4,000 of each kind in the quick suite; GPUINTEROP_SOAK_CYCLES=10000000 is the long run.
CYCLES = int(os.environ.get("GPUINTEROP_SOAK_CYCLES", "0"))


def live() -> tuple[int, int]:
    gc.collect()
    stats = memory_stats("cpu")
    return stats["live_arrays"], stats["live_bytes"]


class Heap:
    """The bytes that malloc has allocated, as glibc reports them; 0 without glibc."""

    class Info(ctypes.Structure):
        _fields_: ClassVar = [(f"field{i}", ctypes.c_size_t) for i in range(10)]

    def __init__(self) -> None:
        self.ask = None if "GPUINTEROP_SANITIZED" in os.environ else self.find()

    def find(self):
        ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
        if ask is not None:
            ask.restype = self.Info
        return ask

    def __call__(self) -> int:
        info = self.ask() if self.ask else None
        return info.field4 + info.field7 if info else 0


heap = Heap()

# What every conversion handles, and would lose or gain a reference to with each that is miscounted.
WATCHED = {
    "None": None,
    "True": True,
    "CudaNdarray": gi.CudaNdarray,
    "GpuArray": gi.GpuArray,
    "numpy.ndarray": np.ndarray,
    **{f"the dtype {name}": np.dtype(name) for name in ("float32", "uint8")},
}


def references() -> dict[str, int]:
    return {name: sys.getrefcount(thing) for name, thing in WATCHED.items()}


def cycles():
    """Name and body of one export, import and view each."""
    n = np.arange(24, dtype="float32").reshape(4, 6)
    x = gi.full((4, 6), 1.0, device="cpu")
    foreign = gi.from_dlpack(n)
    yield "capsule made and dropped", lambda: x.__dlpack__()
    yield "versioned capsule dropped", lambda: foreign.__dlpack__(max_version=(1, 3))
    yield "capsule round trip", lambda: gi.from_dlpack(x.__dlpack__(max_version=(1, 3)))
    yield "numpy in", lambda: gi.from_dlpack(n)
    yield "numpy out", lambda: np.from_dlpack(x)
    yield "numpy round trip with views", lambda: gi.from_dlpack(np.from_dlpack(x[::-1].T))[1:]
    yield "copy", lambda: np.from_dlpack(x, copy=True)
    yield "dictionary", lambda: np.asarray(x)
    yield "buffer", lambda: gi.from_dlpack(b"abcdef")[1:]

    def refused():
        try:
            gi.from_dlpack(b"abcdef", cls=gi.CudaNdarray)
        except TypeError:
            return
        raise AssertionError

    yield "refused", refused


BODIES = dict(cycles())
TORCH = [pytest.param(f"torch {way}", marks=pytest.mark.torch) for way in ("in", "out")]
# NumPy keeps a reference to None for each __array_interface__ that names no strides.
FOREIGN = {"dictionary": ("None",)}


def body_of(name):
    if name in BODIES:
        return BODIES[name]
    torch = pytest.importorskip("torch")
    t, x = torch.ones(4, 6), gi.full((4, 6), 1.0, device="cpu")
    outward = lambda: gi.to(x.T, "torch")  # noqa: E731
    return outward if name == "torch out" else lambda: gi.from_dlpack(t)


def is_flat(body, count: int, foreign: tuple[str, ...] = ()) -> None:
    """Each of `count` calls leaves everything as it was; `foreign` is not counted right by its library."""
    for _ in range(count // 4):
        body()
    before, counts, blocks, memory = live(), references(), sys.getallocatedblocks(), heap()
    for _ in range(count):
        body()
    assert live() == before
    # A leak in every call, or in every fourth, exceeds the temporary objects of a test run.
    some = count // 4
    off = {n: now - counts[n] for n, now in references().items() if abs(now - counts[n]) >= some}
    assert set(off) <= set(foreign), off
    assert sys.getallocatedblocks() - blocks < some
    assert heap() - memory < 16 * some


@pytest.mark.parametrize("name", [*BODIES, *TORCH])
def test_memory_is_flat(name):
    is_flat(body_of(name), 4_000, FOREIGN.get(name, ()))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BODIES)
def test_memory_is_flat_for_long(name):
    count = max(CYCLES // len(BODIES), 200_000)
    is_flat(BODIES[name], count // 4, FOREIGN.get(name, ()))
    memory = resident_bytes()
    is_flat(BODIES[name], count, FOREIGN.get(name, ()))
    # What no count above has seen. AddressSanitizer keeps freed memory.
    assert "GPUINTEROP_SANITIZED" in os.environ or resident_bytes() - memory < max(
        count * 4, 1 << 20
    )


def test_struct_ends_after_the_last_of_array_view_capsule_and_consumer(freed):
    x = gi.from_dlpack(capsule())
    view = x[1:]
    unused = x.__dlpack__()
    used = consume(view.__dlpack__(max_version=(1, 3)))
    n = np.from_dlpack(x)
    del x, view, unused, n
    gc.collect()
    assert freed() == 0
    peer().peer_delete_on_thread(used)
    assert freed() == 1


def test_cycles_through_arrays_and_producers_are_collected(freed):
    class Owner(Producer):
        pass

    before = live()
    owner = Owner()
    owner.array = gi.from_dlpack(owner)
    owner.view = owner.array[1:]
    owner.other = gi.zeros(3, device="cpu")
    gone = weakref.ref(owner)
    del owner
    assert live() == before
    assert gone() is None
    assert freed() == 1


def test_threads_import_and_export_at_once():
    x, n = gi.full((4, 6), 1.0, device="cpu"), np.zeros((4, 6), "float32")
    before = live()

    def work(_):
        for _ in range(2000):
            assert gi.from_dlpack(np.from_dlpack(x[1:])).shape == (3, 6)
            gi.from_dlpack(n)

    in_threads(work, range(4))
    assert live() == before


def test_native_thread_frees_while_python_runs():
    owner = bytearray(64)
    for _ in range(200):
        managed = consume(gi.from_dlpack(owner).__dlpack__(max_version=(1, 3)))
        peer().peer_delete_later(managed, 0)
        sum(range(1000))
    # If the bytearray can be resized, no buffer holds it any more.
    for _ in range(2000):
        try:
            owner.append(1)
            break
        except BufferError:
            threading.Event().wait(0.005)
    else:
        raise AssertionError("a deleter did not run")


def test_pending_error_survives_the_deleters(freed):
    class Loud:
        """Its memory is kept by a Python object whose end runs Python code that fails inside."""

        ended = 0

        def __init__(self):
            self.n = np.zeros(3)
            self.__array_interface__ = self.n.__array_interface__

        def __del__(self):
            try:
                raise ValueError("inside")
            except ValueError:
                Loud.ended += 1

    # The interpreter drops what it holds of the tuple while the error is on its way.
    with pytest.raises(ZeroDivisionError):
        (
            gi.from_dlpack(Loud()),
            gi.from_dlpack(Loud()).__dlpack__(),
            gi.from_dlpack(capsule()).__dlpack__(max_version=(1, 3)),
            1 / 0,
        )
    assert (freed(), Loud.ended) == (1, 2)


def test_deleter_in_python_runs_while_an_error_is_on_its_way():
    ended = {}
    # A method call: CPython checks that it begins without an exception.
    deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda address: ended.update({address: 1}))
    managed = struct()
    managed.deleter = ctypes.cast(forever(deleter), ctypes.c_void_p).value
    with pytest.raises(gi.CopyForbiddenError), gi.no_copies():
        gi.asarray(Producer(lambda **_: capsule(managed)), copy=True)
    assert list(ended) == [ctypes.addressof(managed)]


# ---- the end of the process ---------------------------------------------------------------------

EXITS = {
    "arrays at module level": "keep = [x, foreign, kept, x.__dlpack__(), kept.__dlpack__()]",
    "a consumer frees after the interpreter": """
for a in (x, foreign):
    peer().peer_delete_at_exit(consume(a.__dlpack__(max_version=(1, 3))))
""",
    "a consumer frees memory that Python keeps, after the interpreter": """
peer().peer_delete_at_exit(consume(kept.__dlpack__(max_version=(1, 3))))
""",
    "a thread frees while the interpreter ends": """
for a in (x, foreign, kept):
    peer().peer_delete_while_finalizing(consume(a.__dlpack__(max_version=(1, 3))))
class Slow:
    def __del__(self):
        import time
        time.sleep(0.2)
sys.slow = Slow()
""",
    "a thread frees a moment later": """
for a in (x, foreign, kept):
    peer().peer_delete_later(consume(a.__dlpack__(max_version=(1, 3))), 20)
""",
    "numpy holds the memory": "sys.keep = np.from_dlpack(x), np.asarray(kept), np.from_dlpack(foreign)",
    "a cycle with a module": "me = sys.modules[__name__]; me.cycle = [me, x, kept, foreign.T]",
    "atexit makes new ones": "import atexit; atexit.register(lambda: np.from_dlpack(foreign[1:]))",
    "a cycle that owns what it views": """
class Holder: pass
me = Holder(); me.me = me; me.view = x[1:]; sys.later = x.T
me.raw = gi.from_gpu_pointer(x.ptr, (6,), (1,), me, device="cpu")
""",
    "an exception ends it": "raise SystemExit(0)",
}


@pytest.mark.parametrize("name", EXITS)
def test_process_exits_cleanly(name):
    peer()
    run(
        f"""
import sys
import numpy as np
import gpuinterop as gi
from peers import capsule, consume, peer
x = gi.full((2, 3), 1.0, device="cpu")
foreign = gi.from_dlpack(capsule())
kept = gi.from_dlpack(bytearray(64))
{EXITS[name]}
""",
        PYTHONDEVMODE="1" if "owns" in name else "",
    )

"""Who keeps whom alive: each struct ends once, nothing grows, and no thread or exit is too late."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from peers import (
    Producer,
    capsule,
    consume,
    environment,
    freed,
    has_compiler,
    library,
    peer,
    start_counting,
    with_table,
)

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.devices import memory_stats

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
# 4,000 of each kind in the quick suite; GPUINTEROP_SOAK_CYCLES=10000000 is the long run.
CYCLES = int(os.environ.get("GPUINTEROP_SOAK_CYCLES", "0"))


def live() -> tuple[int, int]:
    gc.collect()
    stats = memory_stats("cpu")
    return stats["live_arrays"], stats["live_bytes"]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Heap:
    """What malloc has given out, in bytes, as glibc tells; 0 where nobody does."""

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
    "the core's class": _core.Array,
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
    foreign = _core.import_any(None, n)
    take = _core.import_any
    yield "capsule made and dropped", lambda: x.__dlpack__()
    yield "versioned capsule dropped", lambda: foreign.__dlpack__(max_version=(1, 3))
    yield "capsule round trip", lambda: take(None, x.__dlpack__(max_version=(1, 3)))
    yield "numpy in", lambda: take(None, n)
    yield "numpy out", lambda: np.from_dlpack(x)
    yield "numpy round trip with views", lambda: take(None, np.from_dlpack(x[::-1].T))[1:]
    yield "copy", lambda: np.from_dlpack(x, copy=True)
    yield "dictionary", lambda: np.asarray(x)
    yield "buffer", lambda: take(None, b"abcdef")[1:]

    def refused():
        try:
            take(gi.CudaNdarray, b"abcdef")
        except TypeError:
            return
        raise AssertionError

    yield "refused", refused


BODIES = dict(cycles())
# NumPy keeps a reference to None for each __array_interface__ that names no strides.
FOREIGN = {"dictionary": ("None",)}


def torch_bodies():
    torch = pytest.importorskip("torch")
    t = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    x = gi.full((4, 6), 1.0, device="cpu")
    return {
        "in": lambda: _core.import_any(None, t),
        "out": lambda: _core.export_via(x, torch.Tensor),
        "round trip": lambda: _core.import_any(None, _core.export_via(x.T, torch.Tensor)),
    }


def is_flat(body, count: int, foreign: tuple[str, ...] = ()) -> None:
    """Each of `count` calls leaves everything as it was; `foreign` is not counted right by its library."""
    for _ in range(count // 4):
        body()
    before, counts, blocks, memory = live(), references(), sys.getallocatedblocks(), heap()
    for _ in range(count):
        body()
    assert live() == before
    # A loss in every call, or in every fourth, is seen beside what comes and goes with a test.
    some = count // 4
    off = {n: now - counts[n] for n, now in references().items() if abs(now - counts[n]) >= some}
    assert set(off) <= set(foreign), off
    assert sys.getallocatedblocks() - blocks < some
    assert heap() - memory < 16 * some


@pytest.mark.parametrize("name", BODIES)
def test_memory_is_flat(name):
    is_flat(BODIES[name], 4_000, FOREIGN.get(name, ()))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["in", "out", "round trip"])
def test_memory_is_flat_with_torch(name):
    is_flat(torch_bodies()[name], 4_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BODIES)
def test_memory_is_flat_for_long(name):
    count = max(CYCLES // len(BODIES), 200_000)
    is_flat(BODIES[name], count // 4, FOREIGN.get(name, ()))
    memory = resident()
    is_flat(BODIES[name], count, FOREIGN.get(name, ()))
    # What no count above has seen. AddressSanitizer keeps freed memory.
    assert "GPUINTEROP_SANITIZED" in os.environ or resident() - memory < max(count * 4, 1 << 20)


@needs_compiler
def test_every_deleter_runs_once():
    start_counting()
    for legacy in (False, True):
        for _ in range(100):
            x = _core.import_any(None, capsule(legacy=legacy))
            views = [x[1:], x.T, x[0]]
            del x
        assert views
        del views
    gc.collect()
    assert freed() == 200


@needs_compiler
def test_consumers_of_ours_share_one_end():
    """The foreign struct ends after the last of: array, view, capsule, consumer."""
    start_counting()
    x = _core.import_any(None, capsule())
    view = x[1:]
    unused = x.__dlpack__()
    used = consume(view.__dlpack__(max_version=(1, 3)))
    n = np.from_dlpack(x)
    del x, view, unused, n
    gc.collect()
    assert freed() == 0
    peer().peer_delete_on_thread(used)
    assert freed() == 1


@needs_compiler
def test_a_refused_import_leaves_nothing():
    before = live()
    start_counting()
    held = [capsule(dtype=(2, 64, 1)) for _ in range(50)]
    for cap in held:
        with pytest.raises(gi.DTypeError):
            _core.import_any(gi.CudaNdarray, cap)
    del held, cap
    assert live() == before
    # These are still their capsules', which here free nothing.
    assert freed() == 0


def test_cycles_are_collected():
    class Holder:
        pass

    holder = Holder()
    holder.x = gi.zeros(3, device="cpu")
    holder.view = holder.x[1:]
    holder.me = holder
    gone = weakref.ref(holder)
    before = live()[0]
    del holder
    assert live()[0] == before - 2
    assert gone() is None


@needs_compiler
def test_a_cycle_through_a_producer():
    class Owner(Producer):
        pass

    start_counting()
    owner = Owner()
    owner.array = _core.import_any(None, owner)
    owner.view = owner.array[1:]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    assert freed() == 1


def test_many_threads():
    x = gi.full((4, 6), 1.0, device="cpu")
    n = np.zeros((4, 6), "float32")
    before = live()
    errors = []

    def work():
        try:
            for _ in range(2000):
                y = _core.import_any(None, np.from_dlpack(x[1:]))
                z = _core.import_any(None, n)
                assert y.shape == (3, 6)
                del y, z
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert live() == before


@needs_compiler
def test_freed_on_a_native_thread_while_python_runs():
    owner = bytearray(64)
    for _ in range(200):
        x = _core.import_any(None, owner)
        managed = consume(x.__dlpack__(max_version=(1, 3)))
        del x
        peer().peer_delete_later(managed, 0)
        sum(range(1000))
    # All holds on the bytearray are gone when its size may change again.
    for _ in range(2000):
        try:
            owner.append(1)
            break
        except BufferError:
            threading.Event().wait(0.005)
    else:
        raise AssertionError("a deleter did not run")


@needs_compiler
def test_a_pending_error_survives_the_deleters():
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
    start_counting()
    with pytest.raises(ZeroDivisionError):
        (
            _core.import_any(None, Loud()),
            _core.import_any(None, Loud()).__dlpack__(),
            _core.import_any(None, capsule()).__dlpack__(max_version=(1, 3)),
            1 / 0,
        )
    assert (freed(), Loud.ended) == (1, 2)


@needs_compiler
def test_a_table_that_throws_leaves_no_type_behind():
    before = live()
    for _ in range(50):
        with pytest.raises(gi.ExchangeError):
            gi.from_dlpack(with_table(4))
    assert live() == before


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
    "an exception ends it": "raise SystemExit(0)",
}


@needs_compiler
@pytest.mark.parametrize("name", EXITS)
def test_the_process_ends_well(name):
    library()
    program = f"""
import sys
import numpy as np
import gpuinterop as gi
from gpuinterop import _core
from peers import capsule, consume, peer
x = gi.full((2, 3), 1.0, device="cpu")
foreign = _core.import_any(None, capsule())
kept = _core.import_any(None, bytearray(64))
{EXITS[name]}
"""
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""

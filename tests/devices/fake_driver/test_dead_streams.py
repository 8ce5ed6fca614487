"""Streams that their owners have destroyed are not spoken to again; `tidy` looks for the driver's faults.

The other half of each promise: what was queued there is waited for all the same.
"""

import gc
import sys
import threading
import types

import numpy as np
import pytest
from doubles import driver, fake_driver, internals
from doubles.streams import CuPy, Protocol
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.converters import pointer_arguments
from gpuinterop.errors import CaptureError

CUDA = "cuda:0"
N = 1000


class Owner(Protocol):
    """Of a stream that exists as long as this object does."""

    def __init__(self) -> None:
        super().__init__(driver.new_stream())

    @property
    def handle(self) -> int:
        return self._handle

    def __del__(self) -> None:
        driver.destroy_stream(self._handle)


def last_used_on_a_dead_stream() -> tuple[gi.CudaNdarray, driver.Gate]:
    """An array whose last use waits for the gate, on a destroyed stream."""
    owner = Owner()
    with gi.stream(owner):
        x = gi.zeros((N,), device=CUDA)
        gate = driver.Gate(owner.handle)
        x.fill(2.0)
    return x, gate


def last_used_in_another_thread() -> tuple[gi.CudaNdarray, driver.Gate]:
    """The same on the default stream of a thread; every thread calls its own by the number 2."""

    def work() -> tuple[gi.CudaNdarray, driver.Gate]:
        with devices.per_thread_stream(CUDA):
            x = gi.zeros((N,), device=CUDA)
            gate = driver.Gate(driver.PER_THREAD)
            x.fill(2.0)
            return x, gate

    return in_thread(work)


@pytest.fixture(params=[last_used_on_a_dead_stream, last_used_in_another_thread])
def last_used(request):
    x, gate = request.param()
    gc.collect()
    yield x, gate
    gate.open()


def waits_for_the_gate(gate: driver.Gate, wait) -> bool:
    """Whether `wait()` is back only after the gate has been opened."""
    back = threading.Event()
    thread = threading.Thread(target=lambda: (wait(), back.set()))
    thread.start()
    early = back.wait(0.1)
    gate.open()
    thread.join()
    return not early


def test_the_array_interface_names_a_live_stream(last_used):
    x, gate = last_used
    named = x.__cuda_array_interface__["stream"]
    assert waits_for_the_gate(gate, lambda: driver.read(x.ptr, N, named))
    assert driver.read(x.ptr, N, named).max() == 2.0


def test_sync_waits_for_the_last_use(last_used):
    x, gate = last_used
    assert waits_for_the_gate(gate, x.sync)


def test_copy_to_the_host_uses_no_destroyed_stream(last_used):
    x, gate = last_used
    gate.open()
    assert type(x.__dlpack__(dl_device=(1, 0))).__name__ == "PyCapsule"


def launched_by_address(x) -> driver.Gate:
    """Simulates a kernel on a stream that is unknown to gpuinterop and destroyed after the launch."""
    handle = driver.new_stream()
    with pointer_arguments((x,), stream=handle):
        gate = driver.Gate(handle)
    driver.destroy_stream(handle)
    return gate


def launched_by_a_call_that_fails(x) -> driver.Gate:
    handle = driver.new_stream()
    with pytest.raises(KeyError), pointer_arguments((x,), stream=handle):
        gate = driver.Gate(handle)
        raise KeyError
    driver.destroy_stream(handle)
    return gate


def launched_in_a_capture(x) -> driver.Gate:
    handle = driver.new_stream()
    capture = driver.Capture(handle, driver.Capture.RELAXED)
    with pointer_arguments((x,), stream=handle):
        pass
    with pytest.raises(CaptureError):
        x.fill(3.0)
    capture.end()
    gi.empty_cache(CUDA)  # from now on the driver cannot report the state of that capture
    gate = driver.Gate(handle)
    driver.destroy_stream(handle)
    capture.destroy()
    return gate


def launched_by_triton(x) -> driver.Gate:
    """On a stream from outside, which torch shows by its handle."""
    handle = driver.new_stream()
    with pytest.MonkeyPatch.context() as patch:
        torch = types.ModuleType("torch")
        current = types.SimpleNamespace(cuda_stream=handle, stream_id=handle)
        torch.cuda = types.SimpleNamespace(
            is_initialized=lambda: True, current_stream=lambda index: current
        )
        patch.setitem(sys.modules, "torch", torch)
        assert x.data_ptr() == x.ptr
    gate = driver.Gate(handle)
    driver.destroy_stream(handle)
    return gate


@pytest.mark.parametrize(
    "launched",
    [
        launched_by_address,
        launched_by_a_call_that_fails,
        launched_in_a_capture,
        launched_by_triton,
    ],
)
def test_next_use_waits_for_a_kernel_on_a_destroyed_stream(launched):
    x = gi.full((N,), 1.0, device=CUDA)
    gate = launched(x)
    with gi.Stream() as s:
        x.fill(2.0)
        assert waits_for_the_gate(gate, s.synchronize)
    assert np.asarray(x).max() == 2.0


def test_streams_that_stay_are_waited_for_alone():
    """torch's own, and one that was lent: no question about the whole context."""
    other = driver.new_stream()
    gate = driver.Gate(other)
    lent, pool = driver.new_stream(), driver.new_stream()
    x = gi.full((N,), 1.0, device=CUDA)
    fake_driver.clear_log()
    with gi.stream(lent):
        with pointer_arguments((x,), stream=lent):
            pass
        internals.used_on(x, pool, "test", True)
        x.fill(2.0)
    internals.used_on(x, pool, "test", True)
    x.sync()
    x.fill(3.0)
    assert fake_driver.calls("cuCtxRecordEvent") == 0
    gate.open()


def test_borrowed_memory_comes_after_its_library_at_once():
    handle = driver.new_stream()
    source = gi.full((N,), 1.0, device=CUDA)
    gi.synchronize()
    gate = driver.Gate(handle)
    interface = {**source.__cuda_array_interface__, "stream": handle}
    library = types.SimpleNamespace(__cuda_array_interface__=interface)
    x = gi.from_any(library)
    library.__cuda_array_interface__ = source.__cuda_array_interface__
    driver.destroy_stream(handle)
    assert waits_for_the_gate(gate, x.sync)
    x.fill(2.0)


@pytest.mark.parametrize(
    "use", [lambda x: x.sync(), lambda x: x.get(), lambda x: gi.synchronize(), gi.from_dlpack]
)
def test_a_handle_alone_is_good_for_its_block(use):
    """`as s` keeps the Stream, which keeps nothing alive."""
    handle = driver.new_stream()
    x = gi.zeros((N,), device=CUDA)
    with gi.stream(handle) as s:
        x.fill(2.0)
    driver.destroy_stream(handle)
    use(x)
    assert fake_driver.faults() == ""
    assert s.handle == handle
    assert np.asarray(x).max() == 2.0


def test_a_handle_alone_entered_twice_is_good_for_the_outer_block():
    handle = driver.new_stream()
    x = gi.zeros((N,), device=CUDA)
    with gi.stream(handle) as s:
        with s:
            x.fill(1.0)
        assert devices.current_stream(CUDA).handle == handle
        gate = driver.Gate(handle)
        x.fill(2.0)
    driver.destroy_stream(handle)
    assert waits_for_the_gate(gate, x.sync)


# ---- captures -----------------------------------------------------------------------------------


def test_a_capture_that_outlives_the_block_of_a_wrapper():
    """Its arrays are refused until the program synchronises, because the stream may have been destroyed."""
    handle = driver.new_stream()
    x = gi.zeros((N,), device=CUDA)
    gi.synchronize()
    with gi.stream(CuPy(handle)):
        capture = driver.Capture(handle, driver.Capture.RELAXED)
        x.fill(3.0)
    with pytest.raises(CaptureError):
        x.fill(4.0)
    capture.finish()
    driver.destroy_stream(handle)
    with pytest.raises(CaptureError, match="synchronize"):
        x.fill(4.0)
    gi.synchronize()
    x.fill(5.0)
    assert np.asarray(x).max() == 5.0
    assert not internals.is_capturing_anywhere()


class OfThePool:
    """Like the result of torch.cuda.current_stream(): a temporary object for a process-lifetime stream."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle
        self.stream_id = 35


def test_a_capture_that_outlives_the_object_of_a_stream_of_torch():
    handle = driver.new_stream()
    x = gi.full((N,), 2.0, device=CUDA)
    gi.synchronize()
    capture = driver.Capture(handle, driver.Capture.RELAXED)
    with gi.stream(OfThePool(handle)):
        total = x.sum()
    with pytest.raises(CaptureError):
        float(total)
    capture.end()
    float(total)  # never replayed, so any number: that it can be read is the point
    assert not internals.is_capturing_anywhere()
    capture.destroy()


def handed_to_a_capture() -> tuple[int, driver.Capture, list]:
    handle = driver.new_stream()
    x = gi.full((N,), 4.0, device=CUDA)
    gi.synchronize()
    capture = driver.Capture(handle, driver.Capture.RELAXED)
    return handle, capture, [x.__dlpack__(stream=handle), x]


def test_memory_held_by_an_unknown_capture_is_released_by_synchronisation():
    for over in (gi.synchronize, gi.empty_cache):
        handle, capture, held = handed_to_a_capture()
        address = held[1].ptr
        held.clear()
        assert gi.empty((N,), device=CUDA).ptr != address
        capture.finish()
        driver.destroy_stream(handle)
        assert gi.empty((N,), device=CUDA).ptr != address
        before = fake_driver.used()
        over()
        assert fake_driver.used() < before or address in [
            y.ptr for y in [gi.empty((N,), device=CUDA) for _ in range(40)]
        ]


def test_use_of_a_stream_after_its_capture_ends_the_capture_state():
    handle, capture, held = handed_to_a_capture()
    assert internals.is_capturing_anywhere()
    capture.finish()
    gi.zeros((N,), device=CUDA).__dlpack__(stream=handle)
    assert not internals.is_capturing_anywhere()
    held.clear()
    driver.destroy_stream(handle)

"""Virtual memory of a device between processes, on the real and on the fake driver."""

import gc
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from doubles.on_fake import FAKE
from helpers.opener import Opener

import gpuinterop as gi

pytestmark = pytest.mark.driver


def numbers():
    x = gi.shared_empty((4, 6), device="cuda")
    x.set(np.arange(24, dtype="float32").reshape(4, 6))
    return x


def test_another_process_opens_the_memory_and_both_see_writes(opener):
    x = numbers()
    with gi.no_copies():
        handle = gi.share(x[1:])
    assert (handle.mechanism, gi.explain(x, "process").shared) == ("vmm", True)
    code = "kept['y'] = y = h.open(); r = type(y).__name__, str(y.device), y.shape, y.strides, y.tolist()"
    assert opener.run(handle, code) == repr(
        ("CudaNdarray", "cuda:0", (3, 6), (24, 4), x[1:].tolist())
    )
    opener.run(handle, "kept['y'][1].fill(9); gi.synchronize()")
    assert x[2].tolist() == [9] * 6
    x[1].fill(8)
    gi.synchronize()
    assert opener.run(handle, "r = kept.pop('y')[0].tolist()") == repr([8.0] * 6)
    assert handle.wait(20)


@pytest.mark.parametrize("dtype", ["int8", "float64", "complex64"])
def test_layouts_arrive_as_they_are(dtype, opener):
    x = gi.shared_empty((3, 5, 4), dtype, device="cuda")
    for view in (x.T, x[::-1, 1:, ::-2], x[1:2].broadcast_to(7, 5, 4), x[2, 4, 3], x[:0]):
        code = "y = h.open(); r = y.shape, y.strides, str(y.dtype), y.readonly"
        expected = view.shape, view.strides, dtype, view.readonly
        found = eval(opener.run(gi.share(view), code))
        assert found == (expected if view.size else (view.shape, found[1], dtype, False))


def test_memory_of_the_default_pool_is_refused_and_copied_on_request(opener):
    x = gi.zeros((4, 6), device="cuda")
    assert gi.explain(x, "process").refused
    with pytest.raises(gi.ExchangeError, match="pool"):
        gi.share(x)
    handle = gi.share(x, copyif=True)
    assert opener.run(handle, "r = h.open().tolist()[0]") == repr([0.0] * 6)


def test_read_only_arrays_are_opened_read_only(opener):
    x = numbers()
    x.readonly = True
    assert opener.run(gi.share(x), "h.open().fill(1)").startswith("ReadOnlyError")


def test_a_handle_opens_twice_and_is_refused_after_its_end(opener):
    x = numbers()
    handle = gi.share(x)
    text = pickle.dumps(handle)
    assert (
        opener.run(text, "kept['a'], kept['b'] = h.open(), h.open(); r = kept['a'].ptr != 0")
        == "True"
    )
    assert handle.openers == 2
    opener.run(text, "del kept['a']")
    del handle, x
    gc.collect()
    assert "released" in opener.run(text, "h.open()")
    assert opener.run(text, "r = kept.pop('b').tolist()[3]") == repr(
        [18.0, 19.0, 20.0, 21.0, 22.0, 23.0]
    )


def test_arrays_of_two_openings_are_seen_to_overlap(opener):
    code = "a, b = h.open(), h.open(); r = gi.shares_memory(a, b[2:]), a.ptr == b.ptr"
    assert opener.run(gi.share(numbers()), code) == repr((True, True))


def test_empty_arrays_need_no_memory(opener):
    handle = gi.share(gi.zeros((0, 3), device="cuda"))
    assert handle.mechanism == "none"
    assert opener.run(handle, "y = h.open(); r = y.shape, str(y.device)") == repr(
        ((0, 3), "cuda:0")
    )


def test_a_process_without_the_gpu_is_told(monkeypatch):
    monkeypatch.setenv("GPUINTEROP_LIBCUDA", "libnone.so")
    other = Opener()
    assert other.run(gi.share(numbers()), "h.open()").startswith("DeviceError")
    other.end()


def test_more_memory_than_the_device_has_is_refused():
    with pytest.raises(MemoryError):
        gi.shared_empty(1 << 50, "uint8", device="cuda")
    assert gi.shared_empty(3, device="cuda").shape == (3,)


def test_sharing_inside_a_capture_is_refused():
    x = numbers()
    with gi.Stream("cuda"), gi.capture() as graph:
        with pytest.raises(gi.CaptureError):
            gi.share(x)
        x.fill(2)
    graph.replay()
    assert x[0].tolist() == [2] * 6


def test_own_memory_is_freed_with_the_last_array():
    x = gi.shared_empty(1 << 20, "uint8", device="cuda")
    view = x[5:]
    del x
    view.fill(3)
    assert view[7:8].tolist() == [3]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(50):
        gi.share(gi.shared_empty(9, device="cuda")).open()
    assert len(os.listdir("/proc/self/fd")) < before + 25  # noqa: PTH208 - the serving thread closes later


def test_openings_and_ends_leave_nothing(opener):
    handle = gi.share(numbers())
    code = """
import gc
def flat():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
h.open()
before = flat()
for i in range(COUNT):
    h.open()
r = before, flat(), gi.devices.memory_stats("cuda")["live_arrays"]
""".replace("COUNT", "1000" if FAKE else "200")
    first, last, arrays = eval(opener.run(handle, code))
    assert (first, arrays) == (last, 0)
    assert handle.wait(20)


def test_a_crash_of_the_opener_frees_what_it_opened():
    other = Opener()
    handle = gi.share(numbers())
    other.run(handle, "kept['y'] = h.open()")
    other.process.send_signal(signal.SIGKILL)
    other.process.wait(30)
    assert handle.wait(30)
    other.process.stdin.close()
    other.process.stdout.close()


OWNER = """
import sys, pickle
import gpuinterop as gi
x = gi.shared_empty(1000, device="cuda")
x.fill(6)
handle = gi.share(x)
print(pickle.dumps(handle).hex(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_open_memory_outlives_its_owner_and_its_handle_does_not(killed):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    text = bytes.fromhex(owner.stdout.readline().decode())
    owner.stdout.close()
    handle = pickle.loads(text)
    y = handle.open()
    if killed:
        owner.kill()
    owner.stdin.close()
    owner.wait(60)
    assert y.tolist() == [6] * 1000
    y.fill(1)
    assert y.tolist() == [1] * 1000
    with pytest.raises(gi.ExchangeError, match="ended"):
        handle.open()

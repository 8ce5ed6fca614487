"""Large copies between pageable memory and a device, which several threads carry out."""

import threading

import numpy as np
import pytest
from doubles import driver
from helpers.threads import in_thread, in_threads

import gpuinterop as gi

pytestmark = pytest.mark.driver

CUDA = "cuda:0"
MiB = 1 << 20
THREADS = "GPUINTEROP_TRANSFER_THREADS"


def random_bytes(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8)


@pytest.mark.parametrize("threads", ["", "0", "1", "2", "3", "8"])
@pytest.mark.parametrize(
    "n",
    [MiB - 1, MiB, MiB + 1, 2 * MiB - 1, 4 * MiB + 1, 9 * MiB + 4097, 37 * MiB + 11],
)
def test_every_byte_arrives(n, threads, monkeypatch):
    monkeypatch.setenv(THREADS, threads)
    host = random_bytes(n, seed=n)
    x = gi.asarray(host, device=CUDA)
    assert np.array_equal(x.get(), host)
    around = np.zeros(n + 2, np.uint8)
    x.get(out=around[1:-1])
    assert np.array_equal(around[1:-1], host)
    assert around[0] == around[-1] == 0


@pytest.mark.parametrize("start", [1, 3, 64, 4095, 65537])
def test_offsets_on_both_sides(start):
    n = 5 * MiB + 3
    host = random_bytes(n + start, seed=start)
    x = gi.zeros((n + 2 * start,), "uint8", device=CUDA)
    x[start : start + n] = host[start:]
    seen = x.get()
    assert np.array_equal(seen[start : start + n], host[start:])
    assert not seen[:start].any()
    assert not seen[start + n :].any()
    assert np.array_equal(x[start : start + n].get(), host[start:])


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "bool", "bfloat16"])
def test_dtypes(dtype):
    pytest.importorskip("ml_dtypes")
    host = random_bytes(3 * MiB) % 2
    x = gi.asarray(host, device=CUDA).astype(dtype)
    assert np.array_equal(x.get(), host)


def test_layouts_that_are_not_contiguous():
    host = random_bytes(3 * MiB).reshape(3, 1024, 1024)
    x = gi.asarray(host.transpose(2, 0, 1)[::-1], device=CUDA)
    assert np.array_equal(x.get(), host.transpose(2, 0, 1)[::-1])
    assert np.array_equal(x.T[:, ::2].get(), host.transpose(2, 0, 1)[::-1].T[:, ::2])
    out = np.zeros((1024, 1024, 6), np.uint8)
    x.transpose(1, 2, 0)[0].get(out=out[:, :, 1][:, :1024])
    assert np.array_equal(out[:, :, 1], host.transpose(2, 0, 1)[::-1].transpose(1, 2, 0)[0])


@pytest.mark.parametrize("place", ["legacy", "per thread", "own", "blocking"])
def test_order_with_work_before_and_after(place):
    stream = {
        "legacy": lambda: gi.devices.legacy_stream(CUDA),
        "per thread": lambda: gi.devices.per_thread_stream(CUDA),
        "own": gi.Stream,
        "blocking": lambda: gi.Stream(blocking=True),
    }[place]()
    n = 3 * MiB
    host = np.arange(n, dtype=np.float32)
    with stream:
        x = gi.zeros((n,), device=CUDA)
        driver.slow(stream.handle, 20_000)
        x[...] = host  # after the fill
        x += 1
        assert np.array_equal(x.get(), host + 1)  # after the addition
        driver.slow(stream.handle, 20_000)
        x.fill(3.0)
        assert x.get().max() == 3.0


def test_upload_to_memory_that_was_used_on_another_stream():
    first, second = gi.Stream(), gi.Stream()
    host = random_bytes(5 * MiB)
    with first:
        x = gi.zeros((host.size,), "uint8", device=CUDA)
        driver.slow(first.handle, 30_000)
        x.fill(7)
    with second:
        x[...] = host
    with first:
        assert np.array_equal(x.get(), host)


def test_many_threads_copy_at_once(monkeypatch):
    monkeypatch.setenv(THREADS, "4")
    barrier = threading.Barrier(8)

    def work(seed):
        barrier.wait()
        rng = np.random.default_rng(seed)
        for _ in range(4):
            host = random_bytes(int(rng.integers(MiB, 12 * MiB)), seed)
            with gi.Stream():
                assert np.array_equal(gi.asarray(host, device=CUDA).get(), host)

    in_threads(work, range(8))


def test_a_copy_that_waits_for_its_stream_leaves_the_threads_to_others():
    """A host function of one stream may wait for a Python thread that copies on another one."""
    slow, other = gi.Stream(), gi.Stream()
    host = random_bytes(20 * MiB)
    with slow:
        x = gi.asarray(host, device=CUDA)
    gate = driver.Gate(slow.handle)
    got = []

    def opener():
        with other:
            got.append(gi.asarray(host, device=CUDA).get())
        gate.open()

    thread = threading.Thread(target=opener)
    with slow:
        threading.Timer(0.05, thread.start).start()
        assert np.array_equal(x.get(), host)
    thread.join(60)
    assert np.array_equal(got[0], host)


def test_a_capture_in_another_thread_goes_on():
    stream = gi.Stream()
    host = random_bytes(9 * MiB)
    x = gi.asarray(host, device=CUDA)
    with stream:
        y = gi.ones((4,), device=CUDA)
        gi.synchronize()
        capture = driver.Capture(stream.handle, driver.Capture.GLOBAL)
        y += 1

        def copy():
            with gi.Stream():
                return gi.asarray(host, device=CUDA).get(), x.get()

        out = in_thread(copy)
        assert capture.end() == 1
        capture.destroy()
    assert all(np.array_equal(found, host) for found in out)


def test_second_device(second_device):
    host = random_bytes(9 * MiB + 5)
    x = gi.asarray(host, device=second_device)
    assert np.array_equal(x.get(), host)
    assert np.array_equal(gi.asarray(host, device=CUDA).get(), host)


@pytest.mark.parametrize("text", ["-1", "65", "two", "1.5", "0x10"])
def test_invalid_number_of_threads(text, monkeypatch):
    x = gi.asarray(np.zeros(MiB, np.uint8), device=CUDA)
    monkeypatch.setenv(THREADS, text)
    with pytest.raises(ValueError, match=THREADS) as caught:
        x.get()
    assert caught.value.got == text
    assert x[1:].get().size == MiB - 1  # left to the driver


@pytest.mark.parametrize("n", [1, 4096, 65536 // 4, 65536 // 4 + 1, 100_000])
def test_small_reads(n):
    s = gi.Stream()
    host = np.random.default_rng(n).random(n, np.float32)
    with s:
        x = gi.asarray(host, device=CUDA)
        driver.slow(s.handle, 5_000)
        x += 1
        assert np.array_equal(x.get(), host + 1)
        assert x.item(n - 1) == float(host[-1] + np.float32(1))
        assert float(x.max()) == float((host + 1).max())
        assert bool((x >= 1).all())

"""Staged copies on a driver that fails, and in processes that are interrupted, fork or end."""

import time

import numpy as np
import pytest
from doubles import fake_driver
from doubles.driver import run
from helpers.threads import in_threads

import gpuinterop as gi
from gpuinterop.errors import CudaError

CUDA = "cuda:0"
MiB = 1 << 20
THREADS = "GPUINTEROP_TRANSFER_THREADS"


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setenv(THREADS, "3")


def random_bytes(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8)


CALLS = ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize",
         "cuStreamSynchronize", "cuCtxSetCurrent"]  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("skip", [0, 1, 2, 5, 11])
def test_failing_call_in_any_piece(name, skip, three_threads):
    host = random_bytes(24 * MiB + 5)
    x = gi.asarray(host, device=CUDA)
    out = np.zeros_like(host)
    failed = 0
    for copy in (lambda: x.__setitem__(Ellipsis, host), lambda: x.get(out=out)):
        fake_driver.clear_log()
        fake_driver.fail(name, 700, skip)
        try:
            copy()
        except CudaError as error:
            failed += 1
            words = str(error), error.where
        fake_driver.fail(name, 0, 0, 0)
    if failed:
        assert name in words[0]
        assert words[1] in ("x[key] = value", "get")
    after = out.copy()
    time.sleep(0.02)
    assert np.array_equal(out, after)  # no thread copies any more
    if skip <= 1 and name != "cuCtxSetCurrent":  # of the helpers, which may have nothing to do
        assert failed
    x[...] = host
    assert np.array_equal(x.get(), host)


def test_an_upload_is_complete_before_the_work_after_it(three_threads):
    x, y = (gi.zeros((4 * MiB,), "uint8", device=CUDA) for _ in range(2))
    gi.synchronize()
    fake_driver.set_delay(3000)  # of each copy on the stream of the pieces
    try:
        for seed in range(3):
            host = random_bytes(4 * MiB, seed)
            x[...] = host
            y[...] = x
            assert np.array_equal(y.get(), host)
    finally:
        fake_driver.set_delay(0)


def test_without_pinned_memory_the_driver_copies(three_threads):
    gi.empty_cache()
    host = random_bytes(9 * MiB)
    for skip in (0, 1):  # no block at all; one of three
        fake_driver.fail("cuMemHostAlloc", 2, skip, 100)
        fake_driver.clear_log()
        x = gi.asarray(host, device=CUDA)
        assert (fake_driver.calls("cuMemcpyHtoDAsync") == 1) == (skip == 0)
        assert np.array_equal(x.get(), host)
        fake_driver.fail("cuMemHostAlloc", 0, 0, 0)
        gi.empty_cache()


def test_pinned_memory_is_not_staged():
    host = gi.pinned_empty((9 * MiB,), "uint8")
    host[:] = random_bytes(host.size)
    fake_driver.clear_log()
    x = gi.asarray(host, device=CUDA)
    assert fake_driver.calls("cuMemcpyHtoDAsync") == 1
    assert np.array_equal(x.get(), host)
    out = gi.pinned_empty((9 * MiB,), "uint8")
    fake_driver.clear_log()
    x.get(out=out)
    assert fake_driver.calls("cuMemcpyDtoHAsync") == 1
    assert np.array_equal(out, host)


def test_pinned_memory_is_bounded(monkeypatch):
    """However many threads copy, and however often: two blocks of 2 MiB for each thread of the pool."""
    monkeypatch.setenv(THREADS, "2")
    gi.empty_cache()
    fake_driver.clear_log()
    host = random_bytes(9 * MiB)

    def work(_):
        for _ in range(3):
            assert np.array_equal(gi.asarray(host, device=CUDA).get(), host)

    in_threads(work, range(6))
    assert 1 <= fake_driver.calls("cuMemHostAlloc") <= 2


def test_a_small_read_uses_pinned_memory_and_survives_its_lack():
    x = gi.asarray(np.arange(100, dtype=np.float32), device=CUDA)
    gi.empty_cache()
    fake_driver.fail("cuMemHostAlloc", 2, 0, 100)
    assert x.item(7) == 7
    fake_driver.fail("cuMemHostAlloc", 0, 0, 0)
    for name in ("cuMemcpyDtoHAsync", "cuStreamSynchronize"):
        fake_driver.fail(name, 700)
        with pytest.raises(CudaError, match=name):
            x.item(7)
    assert x.get().tolist() == list(range(100))


# ---- in a process of their own ------------------------------------------------------------------


def test_interrupt_while_a_copy_waits():
    run(
        """
        import signal, numpy as np, gpuinterop as gi
        from doubles import driver
        host = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8)
        s = gi.Stream("cuda:0")
        with s:
            x = gi.asarray(host, device="cuda:0")
            for copy in (lambda: x.get(), lambda: x.__setitem__(slice(None), host)):
                signal.signal(signal.SIGALRM, signal.default_int_handler)
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                driver.slow(s.handle, 200_000)
                try:
                    copy()
                    for _ in range(10**7): pass
                except KeyboardInterrupt:
                    pass
                else:
                    raise SystemExit("no interrupt")
            assert np.array_equal(x.get(), host)
        """,
        fake_driver.library(),
    )


PROGRAMS = {
    # Only the first copies make events, so this one has a process of its own.
    "an event that cannot be made": """
    import numpy as np, gpuinterop as gi
    from doubles import fake_driver
    from gpuinterop.errors import CudaError
    x = gi.zeros((9 << 20,), "uint8", device="cuda:0")
    fake_driver.fail("cuEventCreate", 2, 1, 100)
    try:
        x.get()
    except gi.OutOfMemoryError as error:
        assert "cuEventCreate" in str(error)
    else:
        raise SystemExit("no error")
    fake_driver.fail("cuEventCreate", 0, 0, 0)
    assert not x.get().any()
    """,
    "fork with helpers": """
    import os, numpy as np, gpuinterop as gi
    host = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8)
    x = gi.asarray(host, device="cuda:0")
    child = os.fork()
    if child == 0:
        try:
            x.get()
        except gi.CudaError:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert np.array_equal(x.get(), host)
    """,
    # The child ends as any process does: it waits for no copy of its parent.
    "fork while copying": """
    import os, sys, threading, time, numpy as np, gpuinterop as gi
    from doubles import fake_driver
    x = gi.zeros((64 << 20,), "uint8", device="cuda:0")
    fake_driver.set_delay(30_000)  # of each of 32 pieces
    thread = threading.Thread(target=x.get)
    thread.start()
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        sys.exit(7)
    begin = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert thread.is_alive() and time.monotonic() - begin < 5
    thread.join()
    """,
    # The child starts threads of its own: it is the first of the two to use CUDA.
    "fork before the first copy": """
    import os, numpy as np, gpuinterop as gi
    host = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8)
    child = os.fork()
    if child == 0:
        os._exit(7 if np.array_equal(gi.asarray(host, device="cuda:0").get(), host) else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_process_of_its_own(name):
    run(PROGRAMS[name], fake_driver.library(), GPUINTEROP_TRANSFER_THREADS="3")


@pytest.mark.parametrize("daemon", [True, False])
def test_exit_while_copying(daemon):
    run(
        f"""
        import threading, time, numpy as np, gpuinterop as gi
        host = np.random.default_rng(0).integers(0, 256, 40 << 20, np.uint8)
        x = gi.asarray(host, device="cuda:0")
        begun = threading.Event()
        def copy():
            for _ in range(10**6 if {daemon} else 5):
                begun.set()
                x.get()
        threading.Thread(target=copy, daemon={daemon}).start()
        begun.wait()
        time.sleep(0.02)
        """,
        fake_driver.library(),
        GPUINTEROP_TRANSFER_THREADS="3",
    )


def test_a_copy_at_exit():
    out = run(
        """
        import atexit, numpy as np
        atexit.register(lambda: print(int(x.get().sum())))
        import gpuinterop as gi
        x = gi.ones((9 << 20,), "uint8", device="cuda:0")
        x.get()
        """,
        fake_driver.library(),
    )
    assert int(out) == 9 << 20

"""What a capture leaves behind: nothing in the thread, no memory, and inputs that can be used at once."""

import gc
import threading

import numpy as np
import pytest
from doubles import driver, fake_driver
from doubles.on_fake import FAKE

import gpuinterop as gi
from gpuinterop.errors import CudaError

CUDA = "cuda:0"
MIB = 1 << 20
MOST = (60 if FAKE else 200) * MIB  # the captures need 320 together


@pytest.fixture
def late_graph_ends():
    """The real driver reports the end of a graph on a thread of its own, some time later."""
    if FAKE:
        fake_driver.keep_user_objects(True)
        fake_driver.set_memory(64 * MIB)
    gi.empty_cache()
    yield
    if FAKE:
        fake_driver.keep_user_objects(False)
        fake_driver.set_memory(1024 * MIB)
    gi.empty_cache()


@pytest.mark.driver
@pytest.mark.parametrize("replays", [0, 1])
def test_dropped_captures_hold_no_memory(late_graph_ends, replays):
    x = gi.ones(MIB, "float32", device=CUDA)
    before = peak = gi.memory_stats(CUDA)["pool_bytes"]
    for _ in range(40):
        graph = gi.capture(lambda a: a * 2 + 1, x)
        for _ in range(replays):
            graph.replay()
        gi.synchronize()
        del graph
        peak = max(peak, gi.memory_stats(CUDA)["pool_bytes"])
    assert peak - before < MOST
    assert x[-1].item() == 1


@pytest.mark.driver
@pytest.mark.parametrize("outlives", ["capture", "result"])
def test_memory_of_captures_dropped_during_their_replay_serves_the_next_captures(outlives):
    x = gi.ones(MIB, "float32", device=CUDA)
    gi.empty_cache()
    before = peak = gi.memory_stats(CUDA)["pool_bytes"]
    for _ in range(40):
        with gi.capture(device=CUDA) as graph:
            result = x + 1
        if FAKE:
            driver.slow(driver.LEGACY, 2000)
        graph.replay()
        if outlives == "result":
            del graph
            del result
        else:
            del result
            del graph
        peak = max(peak, gi.memory_stats(CUDA)["pool_bytes"])
    assert peak - before < (24 if FAKE else 100) * MIB


@pytest.mark.fake_driver
@pytest.mark.parametrize("captures", [False, True])
def test_memory_of_a_dropped_capture_returns_after_its_running_replay(late_graph_ends, captures):
    x = gi.ones(2 * MIB, device=CUDA)
    graph = gi.capture(lambda a: (a * 2 + 1).sum(), x)
    driver.slow(driver.LEGACY, 300_000)
    graph.replay()
    del graph  # its memory, 16 of 64 MiB, is in use until the replay has ended
    if captures:
        with gi.capture(device=CUDA):
            large = gi.empty(12 * MIB, device=CUDA)
    else:
        large = gi.empty(12 * MIB, device=CUDA)
    assert large.nbytes == 48 * MIB


@pytest.mark.driver
def test_a_capture_left_by_an_error_holds_no_memory(late_graph_ends):
    x = gi.ones(MIB, "float32", device=CUDA)
    kept, before = [], gi.memory_stats(CUDA)["pool_bytes"]
    for _ in range(40):
        kept.append(gi.capture(device=CUDA))
        with pytest.raises(ZeroDivisionError), kept[-1]:
            _ = x + 1
            raise ZeroDivisionError
        gi.synchronize()
    assert gi.memory_stats(CUDA)["pool_bytes"] - before < MOST


@pytest.mark.driver
def test_memory_of_an_inner_capture_stays_with_the_outer_one(late_graph_ends):
    x = gi.ones(1000, device=CUDA)
    inner = gi.capture(lambda a: gi.exp(a * 2) + 1, x)
    with gi.capture(device=CUDA) as outer:
        inner.replay()
        result = inner.outputs * 2
    del inner
    gc.collect()
    others = [gi.full(1000, -1, device=CUDA) for _ in range(8)]
    outer.replay()
    np.testing.assert_allclose(np.asarray(result), 2 * (np.exp(2) + 1), rtol=1e-6)
    assert all(float(other.min()) == -1 for other in others)


@pytest.mark.fake_driver
def test_only_a_copy_in_another_graph_needs_the_drivers_report_of_its_end():
    x, reports = gi.ones(1000, device=CUDA), fake_driver.calls("cuUserObjectCreate")
    inner = gi.capture(lambda a: gi.exp(a * 2) + 1, x)
    inner.replay()
    assert fake_driver.calls("cuUserObjectCreate") == reports
    fake_driver.fail("cuGraphRetainUserObject", 999)
    with pytest.raises(CudaError):
        gi.capture(lambda: inner.replay(), device=CUDA)
    others = [gi.full(1000, -1, device=CUDA) for _ in range(8)]
    outer = gi.capture(lambda: inner.replay(), device=CUDA)
    assert fake_driver.calls("cuUserObjectCreate") == reports + 2
    for graph in (inner, outer):
        graph.replay()
        assert inner.outputs[0].item() == pytest.approx(np.exp(2) + 1)
    assert all(float(other.min()) == -1 for other in others)


@pytest.mark.driver
@pytest.mark.parametrize("ends", [True, False])
def test_inputs_can_be_read_while_another_thread_captures(ends):
    x = gi.ones(100, device=CUDA)
    if ends:
        graph = gi.capture(lambda a: a + 1, x)
    else:
        with pytest.raises(ZeroDivisionError), gi.capture(device=CUDA):
            _ = x + 1
            raise ZeroDivisionError
    began, read = threading.Event(), threading.Event()

    def capture():
        with gi.capture(device=CUDA):
            began.set()
            read.wait(20)

    thread = threading.Thread(target=capture)
    thread.start()
    assert began.wait(20)
    try:
        y = x + 1
        value = np.asarray(x)[0]
    finally:
        read.set()
        thread.join()
    assert value == 1
    assert float(y[0]) == 2
    if ends:
        assert graph()[0].item() == 2


@pytest.mark.fake_driver
@pytest.mark.parametrize(
    "call", ["cuCtxGetId", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_a_failed_end_ends_the_capture(call):
    x = gi.ones(100, device=CUDA)
    with (
        pytest.raises(CudaError, match=r"cuStreamEnd|cuGraphInst"),
        gi.capture(device=CUDA) as graph,
    ):
        y = x + 1
        fake_driver.fail(call, 999)
    del y
    assert gi.devices.current_stream(CUDA).handle == 1
    gi.synchronize()
    assert float((x + 1)[0]) == 2
    assert gi.capture(lambda a: a + 1, x)()[0].item() == 2
    with pytest.raises(gi.CaptureError):
        graph.replay()

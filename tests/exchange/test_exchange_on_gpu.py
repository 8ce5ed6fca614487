"""Exchange on a real GPU with torch and CuPy: memory is shared, and a running producer is waited for."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core

pytestmark = pytest.mark.gpu
# 10,000 hand-overs are the promise; GPUINTEROP_HANDOVERS shortens a first look.
HANDOVERS = int(os.environ.get("GPUINTEROP_HANDOVERS", "10000"))
SLOW = 1 << 22  # elements: its fill is still running when the hand-over is made


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.mark.torch
def test_torch_shares_both_ways(torch):
    t = torch.arange(24, dtype=torch.float32, device="cuda").reshape(4, 6)
    for view in (t, t.T, t[1:, ::2], t[4:], t[1, 2]):
        x = gi.from_dlpack(view)
        assert x.ptr == view.data_ptr()
        np.testing.assert_array_equal(np.asarray(x.copy()), view.cpu().numpy())
        back = _core.export_via(x, torch.Tensor)
        assert back.data_ptr() == view.data_ptr()
        assert back.device == t.device
    with pytest.raises(gi.ContiguityError):
        torch.from_dlpack(gi.from_dlpack(t)[::-1])


@pytest.mark.cupy
def test_cupy_shares_both_ways(cupy):
    c = cupy.arange(24, dtype="float32").reshape(4, 6)
    for view in (c, c.T, c[1:, ::2], c[::-1], c[4:]):
        x = gi.from_dlpack(view)
        assert x.ptr == (view.data.ptr if view.size else 0)
        for back in (cupy.from_dlpack(x), cupy.asarray(x)):
            assert back.data.ptr == x.ptr
            np.testing.assert_array_equal(back.get(), view.get())


@pytest.mark.torch
def test_a_running_torch_stream_is_seen_complete(torch):
    side, ours = torch.cuda.Stream(), gi.Stream("cuda:0")
    t = torch.zeros(SLOW, device="cuda")
    for i in range(HANDOVERS):
        with torch.cuda.stream(side):
            t.fill_(i)
            with ours:
                last = gi.from_dlpack(t)[-1:].copy()
        with ours:
            assert float(last) == i


@pytest.mark.torch
def test_torch_sees_our_running_stream_complete(torch):
    side, ours = torch.cuda.Stream(), gi.Stream("cuda:0")
    x = gi.zeros(SLOW, device="cuda:0")
    for i in range(HANDOVERS):
        with ours:
            x.fill(i)
        with torch.cuda.stream(side):
            assert _core.export_via(x, torch.Tensor)[-1].item() == i


@pytest.mark.cupy
def test_a_running_cupy_stream_is_seen_complete(cupy):
    side, ours = cupy.cuda.Stream(non_blocking=True), gi.Stream("cuda:0")
    c = cupy.zeros(SLOW, "float32")
    for i in range(HANDOVERS):
        with side:
            c.fill(i)
            with ours:
                last = gi.from_dlpack(c)[-1:].copy()
        with ours:
            assert float(last) == i


@pytest.mark.cupy
def test_cupy_sees_our_running_stream_complete(cupy):
    side, ours = cupy.cuda.Stream(non_blocking=True), gi.Stream("cuda:0")
    x = gi.zeros(SLOW, device="cuda:0")
    for i in range(HANDOVERS):
        with ours:
            x.fill(i)
        with side:
            assert float(cupy.from_dlpack(x)[-1]) == i


def in_a_fresh_thread(work):
    """Run `work` in a thread that has no context; return the contexts before and after each step."""
    driver, seen = ctypes.CDLL("libcuda.so.1"), []

    def current():
        context = ctypes.c_void_p()
        assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    def run():
        seen.append(("start", current()))
        for name, step in work:
            kept = step()
            seen.append((name, current()))
            del kept
            seen.append((f"{name}, dropped", current()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(seen) == 1 + 2 * len(work)  # else a step has raised, and pytest shows what
    return seen


@pytest.mark.torch
def test_torch_conversions_leave_no_context_behind(torch):
    t, x = torch.zeros(3, 4, device="cuda"), gi.zeros((3, 4), device="cuda")
    work = [
        ("from torch", lambda: gi.from_dlpack(t)),
        ("from_any", lambda: gi.from_any(t)),
        ("asarray", lambda: gi.asarray(t)),
        ("to torch", lambda: gi.to(x, "torch")),
        ("our capsule", lambda: x.__dlpack__()),
        ("a copy", lambda: x.copy()),
    ]
    assert [step for step in in_a_fresh_thread(work) if step[1] is not None] == []


@pytest.mark.cupy
def test_cupy_conversions_leave_no_context_behind(cupy):
    c, x = cupy.zeros((3, 4), dtype="float32"), gi.zeros((3, 4), device="cuda")
    work = [
        ("from CuPy", lambda: gi.from_dlpack(c)),
        ("from_any", lambda: gi.from_any(c)),
        ("to CuPy", lambda: gi.to(x, "cupy")),
    ]
    assert [step for step in in_a_fresh_thread(work) if step[1] is not None] == []


@pytest.mark.cupy
def test_an_ordinary_cupy_array_is_read_without_its_dlpack(cupy):
    c = cupy.arange(24, dtype="float32").reshape(4, 6)
    for view in (c, c.T, c[::-1], c[4:]):
        x = _core.share_plain(view)
        assert (type(x), x.shape, x.base) == (gi.CudaNdarray, view.shape, view)
        np.testing.assert_array_equal(np.asarray(x), view.get())
    side = cupy.cuda.Stream(non_blocking=True)
    with side:  # whose order only the capsule keeps
        assert _core.share_plain(c) is None
        np.testing.assert_array_equal(np.asarray(gi.from_any(c)), c.get())

"""Exchange on a real GPU with torch and CuPy: memory is shared, and a running producer is waited for."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from doubles import driver, internals

import gpuinterop as gi

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
        back = gi.to(x, "torch")
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


@pytest.fixture(params=[pytest.param(n, marks=getattr(pytest.mark, n)) for n in ("torch", "cupy")])
def running(request):
    """A large array of another library, a stream of it to be current, and how it takes an array."""
    if request.param == "cupy":
        cupy = pytest.importorskip("cupy")
        return cupy.zeros(SLOW, "float32"), cupy.cuda.Stream(non_blocking=True), cupy.from_dlpack
    torch = pytest.importorskip("torch")
    side = torch.cuda.stream(torch.cuda.Stream())
    return torch.zeros(SLOW, device="cuda"), side, lambda x: gi.to(x, "torch")


def test_running_stream_of_another_library_is_seen_complete(running):
    (array, side, _), own_stream = running, gi.Stream("cuda:0")
    fill = getattr(array, "fill_", None) or array.fill
    for i in range(HANDOVERS):
        with side:
            fill(i)
            with own_stream:
                last = gi.from_dlpack(array)[-1:].copy()
        with own_stream:
            assert float(last) == i


def test_running_stream_of_gpuinterop_is_seen_complete(running):
    (_, side, take), own_stream = running, gi.Stream("cuda:0")
    x = gi.zeros(SLOW, device="cuda:0")
    for i in range(HANDOVERS):
        with own_stream:
            x.fill(i)
        with side:
            assert float(take(x)[-1]) == i


@pytest.mark.torch
@pytest.mark.cupy
def test_conversions_leave_no_context_behind(torch, cupy):
    t, c = torch.zeros(3, 4, device="cuda"), cupy.zeros((3, 4), dtype="float32")
    x, seen = gi.zeros((3, 4), device="cuda"), []
    steps = {
        "from torch": lambda: gi.from_dlpack(t),
        "from_any": lambda: gi.from_any(t),
        "asarray": lambda: gi.asarray(t),
        "to torch": lambda: gi.to(x, "torch"),
        "a capsule": lambda: x.__dlpack__(),
        "a copy": lambda: x.copy(),
        "from CuPy": lambda: gi.from_dlpack(c),
        "to CuPy": lambda: gi.to(x, "cupy"),
    }

    def run():  # in a thread that has no context
        for name, step in steps.items():
            kept = step()
            seen.append((name, driver.current_context()))
            del kept
            seen.append((name, driver.current_context()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(name, None) for name in steps for _ in range(2)]


@pytest.mark.cupy
def test_an_ordinary_cupy_array_is_read_without_its_dlpack(cupy):
    c = cupy.arange(24, dtype="float32").reshape(4, 6)
    for view in (c, c.T, c[::-1], c[4:]):
        x = internals.share_plain(view)
        assert (type(x), x.shape, x.base) == (gi.CudaNdarray, view.shape, view)
        np.testing.assert_array_equal(np.asarray(x), view.get())
    side = cupy.cuda.Stream(non_blocking=True)
    with side:  # whose order only the capsule keeps
        assert internals.share_plain(c) is None
        np.testing.assert_array_equal(np.asarray(gi.from_any(c)), c.get())

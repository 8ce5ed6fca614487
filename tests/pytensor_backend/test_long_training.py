"""A hundred thousand steps of a training loop keep no memory and drift no further than float32 does."""

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from helpers.process_memory import resident_bytes

import gpuinterop as gi

STEPS, WARM_UP, RATE = 100_000, 2_000, np.float32(0.01)


def trained_by_numpy(x, y, w, b, steps):
    """The weights in float64."""
    x, y, w = (a.astype("float64") for a in (x, y, w))
    for _ in range(steps):
        error = 1 / (1 + np.exp(-(x @ w + b))) - y
        w, b = w - RATE * (x.T @ error / len(y) + 0.02 * w), b - RATE * error.mean()
    return w, b


@pytest.mark.slow
def test_hundred_thousand_steps_keep_no_memory(on_device):
    rng = np.random.default_rng(7)
    host_x = rng.standard_normal((40, 12)).astype("float32")
    host_y = rng.integers(0, 2, 40).astype("float32")
    x, y, w = (pytensor.shared(value) for value in (host_x, host_y, np.zeros(12, "float32")))
    b = pytensor.shared(np.asarray(0, "float32"))
    p = 1 / (1 + pt.exp(-pt.dot(x, w) - b))
    cost = (-y * pt.log(p) - (1 - y) * pt.log(1 - p)).mean() + np.float32(0.01) * (w**2).sum()
    updates = [(v, v - RATE * g) for v, g in zip((w, b), pytensor.grad(cost, [w, b]), strict=True)]
    step = pytensor.function([], cost, updates=updates)

    first = float(step())
    for _ in range(WARM_UP):
        step()
    device = gi.device(on_device)
    before, resident = gi.memory_stats(device), resident_bytes()
    for _ in range(STEPS - WARM_UP - 1):
        last = step()
    after = gi.memory_stats(device)
    assert {k: after[k] for k in ("live_bytes", "live_buffers", "live_arrays")} == {
        k: before[k] for k in ("live_bytes", "live_buffers", "live_arrays")
    }
    assert after["pool_bytes"] <= before["pool_bytes"]
    assert resident_bytes() - resident < 4 << 20
    assert float(last) < first
    expected_w, expected_b = trained_by_numpy(host_x, host_y, np.zeros(12), 0.0, STEPS)
    np.testing.assert_allclose(w.get_value(), expected_w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b.get_value(), expected_b, rtol=1e-4, atol=1e-5)

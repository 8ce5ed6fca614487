"""Rows that are not aligned, reduced along either axis. NumPy is the oracle; nothing else is written."""

import numpy as np
import pytest
from doubles.on_fake import FAKE

import gpuinterop as gi

SHAPES = [(2, 3), (7, 67), (300, 33), (1100, 129), (3, 5, 35), (3, 5001)]
DTYPES = ["int8", "float16", "float32", "float64", "complex64"]


# On the fake driver each dtype and each shape costs compilations.
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(d, s) for d in DTYPES for s in SHAPES if not FAKE or d == "float16" or s == (3, 5, 35)],
)
def test_reductions_over_each_axis(device, dtype, shape):
    host = (np.arange(int(np.prod(shape))) % 91 - 45).reshape(shape).astype(dtype)
    x = gi.GpuArray(host, device=device)
    for view in (lambda a: a, lambda a: a[1:, ..., 1:], lambda a: a[..., ::-1]):
        h, g = view(host), view(x)
        for axis in {0, h.ndim - 2, h.ndim - 1}:
            np.testing.assert_allclose(
                g.sum(axis=axis).get(),
                h.sum(axis=axis, dtype=np.result_type(dtype, "f8")),
                rtol=1e-3,
            )
            if not np.iscomplexobj(host):
                np.testing.assert_array_equal(g.max(axis=axis).get(), h.max(axis=axis))
                np.testing.assert_array_equal(g.argmin(axis=axis).get(), h.argmin(axis=axis))


@pytest.mark.parametrize("shape", SHAPES)
def test_results_land_in_their_place_and_nowhere_else(device, shape):
    host = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    x = gi.asarray(host, device=device)
    kept = shape[1:]
    n = int(np.prod(kept))
    canvas, expected = gi.zeros(n + 20, device=device), np.zeros(n + 20, np.float32)
    x.max(axis=0, out=canvas[9 : 9 + n].reshape(kept))
    host.max(axis=0, out=expected[9 : 9 + n].reshape(kept))
    np.testing.assert_array_equal(canvas.get(), expected)


def test_sums_with_a_row_of_weights(device):
    host = np.arange(1100 * 129, dtype=np.float32).reshape(1100, 129) % 17
    weights = np.arange(1100, dtype=np.float32) % 5
    x, w = gi.asarray(host, device=device), gi.asarray(weights, device=device)
    np.testing.assert_allclose((w @ x).get(), weights.astype("f8") @ host, rtol=1e-6)
    total = gi.fuse(lambda x, w: (x * w).sum(axis=0))(x, w[:, None])
    np.testing.assert_allclose(total.get(), weights.astype("f8") @ host, rtol=1e-6)


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_a_long_vector_from_an_odd_start(device, dtype, start):
    """Several blocks share it; each begins at an aligned element of its own."""
    host = (np.arange(300_007) % 7 - 3).astype(dtype)
    host[200_001] = 5
    x = gi.GpuArray(host, device=device)[start:]
    assert int(x.argmax()) == 200_001 - start
    assert float(x.sum(dtype="float32")) == host[start:].astype("f8").sum()


@pytest.mark.parametrize(
    ("dtype", "short"),  # rows of 2 to 128 bytes, whose number of elements is a power of two or not
    [
        ("int8", 2),
        ("int8", 16),
        ("float32", 3),
        ("float32", 8),
        ("complex64", 2),
        ("complex64", 16),
    ],
)
def test_many_short_rows_and_columns(device, dtype, short):
    """So many that a thread reduces several of them, and the last threads fewer."""
    n = 70_001 if FAKE or device == "cpu" else 1_100_001
    host = np.random.default_rng(3).integers(-9, 10, (n, short + 3)).astype(dtype)
    x = gi.GpuArray(host, device=device)
    across = gi.GpuArray(np.ascontiguousarray(host.T), device=device).T
    for place in (slice(1, 1 + short), slice(short, 0, -1)):
        h = host[:, place]
        for g in (x[:, place], x[:, place].copy(order="C"), across[:, place]):
            np.testing.assert_array_equal(g.sum(axis=1).get(), h.sum(axis=1))
            if dtype != "complex64":
                np.testing.assert_array_equal(g.argmin(axis=1).get(), h.argmin(axis=1))
            np.testing.assert_allclose(g.std(axis=1).get(), h.astype("c16").std(axis=1), 1e-3, 1e-7)

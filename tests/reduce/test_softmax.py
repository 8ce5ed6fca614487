"""softmax and its logarithm along the last axis: against float64, and one launch a call on a GPU."""

import numpy as np
import pytest

import gpuinterop as gi

ROUNDING = {"float16": 8e-3, "float32": 2e-6, "float64": 1e-14}


def expected(host: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = host.astype("float64")
    distance = wide - wide.max(-1, keepdims=True)
    total = np.exp(distance).sum(-1, keepdims=True)
    return np.exp(distance) / total, distance - np.log(total)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n", [1, 3, 31, 33, 200, 512, 1024, 4096, 5000, 9000])
def test_rows_of_any_length(device: str, n: int, dtype: str) -> None:
    rows = np.random.default_rng(n).standard_normal((2, 3, n)).astype(dtype) * 9
    x, close = gi.GpuArray(rows, device=device), ROUNDING[dtype]
    values, logarithms = expected(rows)
    found = gi.softmax(x)
    assert type(found) is gi.GpuArray
    assert found.dtype == dtype
    np.testing.assert_allclose(found.get(), values, rtol=close, atol=1e-6)
    np.testing.assert_allclose(gi.log_softmax(x).get(), logarithms, rtol=close, atol=2 * close)
    np.testing.assert_allclose(gi.softmax(x[:, ::2]).get(), values[:, ::2], rtol=close, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_infinities_and_nan(device: str) -> None:
    inf, nan = np.inf, np.nan
    rows = np.array(
        [[1, nan, 2, 3], [1, inf, 2, 3], [-inf] * 4, [-inf, 1, -inf, 2], [0, -1e30, 0, 1e30]],
        "float32",
    )
    x = gi.asarray(rows, device=device)
    for found, wanted in zip((gi.softmax(x), gi.log_softmax(x)), expected(rows), strict=True):
        assert type(found) is gi.CudaNdarray
        np.testing.assert_allclose(found.get(), wanted, rtol=1e-6)


def test_many_short_rows(device: str) -> None:
    rows = np.random.default_rng(0).standard_normal((5000, 10)).astype("float32")
    found = gi.softmax(gi.asarray(rows, device=device))
    np.testing.assert_allclose(found.get(), expected(rows)[0], rtol=1e-5)


@pytest.mark.parametrize("shape", [(8, 8), (700, 30), (1, 4096), (3, 2, 17), (17,)])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_rows_on_the_host_round_as_the_operations(shape: tuple[int, ...], dtype: str) -> None:
    rows = (np.random.default_rng(1).standard_normal(shape) * 5).astype(dtype)
    x = gi.GpuArray(rows, device="cpu")
    distance = x - x.max(-1, keepdims=True)
    e = gi.exp(distance)
    total = e.sum(-1, keepdims=True)
    np.testing.assert_array_equal(gi.softmax(x).get(), (e / total).get())
    np.testing.assert_array_equal(gi.log_softmax(x).get(), (distance - gi.log(total)).get())


def test_rows_in_a_capture(device: str) -> None:
    x = gi.asarray(np.arange(32).reshape(2, 16), device=device)
    gi.softmax(x)
    captured = gi.capture(gi.softmax, x)
    x[...] = 1
    np.testing.assert_allclose(captured().get(), np.full((2, 16), 1 / 16), rtol=1e-6)


@pytest.mark.driver
def test_one_launch_that_replays(device: str) -> None:
    x = gi.asarray([[1, 2, 3]], device=device)
    gi.log_softmax(x)
    captured = gi.capture(gi.log_softmax, x)
    assert captured.nodes == 1
    x[...] = gi.asarray([[4, 4, 4]], device=device)
    np.testing.assert_allclose(captured().get(), [[np.log(1 / 3)] * 3], rtol=1e-6)

"""Beyond 32-bit indices, on a real GPU."""

import numpy as np
import pytest

import gpuinterop as gi

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _memory_given_back():
    """Gigabytes in the memory pool would be missing in tests that run later or in parallel."""
    yield
    gi.synchronize("cuda:0")
    gi.empty_cache("cuda:0")


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**31 + 17])
def test_flat(size):
    x = gi.empty(size, "int8", device="cuda:0")
    x.fill(3)
    gi.add(x, x, out=x)
    for at in (0, 1, size // 2, size - 2, size - 1):
        assert x[at].item() == 6


def test_rows_and_tiles():
    rows, columns = 70_000, 40_000
    x = gi.empty((rows, columns), "int8", device="cuda:0")
    x.fill(1)
    x[rows - 1] = gi.asarray(np.arange(columns).astype("int8"), device="cuda:0")
    out = gi.empty((columns, rows), "int8", device="cuda:0")
    out[...] = x.T
    np.testing.assert_array_equal(out[:, rows - 1].get(), np.arange(columns).astype("int8"))
    assert out[columns - 1, 0].item() == 1
    x[:, ::2] += gi.asarray(np.ones(columns // 2, "int8"), device="cuda:0")
    assert x[rows - 2, columns - 2].item() == 2
    assert x[rows - 2, columns - 1].item() == 1

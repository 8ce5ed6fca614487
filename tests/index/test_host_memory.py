"""On "cpu" indexing needs no second array of the size of its operands or result: NumPy's functions often do."""

import tracemalloc

import numpy as np
import pytest

import gpuinterop as gi

ROWS = 1 << 13  # of 64 float64: 4 MiB
RANDOM = np.random.default_rng(0)


def on_host(host):
    return gi.GpuArray(host, device="cpu")


X = on_host(RANDOM.standard_normal((ROWS, 64)))
PLACES, COLUMNS = on_host(RANDOM.integers(0, ROWS, ROWS)), on_host(RANDOM.integers(0, 64, ROWS))
MASK = on_host(RANDOM.random((ROWS, 64)) < 0.5)
VALUES = X[MASK]
ORDER = on_host(RANDOM.integers(0, 64, (ROWS, 64)))
CASES = {
    "rows": lambda: X[PLACES],
    "columns of a transpose": lambda: X.T[:, PLACES],
    "columns": lambda: X[:, COLUMNS[:64]],
    "several arrays": lambda: X[PLACES, COLUMNS],
    "clip": lambda: X.take(COLUMNS, axis=1, mode="clip"),
    "mask": lambda: X[MASK],
    "transposed mask": lambda: X.T[MASK.T],
    "assignment": lambda: X.__setitem__(PLACES, X[0]),
    "assignment by a mask": lambda: X.__setitem__(MASK, VALUES),
    "filling by a mask": lambda: X.__setitem__(MASK, 0),
    "along an axis": lambda: gi.take_along_axis(X, ORDER, 1),
    "along the longest axis": lambda: gi.take_along_axis(X, PLACES[:, None], 0),
    "nonzero": lambda: gi.nonzero(MASK),
}


@pytest.mark.parametrize("name", CASES)
def test_temporary_memory_is_bounded(name):
    call = CASES[name]
    call()
    tracemalloc.start()
    try:
        call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The size of a few index arrays, which NumPy may cast; results are not traced.
    assert peak < 256 << 10

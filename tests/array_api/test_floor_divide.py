"""floor_divide of the namespace has the standard's values for infinite operands, the operator NumPy's."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import array_api as xp

INF, NAN = np.inf, np.nan
# x1, x2 and the quotient: the special cases of the standard that NumPy does not keep, and some that it does.
CASES = [
    (INF, 2.0, INF), (INF, -2.0, -INF), (-INF, 2.0, -INF), (-INF, -2.0, INF),
    (2.0, INF, 0.0), (2.0, -INF, -0.0), (-2.0, INF, -0.0), (-2.0, -INF, 0.0),
    (INF, INF, NAN), (-INF, INF, NAN), (INF, NAN, NAN), (NAN, INF, NAN),
    (0.0, INF, 0.0), (-0.0, INF, -0.0), (0.0, -INF, -0.0), (-0.0, -INF, 0.0),
    (INF, 0.0, INF), (INF, -0.0, -INF), (-INF, 0.0, -INF), (-INF, -0.0, INF),
    (0.0, 0.0, NAN), (-0.0, -0.0, NAN), (2.0, 0.0, INF), (-2.0, 0.0, -INF), (2.0, -0.0, -INF),
    (7.0, 2.0, 3.0), (-7.0, 2.0, -4.0), (7.0, -2.0, -4.0), (0.0, -3.0, -0.0), (-0.0, 3.0, -0.0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_cases(device, dtype):
    x, y, expected = (np.array(column, dtype) for column in zip(*CASES, strict=True))
    a, b = (gi.GpuArray(v, device=device) for v in (x, y))
    got = xp.floor_divide(a, b).get()
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(expected)[known])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((a // b).get(), x // y)


@pytest.mark.parametrize(("number", "expected"), [(INF, [0.0, -0.0]), (2.0, [1.0, -1.0])])
def test_numbers(device, number, expected):
    x = xp.asarray([2.0, -2.0], device=device)
    np.testing.assert_array_equal(xp.floor_divide(x, number).get(), expected)


def test_integers_and_cudandarrays(device):
    x = xp.asarray([7, -7, 7], device=device)
    assert xp.floor_divide(x, xp.asarray([2, 2, 0], device=device)).tolist() == [3, -4, 0]
    narrow = gi.CudaNdarray([INF, 5.0], device)
    found = xp.floor_divide(narrow, 2)
    assert type(found) is gi.GpuArray
    assert found.tolist() == [INF, 2.0]

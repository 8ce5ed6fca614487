"""floor_divide and tanh of the namespace have the standard's values at infinities, operators and gi.tanh NumPy's."""

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
def test_floor_divide_of_special_cases(device, dtype):
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


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_tanh_of_infinities_has_a_zero_of_the_sign_of_the_imaginary_part(device, dtype):
    parts = [-INF, -4.0, -2.0, -0.0, 0.0, 1.0, 2.0, INF, NAN]
    host = np.array([complex(a, b) for a in parts for b in parts], dtype)
    x = gi.GpuArray(host, device=device)
    with np.errstate(all="ignore"):
        got, expected = xp.tanh(x).get(), np.tanh(host)
    assert got.dtype == dtype
    infinite = np.isinf(host.real)
    np.testing.assert_array_equal(got[infinite].real, np.sign(host[infinite].real))
    np.testing.assert_array_equal(got[infinite].imag, 0)
    ends = infinite & ~np.isnan(host)
    np.testing.assert_array_equal(np.signbit(got.imag)[ends], np.signbit(host.imag)[ends])
    np.testing.assert_array_equal(got[~infinite], gi.tanh(x).get()[~infinite])
    finite = np.isfinite(host)
    np.testing.assert_allclose(got[finite], expected[finite], 1e-5)
    assert xp.tanh(gi.CudaNdarray([0.0, INF], device)).tolist() == [0, 1]

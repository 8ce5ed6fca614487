"""Polynomials: products and roots, compared with NumPy's."""

import numpy as np
import pytest

import gpuinterop as gi


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(1, 1), (5, 3), (3, 5), (4, 4), (1, 6)])
@pytest.mark.parametrize(
    "dtypes", ["float64 float64", "float32 float64", "int8 int8", "complex64 float32", "bool bool"]
)
def test_convolve(device, dtypes, sizes, mode):
    rng = np.random.default_rng(0)
    a, v = (rng.integers(-9, 9, n).astype(d) for n, d in zip(sizes, dtypes.split(), strict=True))
    x, y = gi.GpuArray(a, device=device), gi.GpuArray(v[::-1].copy(), device=device)
    found = np.convolve(x, y[::-1], mode)
    assert str(found.device) == device
    np.testing.assert_array_equal(found.get(), np.convolve(a, v, mode), strict=True)


def test_products_of_wide_range_keep_their_small_coefficients(device):
    a, v = np.array([1.0, 9e17]), np.array([1.0, 3e10, 1.0])
    found = np.convolve(gi.array(a, device=device), gi.array(v, device=device))
    np.testing.assert_allclose(found.get(), np.convolve(a, v), rtol=1e-15)


def test_products_of_float16_are_rounded_once(device):
    a, v = np.random.default_rng(0).integers(-100, 100, (2, 40)).astype("float16")
    found = np.convolve(gi.array(a, device=device), gi.array(v[:3], device=device))
    expected = np.convolve(a.astype("float64"), v[:3].astype("float64"))
    np.testing.assert_array_equal(found.get(), expected.astype("float16"), strict=True)


def test_a_list_beside_an_array(device):
    x = gi.ones(2, "float64", device=device)
    assert np.convolve(x, [1.0, 2.0]).tolist() == np.convolve([1.0, 2.0], x).tolist() == [1, 3, 2]


CASES = [
    [1.0, -6, 11, -6],
    [0, 0, 2, -4, 0, 0],
    [1, 0, 1],
    [3],
    [0, 0],
    [5, 1],
    [1j, 2, 3],
    [2, 0, 0],
]


@pytest.mark.parametrize("p", CASES)
@pytest.mark.parametrize("single", [False, True])
def test_roots(device, p, single):
    host = np.asarray(p)
    if single:
        host = host.astype("complex64" if host.dtype.kind == "c" else "float32")
    found, expected = np.roots(gi.array(host, device=device)).get(), np.roots(host)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    order = np.sort_complex
    np.testing.assert_allclose(
        order(found), order(expected), rtol=2e-3 if single else 1e-9, atol=1e-5
    )

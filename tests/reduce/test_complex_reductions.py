"""Reductions of complex numbers: NumPy's order, real variances; and axes without elements."""

import numpy as np
import pytest

import gpuinterop as gi

# Each pair is a kernel of its own.
PLACES = [("complex64", None), ("complex64", 0), ("complex64", (0, 2)), ("complex128", 2)]


def values(dtype: str, shape: tuple[int, ...] = (5, 7, 6)) -> np.ndarray:
    """Few different real parts, so that the imaginary ones decide."""
    rng = np.random.default_rng(8)
    return (rng.integers(-3, 3, shape) + 1j * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize(("dtype", "axis"), PLACES, ids=str)
@pytest.mark.parametrize("name", ["var", "std"])
def test_variance_is_real(device: str, name: str, axis: object, dtype: str) -> None:
    host = values(dtype) + (1000 - 2000j)  # far from zero
    host = host.astype(dtype)
    x = gi.GpuArray(host, device=device)
    got = getattr(x[::-1, ::2], name)(axis, ddof=1)
    exact = host[::-1, ::2].astype(np.complex128)
    assert got.dtype == getattr(np, name)(host[:1]).dtype
    tolerance = 2e-6 if dtype == "complex64" else 1e-12
    np.testing.assert_allclose(got.get(), getattr(np, name)(exact, axis=axis, ddof=1), tolerance)


@pytest.mark.parametrize(("dtype", "axis"), PLACES, ids=str)
@pytest.mark.parametrize("name", ["min", "max", "argmin", "argmax"])
def test_order_is_real_part_first(device: str, name: str, axis: object, dtype: str) -> None:
    if name.startswith("arg") and isinstance(axis, tuple):
        axis = 2
    host = values(dtype)
    host[3, 2, 1] = host[1, 2, 1]  # equals: the first is found
    got = getattr(gi.GpuArray(host, device=device), name)(axis)
    np.testing.assert_array_equal(got.get(), getattr(np, name)(host, axis=axis))


@pytest.mark.parametrize("part", [complex(np.nan, 1), complex(1, np.nan)])
def test_a_nan_in_either_part_wins(device: str, part: complex) -> None:
    host = values("complex64")
    host[2, 3, 1] = part
    x = gi.GpuArray(host, device=device)
    for name in ("min", "max", "argmin", "argmax"):
        np.testing.assert_array_equal(getattr(x, name)().get(), getattr(np, name)(host))


def test_parts_are_joined(device: str) -> None:
    host = values("complex64", (150_000,))
    x = gi.GpuArray(host, device=device)
    exact = host.astype(np.complex128)
    np.testing.assert_allclose(x.var().get(), exact.var(), rtol=1e-6)
    for name in ("min", "argmax"):
        np.testing.assert_array_equal(getattr(x, name)().get(), getattr(np, name)(host))


@pytest.mark.parametrize("name", ["var", "std"])
def test_dtype_of_a_variance_is_its_compute_dtype(device: str, name: str) -> None:
    host = np.array([3 + 4j, 1j, -2j])
    x, r = gi.GpuArray(host, device=device), gi.GpuArray(host.real.copy(), device=device)
    wanted = getattr(np, name)(host)
    # NumPy's own answers are complex, and for a real dtype 9: squares around the mean of the real parts.
    for dtype, real in (("complex128", "float64"), ("complex64", "float32")):
        got = getattr(x, name)(dtype=dtype)
        assert got.dtype == getattr(r, name)(dtype=dtype).dtype == real
        assert float(got) == pytest.approx(wanted)
        assert float(getattr(r, name)(dtype=dtype)) == pytest.approx(getattr(np, name)(host.real))
    for dtype in ("float64", "float32"):
        for options in ({}, {"where": np.array([True, True, False])}):
            with pytest.raises(gi.DTypeError, match=rf"astype\('{dtype}'\)\.{name}\(\)"):
                getattr(x, name)(dtype=dtype, **options)

"""Complex operations where numbers end: zeros of either sign, infinities, NaN; against complex128."""

import numpy as np
import pytest

import gpuinterop as gi

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
]
PARTS = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan]
GRID = np.array([complex(a, b) for a in PARTS for b in PARTS])
EXPONENTS = np.concatenate([GRID, [2, 3, -2, 0.5, -0.5, 2j, -1 + 1j, 5, -7]])
COMPLEX = (
    "power reciprocal conjugate sqrt exp exp2 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan "
    "arcsinh arccosh arctanh rint isnan isinf isfinite"
).split()


def check(got: np.ndarray, expected: np.ndarray, given: list[np.ndarray]) -> None:
    """Both parts agree. If one part is NaN, C99 leaves the sign of the other part unspecified."""
    if got.dtype.kind == "b":
        np.testing.assert_array_equal(got, expected)
        return
    size = 1 + np.where(np.isfinite(expected), np.abs(expected), 0)
    tolerance = size * (1e-5 if got.dtype.itemsize <= 8 else 1e-12)
    loose = np.isnan(expected)
    for take in (np.real, np.imag):
        part, wanted = take(got).astype(float), take(expected).astype(float)
        part, wanted = (np.where(loose, np.abs(v), v) for v in (part, wanted))
        with np.errstate(all="ignore"):
            same = (np.abs(part - wanted) <= tolerance) | (part == wanted)
        same |= np.isnan(part) & np.isnan(wanted)
        where = np.flatnonzero(~same)[:5]
        assert same.all(), [(*(g[i] for g in given), got[i], expected[i]) for i in where]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX)
def test_special_values_match_numpy(device, name, dtype):
    given = [GRID]
    if name == "power":
        given = [np.repeat(EXPONENTS, len(EXPONENTS)), np.tile(EXPONENTS, len(EXPONENTS))]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*given)
    got = getattr(gi, name)(*(gi.GpuArray(x.astype(dtype), device=device) for x in given))
    check(got.get(), expected, given)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.0, 1j, 2 + 0j])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_python_exponents_match_numpy_power(device, dtype, exponent):
    base = EXPONENTS.astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.power(base, exponent)
    got = gi.GpuArray(base, device=device) ** exponent
    assert got.dtype == dtype
    check(got.get(), expected, (base,))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_roots_of_the_largest_and_the_smallest_numbers(device, dtype):
    info = np.finfo(dtype)
    large, small = float(info.max), float(info.smallest_subnormal)
    parts = np.array([0.6, 1, -0.6, -1, 0.2]) * large
    parts = [*parts, small, -2 * small, 1e4 * small, float(info.tiny), 0.0, 1.0]
    given = np.array([complex(a, b) for a in parts for b in parts], dtype)
    wide = given.astype(np.clongdouble)
    expected = np.sqrt(wide)
    assert np.isfinite(expected).all()
    got = gi.sqrt(gi.GpuArray(given, device=device)).get().astype(np.clongdouble)
    for take in (np.real, np.imag):
        np.testing.assert_allclose(
            take(got), take(expected), rtol=4 * float(info.eps), atol=4 * small
        )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_expm1_has_the_special_values_of_exp(device, dtype):
    # NumPy's expm1 has NaN for infinite parts. The array API standard and C99 say what exp has.
    got = gi.expm1(gi.GpuArray(GRID.astype(dtype), device=device)).get()
    with np.errstate(all="ignore"):
        expected = np.exp(GRID)
    expected.real -= 1
    check(got, expected, [GRID])


CUT = [
    complex(x, y) for x in (-3.0, -0.5, -0.0, 0.0, 0.5, 3.0) for y in (-0.0, 0.0)
] + [complex(x, y) for x in (-0.0, 0.0) for y in (-3.0, -0.5, 0.5, 3.0)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "name", "log log1p log2 log10 sqrt arcsin arccos arctan arcsinh arccosh arctanh".split()
)
def test_branch_cuts_and_signs_of_zeros_match_numpy(device, name, dtype):
    given = np.array(CUT, dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(given)
    got = getattr(gi, name)(gi.GpuArray(given, device=device)).get()
    np.testing.assert_allclose(got, expected, rtol=1e-5 if dtype == "complex64" else 1e-13)
    for take in (np.real, np.imag):
        np.testing.assert_array_equal(np.signbit(take(got)), np.signbit(take(expected)))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", "log log1p arcsin arccos arctan arcsinh arccosh arctanh".split())
def test_inverses_of_the_largest_and_the_smallest_numbers(device, name, dtype):
    info = np.finfo(dtype)
    parts = [0.7 * float(info.max), -0.7 * float(info.max), float(info.tiny) * 8, 1e-3, -1.0]
    given = np.array([complex(a, b) for a in parts for b in parts], dtype)
    with np.errstate(all="ignore"):
        # In complex64 it has room for all of them, in complex128 NumPy calls the C library, which is exact enough.
        expected = getattr(np, name)(given.astype(np.complex128))
    got = getattr(gi, name)(gi.GpuArray(given, device=device)).get()
    if name == "log1p":  # NumPy's loses small numbers
        small = np.abs(given) < 0.1
        got, expected = got[~small], expected[~small]
    scale = np.abs(expected) + float(info.tiny)
    assert (np.abs(got - expected) <= 8 * float(info.eps) * scale).all()


@pytest.mark.parametrize("name", ["erf", "rsqrt"])
def test_functions_without_a_kernel_name_a_way_that_works(device, name):
    x = gi.GpuArray(np.array([0.25 + 0.5j, 0.5]), device=device)
    with pytest.raises(gi.DTypeError) as error:
        getattr(gi, name)(x)
    ways = error.value.fix
    assert "to_device" not in ways  # the same on both devices
    assert "x.astype('float64')" in ways
    assert getattr(gi, name)(x.astype("float64")).dtype == np.float64


@pytest.mark.parametrize("decimals", [2, -1])
def test_each_part_is_rounded_by_itself(device, decimals):
    given = np.array([complex(a, b) for a in (12.345, np.inf, np.nan) for b in (-7.891, -np.inf)])
    x = gi.GpuArray(given, device=device)
    expected = np.round(given, decimals)
    for got in (gi.round(x, decimals), x.round(decimals), np.round(x, decimals, out=x)):
        assert got.dtype == "complex128"
        check(got.get(), expected, [given])


def test_conjugate_is_a_method_by_both_names(device):
    x = gi.GpuArray(GRID, device=device)
    np.testing.assert_array_equal(x.conjugate().get(), GRID.conjugate())
    np.testing.assert_array_equal(x.conj().get(), GRID.conj())

"""Casts of wide numbers to small floats on "cpu" round once, also where a float32 between them would be a tie."""

import ml_dtypes
import numpy as np
import pytest
from helpers.public_tables import ML_NAMES

import gpuinterop as gi

SMALL = [np.dtype("float16"), *(
    np.dtype(found) for name in dir(ml_dtypes)
    if isinstance(found := getattr(ml_dtypes, name), type) and "float" in name and name in ML_NAMES
)]  # fmt: skip
EXPONENTS = np.dtype(ml_dtypes.float8_e8m0fnu)  # which has no negative numbers


def positive_codes(dtype):
    """The codes of the finite positive numbers, in ascending order."""
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        numbers = codes.view(dtype).astype("float64")
    # ml_dtypes rounds subnormal float32 up to a power of two.
    least = np.finfo("float32").tiny if dtype == EXPONENTS else 0
    codes = codes[(numbers > least) & np.isfinite(numbers)]
    return codes[np.argsort(codes.view(dtype).astype("float64"))]


def ties(dtype):
    """The middles of neighbours, exact in float64, with the neighbours and the one to which a tie is rounded."""
    codes = positive_codes(dtype)
    numbers = codes.view(dtype).astype("float64")
    low, high = codes[:-1], codes[1:]
    # A number without mantissa is odd, because its one digit is 1.
    odd = low % 2 != 0 if dtype != EXPONENTS else np.ones(len(low), bool)
    return (numbers[:-1] + numbers[1:]) / 2, low, high, np.where(odd, high, low)


def require(values, codes, dtype):
    whole = np.concatenate(values)
    expected = np.concatenate(codes).view(dtype)
    sources = [(whole, expected)]
    if dtype != EXPONENTS and whole.dtype.kind in "if":
        sources.append((-whole, -expected))
    for host, rounded in sources:
        x = gi.asarray(host, device="cpu")
        target = gi.empty(x.shape, dtype, device="cpu")
        target[...] = x
        complexes = [x.astype("complex128")] if host.dtype == "float64" else []
        fused = gi.fuse(lambda v: gi.where(v == v, v, v).astype(dtype))
        for found in (x.astype(dtype), target, fused(x), *(z.astype(dtype) for z in complexes)):
            np.testing.assert_array_equal(found.get().astype("f8"), rounded.astype("f8"))
        fits = host < 2**63  # NumPy makes float64 of lists with greater integers
        listed = gi.asarray(host[fits].tolist(), dtype=dtype, device="cpu")
        np.testing.assert_array_equal(listed.get().astype("f8"), rounded[fits].astype("f8"))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_float64_is_rounded_once(dtype):
    middles, low, high, even = ties(dtype)
    below, above = np.nextafter(middles, 0), np.nextafter(middles, np.inf)
    require((below, middles, above), (low, even, high), dtype)


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_integers_are_rounded_once(dtype, kind):
    middles, low, high, even = ties(dtype)
    fits = (middles == np.trunc(middles)) & (middles < np.iinfo(kind).max)
    middles = middles[fits].astype(kind)
    require((middles - 1, middles, middles + 1), (low[fits], even[fits], high[fits]), dtype)

"""The sign of a NaN where IEEE 754 and NumPy define it: copies, selections, negation, absolute value, casts."""

import ml_dtypes
import numpy as np
import pytest

import gpuinterop as gi

SMALL = ("bfloat16", "float8_e4m3fn")
FLOATS = ("float16", "float32", "float64", *SMALL)
# The operations that return an operand, or its magnitude with another sign. y is 1, or has the opposite signs.
DEFINED = ("negative", "positive", "absolute", "fabs", "conjugate", "sign", "signbit", "copysign", "maximum",
           "minimum", "fmax", "fmin", "where", "clip")  # fmt: skip


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if name in SMALL else name)


def values(name: str) -> np.ndarray:
    """Both NaNs, and numbers of both signs; long enough for whole vectors and a rest."""
    few = np.copysign([np.nan, np.nan, 1, 1, 0, 0, np.nan], [1, -1, 1, -1, 1, -1, -1])
    return np.tile(few, 7).astype(dtype_of(name))


def signs(x) -> list[bool]:
    return np.signbit(np.asarray(x).astype("float64")).tolist()


def check(got, expected) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    if expected.dtype == bool:
        np.testing.assert_array_equal(got, expected)
        return
    if expected.dtype.kind == "c":
        for part in ("real", "imag"):
            check(getattr(got, part), getattr(expected, part))
        return
    np.testing.assert_array_equal(got.astype("float64"), expected.astype("float64"))
    assert signs(got) == signs(expected)


def arguments(op: str, name: str) -> list[np.ndarray]:
    x = values(name)
    if op == "where":
        return [np.arange(len(x)) % 2 == 0, x, x[::-1].copy()]
    if op == "clip":
        return [x, np.full(len(x), -2, x.dtype), np.full(len(x), 2, x.dtype)]
    other = x[::-1].copy() if op == "copysign" else np.ones(len(x), x.dtype)
    return [x, other][: getattr(np, op).nin]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", DEFINED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_that_return_an_operand(device, op, name):
    hosts = arguments(op, name)
    wide = [h.astype("float32") if name in SMALL and h.dtype != bool else h for h in hosts]
    expected = getattr(np, op)(*wide)  # ml_dtypes has its own sign(-0), and no clip
    expected = expected.astype(dtype_of(name)) if expected.dtype == "float32" else expected
    arrays = [gi.asarray(h, device=device) for h in hosts]
    function = getattr(gi, op)
    check(function(*arrays), expected)
    check(function(*(a[::-1] for a in arrays)), expected[::-1])
    check(gi.fuse(function)(*arrays), expected)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("op", ["negative", "positive", "conjugate", "where"])
def test_complex_numbers(device, op, name):
    x = values("float64")
    z = np.empty(len(x), name)
    z.real, z.imag = x, np.roll(x, 1)
    hosts = [x == 1, z, -z] if op == "where" else [z]
    check(getattr(gi, op)(*(gi.asarray(h, device=device) for h in hosts)), getattr(np, op)(*hosts))


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("name", FLOATS)
def test_casts_and_copies(device, name, target):
    host = values(name)
    x = gi.asarray(host, device=device)
    expected = host.astype(dtype_of(target))
    check(x.astype(target), expected)
    check(gi.fuse(lambda a: a.astype(target))(x), expected)


@pytest.mark.parametrize("name", FLOATS)
def test_fused_signs(device, name):
    host = values(name)
    x, y = gi.asarray(host, device=device), gi.asarray(host[::-1].copy(), device=device)
    check(gi.fuse(lambda a: gi.signbit(-a))(x), ~np.array(signs(host)))
    check(gi.fuse(lambda a: gi.signbit(abs(-a)))(x), np.zeros(len(host), bool))
    got = gi.fuse(lambda a, b: gi.where(gi.signbit(a), 1, 2) + gi.signbit(gi.copysign(a, b)))(x, y)
    np.testing.assert_array_equal(np.asarray(got), np.where(signs(host), 1, 2) + signs(host[::-1]))
    assert int(gi.fuse(lambda a: gi.signbit(a).sum())(x)) == sum(signs(host))

"""Dtypes, classes, devices and errors of the operations."""

import itertools
import operator

import numpy as np
import pytest
from doubles.on_fake import FAKE

import gpuinterop as gi
from gpuinterop.errors import (
    DTypeError,
    RangeError,
)

NUMERIC = ("bool", "int8", "int64", "uint8", "uint64", "float16", "float32", "float64", "complex64")
OPERATORS = (operator.add, operator.mul, operator.truediv, operator.lt, operator.eq)


def one(dtype, device):
    return gi.GpuArray(np.ones(2, dtype), device=device)


@pytest.mark.parametrize("first", NUMERIC)
def test_promotion_matches_numpy(device, first):
    for second, apply in itertools.product(NUMERIC, OPERATORS[: 1 if FAKE else None]):
        expected = apply(np.ones(2, first), np.ones(2, second))
        result = apply(one(first, device), one(second, device))
        assert result.dtype == expected.dtype, (first, second, apply)
        np.testing.assert_array_equal(result.get(), expected)


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize(
    "scalar", [True, 2, 2.5, 1 + 2j, np.float32(2), np.int64(3), np.array(2.0)]
)
def test_numbers_take_part_as_in_numpy(device, dtype, scalar):
    host = np.ones(2, dtype)
    for swap in (False, True):
        pair = (scalar, one(dtype, device)) if swap else (one(dtype, device), scalar)
        expected = operator.add(*((scalar, host) if swap else (host, scalar)))
        result = operator.add(*pair)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.get(), expected)


def test_integers_out_of_range(device):
    x = one("int8", device)
    for array, number in ((x, 300), (x, 10**5000), (one("uint8", device), -1)):
        with pytest.raises(OverflowError, match=r"^add: .*\bu?int8") as error:
            array + number
        assert isinstance(error.value, RangeError)
        assert error.value.where == "add"
        assert "astype" in error.value.fix
    for dtype in ("float16", "float32", "float64", "complex64"):
        for call in (lambda a: a + 10**400, gi.fuse(lambda a: a + 10**400)):
            with pytest.raises(RangeError, match=r"^add: .*float64"):
                call(one(dtype, device))
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(RangeError, match=rf"^exp: .*{dtype}"):
            gi.exp(10**5000, dtype=dtype)
    np.testing.assert_array_equal((x < 300).get(), [True, True])
    np.testing.assert_array_equal((one("uint8", device) > -1).get(), [True, True])
    np.testing.assert_array_equal((x == 2**70).get(), [False, False])


@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        "float8_e5m2",
        "float8_e4m3fn",
        "float8_e8m0fnu",
        "float6_e2m3fn",
        "float4_e2m1fn",
    ],
)
def test_a_cuda_ndarray_takes_what_float32_holds(device, dtype):
    pytest.importorskip("ml_dtypes")
    host = np.array([0.5, 1.0, 2.0, 4.0], np.float32)
    x = gi.CudaNdarray(host, device=device)
    other = gi.GpuArray(host[::-1].copy(), dtype=dtype, device=device)
    calls = [lambda a, b: a + b, lambda a, b: gi.where(a > 1, a, b), lambda a, b: gi.concatenate([a, b]),
             gi.fuse(lambda a, b: b - a), gi.dot]  # fmt: skip
    for call in calls:
        result, wide = call(x, other), call(x, other.astype("float32"))
        assert type(result) is gi.CudaNdarray
        np.testing.assert_array_equal(result.get(), gi.GpuArray(wide).get())


def test_cuda_ndarray_stays_float32(device):
    x = gi.CudaNdarray(np.array([0.5, 2.0], np.float32), device=device)
    for result in (x + x, x * 2, 2 / x, x + np.float64(1), x // 1, x**2, -x, abs(x), x + True,
                   x + gi.GpuArray(np.ones(2, np.int16), device=device), gi.exp(x)):  # fmt: skip
        assert type(result) is gi.CudaNdarray
        assert result.dtype == np.float32
    mask = x > 1
    assert type(mask) is gi.GpuArray
    assert mask.dtype == bool
    assert type(x * mask) is gi.CudaNdarray
    for other in ("int32", "int64", "float64", "complex64"):
        with pytest.raises(TypeError, match="holds exactly"):
            x + gi.GpuArray(np.ones(2, other), device=device)
    with pytest.raises(DTypeError):
        x + np.ones(2)
    with pytest.raises(TypeError):
        x += "text"


def test_extended_floats(device):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    small = gi.GpuArray(np.array([1.5, 2.0], ml_dtypes.bfloat16), device=device)
    assert (small + 1.5).dtype == ml_dtypes.bfloat16
    assert (small + small).dtype == ml_dtypes.bfloat16
    assert gi.exp(small).dtype == ml_dtypes.bfloat16
    assert (small > 1).dtype == bool
    assert (small + gi.GpuArray(np.ones(2, np.float32), device=device)).dtype == np.float32
    assert (small + gi.GpuArray(np.ones(2, np.float16), device=device)).dtype == np.float32
    np.testing.assert_array_equal((small * 2).get().astype(float), [3, 4])


def test_results_beside_a_cudandarray_that_are_none():
    x = gi.CudaNdarray(np.ones((2, 2), "f4"), device="cpu")
    others = {}
    for name in gi.__all__:
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or name == "matmul":
            continue
        try:
            made = getattr(gi, name)(*[x] * ufunc.nin)
        except gi.DTypeError:  # of integers
            continue
        for one in made if isinstance(made, tuple) else (made,):
            if type(one) is not gi.CudaNdarray and one.dtype != bool:
                others[name] = str(one.dtype)
    assert others == {"float_power": "float64"}
    for count in (x.argmax(), x.argmin(), np.count_nonzero(x), (x > 0).sum()):
        assert (type(count), str(count.dtype)) == (gi.GpuArray, "int64")


# The dtypes of bfloat16 beside others, whichever version of ml_dtypes is installed.
BESIDE_BFLOAT16 = {
    "bool": "bfloat16", "int8": "bfloat16", "uint16": "bfloat16", "int32": "bfloat16", "uint64": "bfloat16",
    "bfloat16": "bfloat16", "float16": "float32", "float32": "float32", "float64": "float64",
    "complex64": "complex64", "complex128": "complex128", "float8_e5m2": "float32",
    "float8_e4m3fn": "float32", "float6_e3m2fn": "float32", "float4_e2m1fn": "float32",
}  # fmt: skip
JOINS = {
    "matmul": gi.matmul,
    "dot": gi.dot,
    "inner": gi.inner,
    "vecdot": np.vecdot,
    "einsum": lambda x, y: np.einsum("ij,jk->ik", x, y),
    "concatenate": lambda x, y: gi.concatenate([x, y]),
    "stack": lambda x, y: gi.stack([x, y]),
}


@pytest.mark.parametrize("other", BESIDE_BFLOAT16)
@pytest.mark.parametrize("name", JOINS)
def test_products_and_joining_meet_where_operators_do(name, other):
    host, function = np.array([[1.0, 0.0], [1.0, 1.0]]), JOINS[name]
    x, y = (gi.GpuArray(host, device="cpu").astype(t) for t in ("bfloat16", other))
    for first, second in ((x, y), (y, x)):
        found = function(first, second)
        assert found.dtype == (first + second).dtype == BESIDE_BFLOAT16[other]
        assert gi.result_type(first, second) == np.result_type(first, second) == found.dtype
        wanted = function(*(gi.GpuArray(host, device="cpu"),) * 2)
        np.testing.assert_array_equal(found.astype("float64").get(), wanted.get())

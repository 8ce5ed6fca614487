"""Python's numbers take on the array's dtype, rounded; what it cannot hold is refused, everywhere alike."""

import warnings

import numpy as np
import pytest
from helpers.public_tables import NUMPY_NAMES
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

pytestmark = pytest.mark.filterwarnings("error")


def _assigned(value, dtype, device):
    x = gi.empty(2, dtype, device=device)
    x[...] = value
    return x


def _assigned_in_a_list(value, dtype, device):
    x = gi.empty(2, dtype, device=device)
    x[...] = [value, value]
    return x


def _filled(value, dtype, device):
    x = gi.empty(2, dtype, device=device)
    x.fill(value)
    return x


# Every way in for a Python number whose dtype is named or is the target's.
WAYS = {
    "x[...] = n": _assigned,
    "x[...] = [n, n]": _assigned_in_a_list,
    "fill": _filled,
    "full": lambda n, dtype, device: gi.full(2, n, dtype, device=device),
    "full_like": lambda n, dtype, device: gi.full_like(gi.zeros(2, dtype, device=device), n),
    "asarray": lambda n, dtype, device: gi.asarray([n, n], dtype, device=device),
    "asarray of a number": lambda n, dtype, device: gi.asarray(n, dtype, device=device),
    "array": lambda n, dtype, device: gi.array([n, n], dtype, device=device),
    "GpuArray": lambda n, dtype, device: gi.GpuArray([n, n], dtype, device=device),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@ways
def test_rounded_as_numpy_does_and_cut_towards_zero_for_integers(device, way):
    for dtype, values in {
        "float32": [2**24 + 1, 0.1, -1e-60, 3.4028235e38, True, float("-inf"), 2**70, float("nan")],
        "float64": [2**24 + 1, 0.1, -1e-60, 1e300, True, float("-inf"), 2**70],
        "float16": [0.1, float("nan"), 2049, 65519, True],
        "complex64": [0.1, float("nan"), 0.1 - 1e-60j, complex("inf+nanj"), 2**30 + 1],
        "bool": [0, 2, 0.1, float("nan")],
        "int8": [2.9, -2.9, -128.9, True],
        "bfloat16": [float("-inf")],
        "float8_e5m2": [float("-inf")],
        "float8_e4m3": [float("-inf")],
    }.items():
        for value in values:
            found = np.ravel(way(value, dtype, device).get())
            expected = np.full(len(found), np.trunc(value) if dtype == "int8" else value, dtype)
            np.testing.assert_array_equal(found, expected, strict=True)


TOO_LARGE = {
    "float16": [65520, 1e6, -(10**6), 10**400],
    "float32": [1e39, -1e300, 10**39, 10**400, -(10**400), 10**5000],
    "float64": [10**309, 10**400],
    "complex64": [1e39, 1e39j, 10**400],
    "int8": [128, -129, 128.0, 1e300, float("inf"), float("nan"), 10**400],
    "uint8": [-1, 256, -1.0],
    "int64": [2**63, -(2**63) - 1, 2.0**63, 1e300],
    "uint64": [2**64, -1, 2.0**64],
    "bfloat16": [1e39, 10**400],
    "float8_e4m3fn": [1000, 1e300, float("inf"), float("-inf")],
    "float8_e4m3fnuz": [float("inf")],
    "float8_e8m0fnu": [float("inf"), float("-inf")],
    "float4_e2m1fn": [7, float("inf"), float("nan")],
    "int4": [8, -9, 8.0],
}


@ways
@pytest.mark.parametrize("dtype", TOO_LARGE)
def test_number_outside_the_dtype_range_is_refused(device, way, dtype):
    if dtype not in NUMPY_NAMES:
        pytest.importorskip("ml_dtypes")
    for value in TOO_LARGE[dtype]:
        with pytest.raises(gi.DTypeError) as caught:
            way(value, dtype, device)
        assert dtype in caught.value.expected
        assert caught.value.where


# Every way in that takes float32 by default.
UNNAMED = {
    "asarray": lambda n: gi.asarray(n),
    "asarray of a list": lambda n: gi.asarray([0, n]),
    "array": lambda n: gi.array([n]),
    "asarray of integers among floats": lambda n: gi.asarray([[n], [0.5]]),
    "full": lambda n: gi.full(2, n),
    "full of NumPy's number": lambda n: gi.full(2, np.int64(n)),
    "full of a list": lambda n: gi.full(2, [n, 0.5]),
    "CudaNdarray": lambda n: gi.CudaNdarray([n]),
    "GpuArray": lambda n: gi.GpuArray([n]),
    "arange": lambda n: gi.arange(n, n - 2, -1),
}


@pytest.mark.parametrize("way", UNNAMED.values(), ids=UNNAMED)
def test_default_dtype_never_changes_an_integer(way):
    for value in (2**24 + 1, -(2**31) + 1, 2**63 - 1):
        with pytest.raises(gi.DTypeError, match="dtype") as caught:
            way(value)
        assert "default" in caught.value.expected
    assert way(2**24).dtype == np.float32
    # Not whole: every float is rounded, that is what float32 means.
    assert gi.asarray(0.1).item() == float(np.float32(0.1))


@pytest.mark.parametrize("dtype", NUMPY_NAMES)
@given(value=st.integers() | st.floats() | st.integers(-300, 300) | st.floats(-300, 300))
def test_numbers_agree_with_numpy_in_range(dtype, value):
    # NumPy's assignment is the oracle, where it neither fails nor warns.
    reference = np.zeros(1, dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reference[0] = value
    except (OverflowError, RuntimeWarning, ValueError):
        with pytest.raises(gi.DTypeError):
            gi.full(1, value, dtype, device="cpu")
    else:
        found = gi.full(1, value, dtype, device="cpu").get()
        assert found.tobytes() == reference.tobytes() or np.isnan([found, reference]).all()
        listed = gi.asarray([value], dtype, device="cpu").get()
        assert listed.tobytes() == found.tobytes() or np.isnan([found, listed]).all()


# Every way in for a scalar of NumPy whose dtype is named.
NAMED = {
    **{k: WAYS[k] for k in ("x[...] = n", "fill", "full", "full_like")},
    "asarray": WAYS["asarray of a number"],
    "array": lambda n, dtype, device: gi.array(n, dtype, device=device),
    "GpuArray": lambda n, dtype, device: gi.GpuArray(n, dtype, device=device),
}


@pytest.mark.parametrize("way", NAMED.values(), ids=NAMED)
def test_scalars_of_numpy_are_refused_wherever_numbers_are(device, way):
    for value, dtype in [
        (np.int64(300), "int8"), (np.uint8(200), "int8"), (np.int8(-1), "uint8"), (np.float64(1e39), "int64"),
        (np.float32("nan"), "uint8"), (np.float64("inf"), "int32"), (np.float64(1e39), "float32"),
        (np.float32(1e6), "float16"), (np.complex128(1e39), "complex64"), (np.complex64(1j), "float32"),
    ]:  # fmt: skip
        with pytest.raises(gi.DTypeError) as caught:
            way(value, dtype, device)
        assert dtype in caught.value.expected
    for value, dtype in [
        (np.int64(-128), "int8"), (np.float64(0.1), "float32"), (np.float32(2.9), "uint8"),
        (np.int64(2**24 + 1), "float32"), (np.float64("inf"), "float16"), (np.bool_(True), "int16"),
        (np.uint64(2**64 - 1), "uint64"), (np.float32(-0.0), "float64"),
    ]:  # fmt: skip
        got, expected = way(value, dtype, device), np.asarray(value).astype(dtype)
        assert got.dtype == dtype
        assert np.ravel(got.get())[0].tobytes() == expected.tobytes()


def test_scalars_of_numpy_keep_their_dtype_unless_one_is_named(device):
    for value in (
        np.int64(2**60 + 1),
        np.float64(0.1),
        np.float32(3),
        np.complex64(1j),
        np.bool_(True),
    ):
        for make in (gi.asarray, gi.array):
            got = make(value, device=device)
            assert (got.dtype, got.shape, got.item()) == (value.dtype, (), value.item())
        with pytest.raises(gi.CopyForbiddenError):
            gi.asarray(value, device=device, copy=False)
    with pytest.raises(gi.DTypeError):
        gi.CudaNdarray(np.float64(1e39), dtype="float32", device=device)


def _filled_from(value, device):
    x = gi.zeros((2, 1), device=device)
    x[...] = value
    return x


# Every call that accepts a list with arrays and does not name float32 explicitly.
UNCAST = {
    "asarray": lambda v, device: gi.asarray(v, device=device),
    "array": lambda v, device: gi.array(v, device=device),
    "CudaNdarray": lambda v, device: gi.CudaNdarray(v, device=device),
    "full": lambda v, device: gi.full((2, 1), v, device=device),
    "x[...] = v": _filled_from,
}


@pytest.mark.parametrize("way", UNCAST.values(), ids=UNCAST)
def test_an_array_in_a_list_is_not_narrowed(device, way):
    wide = np.array([0.1])
    for value in (
        [wide, wide],
        [[0.5], wide],
        [np.float32([1]), wide],
        (wide, [1]),
        [gi.asarray(wide, device=device), [0.5]],
        [np.array([2**24 + 1]), [1]],
        [np.array([2**24 + 1]), np.float32([0.5])],
    ):
        with pytest.raises(gi.DTypeError, match=r"astype\('float32'\)"):
            way(value, device)
    for value in (
        [np.float32([0.1]), [2]],
        [np.float16([0.1]), np.int64([2**24])],
        [[np.float64(0.1)], [np.True_]],
        [gi.ones(1, device=device), [0.5]],
    ):
        expected = np.array([[float(np.asarray(one)[0])] for one in value], "float32")
        assert (way(value, device).get() == expected).all()


def test_a_written_cast_narrows_arrays_in_lists(device):
    values, expected = [np.array([0.1]), np.array([2**24 + 1])], np.float32([[0.1], [2**24]])
    assert (gi.CudaNdarray(values, device, dtype="float32").get() == expected).all()
    assert (gi.asarray(values, "float32", device=device).get() == expected).all()
    assert gi.asarray(np.array([1e300, 2j]), "float32", device=device).tolist() == [np.inf, 0]
    # Nor is anything refused where an array would be cast too.
    x = gi.GpuArray(np.zeros((2, 1), "float32"), device=device)
    x[...] = values
    assert (x.get() == expected).all()

"""Functions that make arrays, and NumPy's names for what is done with them, checked against NumPy."""

import re
from functools import partial

import numpy as np
import pytest
from helpers.profile import functions_of

import gpuinterop as gi

HOST = np.arange(6, dtype="float32").reshape(2, 3)


def test_creation_functions(device):
    assert gi.zeros((2, 2), device=device).tolist() == [[0, 0], [0, 0]]
    assert gi.ones(3, "int64", device=device).tolist() == [1, 1, 1]
    assert gi.full((2,), 2.5, device=device).tolist() == [2.5, 2.5]
    assert gi.arange(4, device=device).tolist() == [0, 1, 2, 3]
    assert gi.arange(np.int64(1), np.float32(3), device=device).tolist() == [1, 2]
    assert gi.arange(1, 2, 0.25, device=device).tolist() == [1, 1.25, 1.5, 1.75]
    assert gi.arange(5, 0, -2, dtype="int32", device=device).tolist() == [5, 3, 1]
    assert type(gi.zeros(2, device=device)) is gi.CudaNdarray
    assert type(gi.zeros(2, "float64", device=device)) is gi.GpuArray
    x = gi.ones((2, 3), "int16", device=device)
    for like in (gi.zeros_like, gi.ones_like, gi.empty_like):
        assert (like(x).shape, like(x).dtype, like(x).device) == (x.shape, x.dtype, x.device)
    assert gi.full_like(x, 7).tolist() == [[7] * 3] * 2
    assert gi.empty((2, 3), order="F", device=device).is_f_contiguous()


@pytest.mark.parametrize(
    ("n", "m", "k"),
    [
        (3, None, 0),
        (3, 4, 1),
        (4, 2, -1),
        (3, 5, -2),
        (2, 2, 5),
        (0, None, 0),
        (0, 3, 0),
        (3, 0, 0),
    ],
)
def test_eye(device, n, m, k):
    for dtype in ("float32", "int8"):
        x = gi.eye(n, m, k, dtype, device=device)
        np.testing.assert_array_equal(x.get(), np.eye(n, m, k, dtype), strict=True)


@pytest.mark.parametrize("like", [gi.empty_like, gi.zeros_like, gi.ones_like])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
def test_like_takes_foreign_arrays(like, dtype):
    source = np.zeros((2, 3), dtype)[:, ::-1]
    made = like(source, device="cpu")
    assert (made.shape, made.dtype) == ((2, 3), dtype)
    assert made.is_c_contiguous()
    assert not gi.shares_memory(made, source)


@pytest.mark.parametrize(
    "given", [(1,), (2,), (1, 3), (2, 4), (0, 4, 2), (3, 1, -1), (0.5, 2), (0,)]
)
def test_arange_of_bools(device, given):
    made = gi.arange(*given, dtype=bool, device=device)
    expected = np.arange(*given, dtype=bool)
    assert made.dtype == expected.dtype
    assert made.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "complex64"])
@pytest.mark.parametrize(
    "given", [(0, 1), (0, 10, 4), (0, 10, 4, False), (3, 3, 1), (5, 250, 7), (0, 1, 0)]
)
def test_linspace(device, given, dtype):
    made = gi.linspace(*given, dtype=dtype, device=device)
    np.testing.assert_array_equal(made.get(), np.linspace(*given, dtype=dtype))
    assert (made.dtype, str(made.device)) == (dtype, device)
    if dtype == "float32":
        assert type(gi.linspace(*given, device=device)) is gi.CudaNdarray
    whole = gi.linspace(-1, gi.asarray(1), 7, dtype="int64", device=device)  # rounded down
    assert whole.tolist() == np.linspace(-1, 1, 7, dtype="int64").tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("n", [4095, 4096, 4097, 4098, 9000])
def test_values_computed_in_parts_are_those_of_numpy(dtype, n):
    for start, step in ((0, 1), (-5, 3), (7.3, -0.1), (1e16, 1.0), (-2.5e-8, 1e-9), (0, 0.1)):
        made = gi.arange(start, start + n * step, step, dtype, device="cpu")
        expected = np.arange(start, start + n * step, step).astype(dtype)
        np.testing.assert_array_equal(made.get(), expected, strict=True)
        for endpoint in (False, True):
            made = gi.linspace(start, step, n, endpoint, dtype=dtype, device="cpu")
            expected = np.linspace(start, step, n, endpoint, dtype=dtype)
            np.testing.assert_array_equal(made.get(), expected, strict=True)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ((0, 300, 3), "int8"),
        ((-1, 3, 5), "uint8"),
        ((0, 2**64 - 1, 2), "uint64"),
        ((0, 9, 2), "int4"),
    ],
)
def test_linspace_wraps_no_integers(device, given, dtype):
    with pytest.raises(gi.DTypeError, match=dtype):
        gi.linspace(*given, dtype=dtype, device=device)


def test_view_only_subclasses_are_shared_without_a_copy(tmp_path):
    kept = np.memmap(tmp_path / "kept", "f4", "w+", shape=(4,))
    for host in (kept, np.ones(2, "f4").view(np.recarray), np.ma.array(np.ones(3, "f4"))):
        assert gi.shares_memory(gi.asarray(host, device="cpu", copy=False), host)


@pytest.mark.parametrize("shape", [(4,), (2, 2), (2, 1, 2), (0, 3)])
def test_in_operator_compares_elements_as_numpy_does(device, shape):
    host = np.arange(int(np.prod(shape)), dtype="float32").reshape(shape)
    array = gi.asarray(host, device=device)
    for value in (0, 3.0, 7, float("nan"), None, host[..., :1]):
        assert (value in array) == (value in host)


def test_large_host_memory_asks_for_huge_pages():
    x = gi.zeros((8 << 20,), "uint8", device="cpu")
    middle, found = x.ptr + (4 << 20), False
    with open("/proc/self/smaps", encoding="utf-8") as file:  # noqa: PTH123
        for line in file:
            if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                found = int(match[1], 16) <= middle < int(match[2], 16)
            elif found and line.startswith("VmFlags:"):
                assert "hg" in line.split()


@pytest.mark.parametrize("dtype", ["float32", np.int64, "complex128", "bool", np.dtype("uint8")])
def test_new_memory_of_every_size_is_aligned_and_filled(dtype):
    for n in (0, 1, 64, 4096, 70_000, 1 << 21):
        for made, expected in (
            (gi.zeros(n, dtype, device="cpu"), np.zeros(n, dtype)),
            (gi.full((n, 1), 1, dtype, device="cpu"), np.full((n, 1), 1, dtype)),
        ):
            assert made.ptr % 64 == 0
            np.testing.assert_array_equal(made.get(), expected, strict=True)
            made[...] = 1  # all of it is the array's
            assert np.all(made.get() == 1)


@pytest.mark.parametrize(
    "given",
    [(0,), (7,), (3, 70), (5, -9, -2), (-300, 4000, 7), (2**24 - 3, 2**24 + 1), (0, 2, 1)],
    ids=str,
)
def test_ranges_of_integers(given):
    for dtype in (None, "float32", np.int32, "int64", np.float64, "uint8", "bool"):
        try:
            expected = np.arange(*given, dtype="float32" if dtype is None else dtype)
            expected = np.arange(*given).astype(expected.dtype) if dtype != "bool" else expected
            found = gi.arange(*given, dtype=dtype, device="cpu")
        except (gi.GpuInteropError, OverflowError, TypeError, ValueError):
            assert dtype in ("uint8", "bool")
            continue
        np.testing.assert_array_equal(found.get(), expected, strict=True)


# ---- calls that the core carries out alone --------------------------------------------------------

WARM = {
    "empty": lambda d, x: gi.empty((2, 3), device=d),
    "zeros": lambda d, x: gi.zeros(64, "int64", device=d),
    "ones": lambda d, x: gi.ones([2, 3], np.float64, device=d),
    "full": lambda d, x: gi.full(4, 2.5, device=d),
    "empty_like": lambda d, x: gi.empty_like(x),
    "zeros_like": lambda d, x: gi.zeros_like(x),
    "ones_like": lambda d, x: gi.ones_like(x, "int32"),
    "full_like": lambda d, x: gi.full_like(x, 3),
    "arange": lambda d, x: gi.arange(64, device=d),
    "linspace": lambda d, x: gi.linspace(0, 1, 64, device=d),
    "reshape": lambda d, x: x.reshape(-1),
    "reshape to a tuple": lambda d, x: x.reshape((2, 3)),
    "ravel": lambda d, x: x.ravel(),
    "transpose": lambda d, x: x.transpose(1, 0),
}


@pytest.mark.parametrize("name", WARM)
def test_warm_calls_run_no_python_code_of_the_package(name, device):
    place = gi.device(device)
    x = gi.zeros((3, 2), device=place)
    assert functions_of(partial(WARM[name], place, x)) == []
    with place:  # as the default device
        assert functions_of(partial(WARM[name], None, x)) == []
        assert WARM[name](None, x).device == place


@pytest.mark.parametrize(
    "dtype", [None, "float32", "float64", "int8", "uint8", "int32", "uint64", "int64"]
)
@pytest.mark.parametrize(
    "given",
    [(5,), (0,), (-3,), (1, 7), (7, 1, -2), (-128, 128), (0, 256), (2**24 - 3, 2**24 + 2), (5, 5), (0.0, 1.0, 0.1),
     (1, 0, -0.3), (0, 3.5), (2.5, -1, -0.5), (0.1, 0.7), (1e300, 1e301, 1e300), (0, 1, 1e-3), (2**62, 2**62 + 3)],
)  # fmt: skip
def test_ranges_have_the_bits_of_numpy(given, dtype, device):
    try:
        made = gi.arange(*given, dtype=dtype, device=device)
    except gi.GpuInteropError:
        values = np.arange(*given)
        with np.errstate(all="ignore"):
            stored = values.astype(dtype or "float32")
        assert values.min() < 0 or not np.array_equal(stored.astype(values.dtype), values)
        return
    wanted = np.arange(*given).astype(dtype or "float32")
    assert made.dtype == wanted.dtype
    assert np.asarray(made).tobytes() == wanted.tobytes()


def test_a_range_with_integers_that_float32_lacks_is_refused(device):
    assert gi.arange(2**24 - 1, 2**24 + 1, device=device).tolist() == [2**24 - 1, 2**24]
    with pytest.raises(gi.DTypeError):
        gi.arange(2**24 + 2, device=device)


@pytest.mark.parametrize("dtype", [None, "float64"])
@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 3, 10, 1001])
@pytest.mark.parametrize("ends", [(0, 1), (1, 0.1), (-5, 7), (3, 3), (0.1, 1e30), (0, 5e-324)])
def test_spaced_values_have_the_bits_of_numpy(ends, num, endpoint, dtype):
    made = gi.linspace(*ends, num, endpoint, dtype=dtype, device="cpu")
    wanted = np.linspace(*ends, num, endpoint).astype(dtype or "float32")
    assert np.asarray(made).tobytes() == wanted.tobytes()


def test_spaced_values_are_recorded(device):
    with gi.capture(device=device) as graph:
        made = gi.arange(5, device=device) * 2 + gi.linspace(0, 1, 5, device=device)
    for _ in range(2):
        graph.replay()
        np.testing.assert_array_equal(made.get(), np.arange(5) * 2 + np.linspace(0, 1, 5))

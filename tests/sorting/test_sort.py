"""sort, argsort and partition, compared with NumPy: dtypes, layouts, lengths, NaN, zeros of both signs, ties."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
from helpers.layouts import LAYOUTS
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import gpuinterop as gi

REAL = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
        "float32", "float64", ml_dtypes.bfloat16)  # fmt: skip
DTYPES = (*REAL, "complex64", "complex128", ml_dtypes.float8_e4m3fn)


def values_of(dtype, shape, seed=0):
    """Values with ties, and for floats NaN, infinities and zeros of both signs."""
    random, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "biu":
        whole = random.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
        raw = whole.view(dtype)[..., 0] if dtype.kind != "b" else whole[..., 0] > 127
        return np.where(random.random(shape) < 0.3, dtype.type(1), raw).astype(dtype)
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0])
    if dtype == ml_dtypes.float8_e4m3fn:
        odd = odd[[0, 4, 5, 6, 7]]

    def part():
        chosen = odd[random.integers(0, len(odd), shape)]
        return np.where(random.random(shape) < 0.4, chosen, random.standard_normal(shape) * 3)

    if dtype.kind == "c":
        found = np.empty(shape, dtype)
        found.real, found.imag = part(), part()
        return found
    return part().astype(dtype)


def same_bits(found, expected):
    """Equal, with NaN in the same places and zeros of the same signs."""
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "V":
        found, expected = found.astype("f4"), expected.astype("f4")
    np.testing.assert_array_equal(found, expected, strict=True)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        signs = [np.signbit(a)[numbers] for a in (found, expected)]
        np.testing.assert_array_equal(*signs)


def check(host, x, axis):
    # NaN of ml_dtypes may be anywhere in NumPy's order.
    keys = host.astype("f4") if host.dtype.kind == "V" else host
    ascending = np.argsort(keys, axis, kind="stable")
    # The reverse of this is the descending order in which equal elements stay in place.
    backwards = np.argsort(np.flip(keys, axis), axis, kind="stable")
    descending = host.shape[axis] - 1 - np.flip(backwards, axis)
    for order, reverse in ((ascending, False), (descending, True)):
        same_bits(gi.sort(x, axis, descending=reverse).get(), np.take_along_axis(host, order, axis))
        found = gi.argsort(x, axis, descending=reverse).get()
        np.testing.assert_array_equal(found, order, strict=True)


# Each way of a GPU: elements counted, in a block of three sizes, by sweeps; ends of tiles.
LENGTHS = (0, 1, 2, 3, 127, 128, 129, 1000, 1024, 1025, 4096, 4097, 8192, 8193, 20_000)


@pytest.mark.parametrize(
    ("n", "dtype"), [(100, "float16"), (900, "float32"), (4100, "int16"), (9000, "float32")]
)
def test_each_way_of_a_gpu(device, n, dtype):
    host = values_of(dtype, (2, n))
    check(host, gi.GpuArray(host, device=device), -1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(place, dtype):
    for n in (0, 1, 5, 128, 300, 3000, 9001):
        host = values_of(dtype, (2, n))
        check(host, gi.GpuArray(host, device=place), -1)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length(place, dtype, n):
    host = values_of(dtype, (3, n), n)
    check(host, gi.GpuArray(host, device=place), 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_axis(place, layout):
    host = values_of("float32", (4, 5, 6))
    x = LAYOUTS[layout](host, lambda a: gi.GpuArray(a, device=place))
    for axis in (0, 1, -1):
        check(host, x, axis)
    same_bits(gi.sort(x, None).get(), np.sort(host, None, kind="stable"))
    x.sort(axis=1)
    same_bits(x.get(), np.sort(host, 1, kind="stable"))


@pytest.mark.parametrize("shape", [(40, 30), (3, 5000), (5000, 3), (2, 10, 9000)])
def test_rows_and_columns(place, shape):
    host = values_of("float32", shape)
    for axis in range(len(shape)):
        check(host, gi.GpuArray(host, device=place), axis)


@given(
    npst.arrays(
        st.sampled_from(["int8", "uint16", "float32", "float64", "bool", "complex64"]),
        npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=40),
    ),
    st.data(),
)
@examples(200)
def test_any_array(place, host, data):
    axis = data.draw(st.integers(-host.ndim, host.ndim - 1))
    if host.shape[axis]:
        check(host, gi.GpuArray(host, device=place), axis)


def test_equal_elements_and_sorted_ones(place):
    for host in (np.zeros(30_000, "f4"), np.arange(30_000, dtype="i4"), np.arange(30_000.0)[::-1]):
        check(host, gi.GpuArray(host, device=place), 0)


def test_classes_and_places_of_results(place):
    x = gi.asarray([3, 1, 2], device=place)
    assert type(gi.sort(x)) is type(np.sort(x)) is gi.CudaNdarray
    assert type(gi.argsort(x)) is type(x.argsort()) is gi.GpuArray
    assert gi.argsort(x).dtype == "int64"
    assert gi.sort(x).device == x.device
    assert x.tolist() == [3, 1, 2]
    assert x.sort() is None
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("n", [200, 300, 2049, 9000])
@pytest.mark.parametrize("dtype", "?bHiIlLefdFD")
def test_the_bits_of_numpys_stable_sort(n, dtype):
    host = values_of(dtype, (n,), n)
    wide = np.dtype(dtype).itemsize == 8 and np.dtype(dtype).kind in "iu"
    small = (host % 1000).astype(dtype) if wide else host  # whose upper halves are alike
    numbers = np.nan_to_num(host) if np.dtype(dtype).kind == "f" else host
    for part in (host, small, numbers, abs(numbers) if dtype in "efd" else host):
        for values in (part, part[::-1], part[: n // 3 * 3].reshape(3, -1).T):
            x = gi.from_any(values)
            found, places = gi.sort(x, 0).get(), gi.argsort(x, 0).get()
            assert found.tobytes() == np.sort(values, 0, kind="stable").tobytes()
            np.testing.assert_array_equal(places, np.argsort(values, 0, kind="stable"), strict=True)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64", "complex64"])
def test_partitions_on_the_host(dtype):
    host = values_of(dtype, (7, 500), 1)
    for kth, axis in ((0, 1), (-1, 0), ((3, 250), -1), (499, 1), (1000, None)):
        x = gi.from_any(host.copy())
        places = [kth] if isinstance(kth, int) else list(kth)
        found, expected = gi.partition(x, kth, axis).get(), np.sort(host, axis, kind="stable")
        along = 0 if axis is None else axis
        same = (np.take(found, places, along), np.take(expected, places, along))
        np.testing.assert_array_equal(*same, strict=True)
        np.testing.assert_array_equal(np.sort(found, along), expected, strict=True)
        indices = gi.argpartition(x, kth, axis).get()
        assert indices.dtype == np.int64
        chosen = np.take_along_axis(host.ravel() if axis is None else host, indices, along)
        np.testing.assert_array_equal(np.take(chosen, places, along), same[1], strict=True)
        if axis is not None:
            x.partition(kth, axis)
            np.testing.assert_array_equal(np.sort(x.get(), axis), expected, strict=True)


def test_sorts_in_place(place):
    def on_place(values):
        return gi.asarray(values, values.dtype, device=place)

    host = values_of("int32", (6, 5))
    for options in ((), (0,), (-1, None), (1, "stable", None)):
        x = on_place(host)
        assert x.sort(*options) is None
        np.testing.assert_array_equal(x.get(), np.sort(host, *options[:1]), strict=True)
    x = on_place(host)
    x.sort(axis=0, kind=None, order=None, stable=None, descending=False)
    np.testing.assert_array_equal(x.get(), np.sort(host, 0), strict=True)
    x.sort(axis=0, descending=True)
    np.testing.assert_array_equal(x.get(), np.sort(host, 0)[::-1], strict=True)
    with pytest.raises(ValueError):
        x.broadcast_to(3, 6, 5).sort()
    with pytest.raises(gi.AxisError, match="sort"):
        x.sort(2)
    empty = on_place(host[:0])
    empty.sort(0)
    assert empty.shape == (0, 5)
    number = on_place(np.array(3, np.int16))
    with pytest.raises(gi.AxisError):
        number.sort()


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(2500, 3), (3, 2500), (300, 30)])
def test_lines_of_any_length_are_sorted_stably_on_the_host(dtype, shape):
    host = values_of(dtype, shape)
    if dtype != "int64":
        host[::3], host[1::5] = -0.0, 0.0
    for axis in (0, 1):
        x = gi.from_any(host)
        found, expected = gi.sort(x, axis).get(), np.sort(host, axis, kind="stable")
        assert found.tobytes() == expected.tobytes()
        places = gi.argsort(x, axis).get()
        np.testing.assert_array_equal(places, np.argsort(host, axis, kind="stable"), strict=True)


def test_partition(place):
    host = values_of("int32", (50, 70))
    x = gi.GpuArray(host, device=place)
    for kth in (0, 7, -1, (3, 40)):
        found = np.partition(x, kth).get()
        np.testing.assert_array_equal(found[:, kth], np.partition(host, kth)[:, kth])
        places = gi.argpartition(x, kth, axis=0).get()
        found = np.take_along_axis(host, places, 0)
        np.testing.assert_array_equal(found[kth, :], np.partition(host, kth, 0)[kth, :])
    x.partition(5, axis=0)
    assert (x.get()[5] == np.sort(host, 0)[5]).all()
    for function in (gi.partition, gi.argpartition):
        assert function(x, []).shape == x.shape
        with pytest.raises(gi.ShapeError, match="kth=70"):
            function(x, 70)


def test_places_in_numbers_and_empty_axes_are_those_of_numpy(place):
    host = np.array(3, np.float32)
    number = gi.GpuArray(host, device=place)
    for axis in (-1, 0, None):
        for function in (np.argsort, partial(np.argpartition, kth=0)):
            found = function(number, axis=axis).get()
            np.testing.assert_array_equal(found, function(host, axis=axis), strict=True)
    np.testing.assert_array_equal(number.argsort().get(), host.argsort(), strict=True)
    for function in (gi.argsort, partial(gi.argpartition, kth=0)):
        with pytest.raises(gi.AxisError):
            function(number, axis=1)
    with pytest.raises(gi.ShapeError, match="kth=1"):
        gi.argpartition(number, 1)
    for shape, axis in (((0,), 0), ((0, 3), 0), ((3, 0), 1), ((0,), None)):
        host = np.zeros(shape, np.float32)
        empty = gi.GpuArray(host, device=place)
        for function in (np.partition, np.argpartition):
            for kth in (0, -1, 5):
                found = function(empty, kth, axis).get()
                np.testing.assert_array_equal(found, function(host, kth, axis), strict=True)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: gi.sort(x, 2), gi.ShapeError),
        (lambda x: np.argsort(x, -3), gi.ShapeError),
        (lambda x: gi.sort(x[0, 0]), gi.ShapeError),
        (lambda x: gi.sort(x, kind="bubble"), TypeError),
        (lambda x: gi.sort(x, order="f"), gi.ArgumentTypeError),
        (lambda x: gi.sort(x, kind="stable", stable=True), ValueError),
        (lambda x: gi.sort(x, descending=1), TypeError),
        (lambda x: gi.sort("text"), TypeError),
        (lambda x: gi.sort(x.astype("int4")), gi.DTypeError),
        (lambda x: x.broadcast_to((2, 2, 2)).sort(), gi.ReadOnlyError),
    ],
)
def test_wrong_calls(place, call, error):
    with pytest.raises(error):
        call(gi.zeros((2, 2), device=place))


def test_in_a_capture(place):
    x = gi.asarray([3, 1, 2], device=place)
    replay = gi.capture(lambda a: (gi.sort(a), gi.argsort(a + 1), gi.cumsum(a)), x)
    for values in ([3, 1, 2], [0, 5, -1]):
        x[...] = values
        ordered, order, sums = replay(x)
        assert ordered.tolist() == sorted(values)
        assert order.tolist() == np.argsort(values).tolist()
        assert sums.tolist() == np.cumsum(values).tolist()


# On a GPU at most 60 GB: the indices of argsort twice, and its counts.
@pytest.mark.parametrize(
    ("device", "n"),
    [
        ("cpu", 10_001),
        pytest.param("cuda:0", (1 << 31) + 5, marks=[pytest.mark.gpu, pytest.mark.slow]),
    ],
)
def test_more_than_2_to_the_31_elements(device, n):
    x = gi.zeros((n,), "int8", device=device)
    x[:3], x[-3:] = -1, 1
    found = gi.sort(x, descending=True)
    assert found[:4].tolist() == [1, 1, 1, 0]
    assert found[-4:].tolist() == [0, -1, -1, -1]
    ordered = found[::-1].copy()
    wanted = gi.GpuArray([-2, -1, 0, 1, 2], "int8", device=device)
    assert gi.searchsorted(ordered, wanted).tolist() == [0, 0, 3, n - 3, n]
    assert gi.searchsorted(ordered, wanted, side="right").tolist() == [0, 3, n - 3, n, n]
    places = gi.searchsorted(wanted, ordered)
    assert places[:4].tolist() == [1, 1, 1, 2]
    assert places[-4:].tolist() == [2, 3, 3, 3]
    del found, ordered, places
    assert gi.cumsum(x, dtype="int32")[-4:].tolist() == [-3, -2, -1, 0]
    order = gi.argsort(x)
    assert order[:4].tolist() == [0, 1, 2, 3]
    assert order[-3:].tolist() == [n - 3, n - 2, n - 1]
    del x, order
    if device != "cpu":
        gi.empty_cache(device)  # other tests and processes need the memory


@pytest.mark.driver
def test_a_block_sorts_short_rows_in_place(device):
    x = gi.asarray([[3, 1, 2], [9, 7, 8]], device=device)
    x.sort()
    captured = gi.capture(lambda a: a.sort(), x)
    assert captured.nodes == 1
    x[...] = gi.asarray([[6, 5, 4], [1, 3, 2]], device=device)
    captured()
    assert x.tolist() == [[4, 5, 6], [1, 2, 3]]
    assert x.T[::-1].tolist() == [[6, 3], [5, 2], [4, 1]]

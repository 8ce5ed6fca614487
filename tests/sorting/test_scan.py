"""Running sums and products and accumulate, compared with NumPy's in float64 or in integers."""

import numpy as np
import pytest
from helpers.layouts import LAYOUTS
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import gpuinterop as gi

DTYPES = ("bool", "int8", "uint8", "int16", "uint32", "int32", "int64", "uint64", "float16", "float32",
          "float64", "complex64", "complex128")  # fmt: skip
# A thread, a block of each size and several tiles.
LENGTHS = (0, 1, 2, 32, 33, 128, 129, 1000, 4096, 8192, 8193, 40_001)


def values_of(dtype, shape, seed=0):
    random, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "biu":
        return random.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    found = random.standard_normal(shape)
    if dtype.kind == "c":
        found = found + 1j * random.standard_normal(shape)
    return found.astype(dtype)


def close(found, expected, host):
    """Equal for integers; for floats within a part of the sum of the magnitudes."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    exact = expected.astype("c16" if found.dtype.kind == "c" else "f8")
    bound = np.abs(host.astype("c16")).sum() * np.finfo(found.dtype).eps * 4
    assert np.abs(found - exact).max(initial=0) <= bound


def exact_cumsum(host, axis):
    """NumPy's sums, from wide numbers where NumPy would round each step."""
    result = np.cumsum(host[:0].ravel()).dtype
    wide = {"e": "f8", "f": "f8", "F": "c16"}.get(host.dtype.char)
    return np.cumsum(host, axis, dtype=wide).astype(result)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 7), 1), ((2, 300), 1), ((9000,), 0), ((100, 3), 0), ((40, 2200), 0)]
)
def test_each_way_of_a_gpu(device, shape, axis):
    for dtype in ("float32", "complex128", "int8"):
        host = values_of(dtype, shape)
        x = gi.GpuArray(host, device=device)
        close(gi.cumsum(x, axis).get(), exact_cumsum(host, axis), host)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(place, dtype):
    for shape, axis in (((7,), 0), ((3, 500), 1), ((500, 70), 0), ((2, 100, 3), 1), ((9000,), 0)):
        host = values_of(dtype, shape)
        x = gi.GpuArray(host, device=place)
        close(gi.cumsum(x, axis).get(), exact_cumsum(host, axis), host)
        close(np.cumsum(x).get(), exact_cumsum(host, None), host)


@pytest.mark.parametrize("dtype", ["int16", "int64", "float32"])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length(place, dtype, n):
    for shape, axis in (((n,), 0), ((3, n), 1), ((n, 5), 0), ((n, 40), 0)):
        host = values_of(dtype, shape, n)
        x = gi.GpuArray(host, device=place)
        close(gi.cumsum(x, axis).get(), exact_cumsum(host, axis), host)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_axis(place, layout):
    host = values_of("float32", (4, 5, 6))
    x = LAYOUTS[layout](host, lambda a: gi.GpuArray(a, device=place))
    for axis in (0, 1, -1, None):
        close(gi.cumsum(x, axis).get(), exact_cumsum(host, axis), host)
        np.testing.assert_allclose(x.cumprod(axis).get(), np.cumprod(host, axis), rtol=1e-4)


ACCUMULATED = {np.add: DTYPES, np.multiply: DTYPES, np.maximum: DTYPES[:-2], np.minimum: DTYPES[:-2],
               np.logical_or: DTYPES, np.logical_and: DTYPES}  # fmt: skip


@pytest.mark.parametrize("ufunc", ACCUMULATED, ids=lambda f: f.__name__)
def test_accumulate(place, ufunc):
    for dtype in ACCUMULATED[ufunc]:
        host = values_of(dtype, (40, 3))
        x = gi.GpuArray(host, device=place)
        for axis in (0, 1):
            expected = ufunc.accumulate(host, axis)
            found = ufunc.accumulate(x, axis).get()
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(
                found, expected, rtol=2e-2 if dtype == "float16" else 1e-4, atol=0.02
            )


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_infinities_and_zeros(place):
    host = np.full(3000, -0.0)
    x = gi.GpuArray(host, device=place)
    for function in (np.cumsum, np.maximum.accumulate, np.cumulative_sum):
        assert np.signbit(function(x).get()).all()
    host = np.ones((2000, 3), "c16")
    host[5, 1], host[7, 2] = complex(np.inf, 0), np.nan
    x = gi.GpuArray(host, device=place)
    np.testing.assert_array_equal(np.isnan(gi.cumsum(x, 0).get()), np.isnan(np.cumsum(host, 0)))
    # An infinity times 1+0j has a NaN part, but nothing before it.
    assert gi.cumprod(x, 0).get()[5, 1].real == np.inf
    host = values_of("float32", (500,))
    host[100] = np.nan
    for ufunc in (np.maximum, np.minimum):
        np.testing.assert_array_equal(
            ufunc.accumulate(gi.GpuArray(host, device=place)).get(), ufunc.accumulate(host)
        )


def test_dtype_and_out(place):
    host = values_of("int32", (30, 40))
    x = gi.GpuArray(host, device=place)
    for dtype in ("int8", "uint64", "float32", "int32", "bool"):
        close(gi.cumsum(x, 1, dtype).get(), np.cumsum(host, 1, dtype), host)
    out = gi.zeros((40, 30), "int64", device=place).T
    assert gi.cumsum(x, 0, out=out) is out
    np.testing.assert_array_equal(out.get(), np.cumsum(host, 0))
    narrow = x.copy()
    assert np.cumsum(narrow, 1, out=narrow) is narrow
    np.testing.assert_array_equal(narrow.get(), np.cumsum(host, 1, dtype="int32"))
    backwards = x.copy()
    gi.cumsum(backwards, 1, dtype="int32", out=backwards[:, ::-1])
    np.testing.assert_array_equal(backwards[:, ::-1].get(), np.cumsum(host, 1, dtype="int32"))
    with pytest.raises(gi.ShapeError):
        gi.cumsum(x, 0, out=gi.zeros((3, 3), "int64", device=place))
    with pytest.raises(gi.DTypeError):
        gi.cumsum(x, 0, "int64", out=narrow)
    with pytest.raises(gi.ReadOnlyError):
        gi.cumsum(x[0, 0].reshape(1), out=gi.zeros(1, "int64", device=place).broadcast_to((1,)))


def test_a_tuple_of_one_axis_is_that_axis_where_numpy_accepts_it(device):
    host = values_of("int32", (3, 5))
    x = gi.GpuArray(host, device=device)
    for function in (np.cumulative_sum, np.cumulative_prod, np.add.accumulate):
        for axis in (0, -1):
            found = function(x, axis=(axis,))
            np.testing.assert_array_equal(found.get(), function(host, axis=axis))
    with pytest.raises(TypeError):
        gi.cumulative_sum(x, axis=(0, 1))


def test_cumulative(place):
    host = values_of("int16", (4, 5))
    x = gi.GpuArray(host, device=place)
    for own, numpys in (
        (gi.cumulative_sum, np.cumulative_sum),
        (gi.cumulative_prod, np.cumulative_prod),
    ):
        for axis in (0, 1, -2):
            for initial in (False, True):
                expected = numpys(host, axis=axis, include_initial=initial)
                found = own(x, axis=axis, include_initial=initial)
                np.testing.assert_array_equal(found.get(), expected, strict=True)
                found = numpys(x, axis=axis, include_initial=initial, out=gi.empty_like(found))
                np.testing.assert_array_equal(found.get(), expected, strict=True)
        np.testing.assert_array_equal(own(x[0]).get(), numpys(host[0]), strict=True)
        with pytest.raises(ValueError, match="axis"):
            own(x)
    assert gi.cumulative_sum(x[0, :0], include_initial=True).tolist() == [0]


@given(
    npst.arrays(
        st.sampled_from(["int8", "uint64", "bool", "int32"]),
        npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=50),
    ),
    st.data(),
)
@examples(100)
def test_any_whole_numbers(place, host, data):
    axis = data.draw(st.sampled_from([None, *range(-host.ndim, host.ndim)]))
    x = gi.GpuArray(host, device=place)
    np.testing.assert_array_equal(gi.cumsum(x, axis).get(), np.cumsum(host, axis), strict=True)
    np.testing.assert_array_equal(gi.cumprod(x, axis).get(), np.cumprod(host, axis), strict=True)


def test_float_sums_are_the_same_in_every_run(place):
    x = gi.GpuArray(values_of("float32", (1 << 20,)), device=place)
    first = gi.cumsum(x).get()
    assert all((gi.cumsum(x).get() == first).all() for _ in range(5))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: gi.cumsum(x, 2), gi.ShapeError),
        (lambda x: gi.cumsum(x, 0, "text"), TypeError),
        (lambda x: np.add.accumulate(x, None), TypeError),
        (lambda x: np.add.accumulate(x[0, 0]), TypeError),
        (lambda x: np.maximum.accumulate(x.astype("complex64")), gi.DTypeError),
        (lambda x: gi.cumsum(x.astype("int4")), gi.DTypeError),
        (lambda x: gi.cumulative_sum(x[0], include_initial=1), TypeError),
        (lambda x: gi.cumsum(x, out=[1]), TypeError),
        (lambda x: gi.cumprod(x[0].astype("complex64"), out=x[0]), gi.DTypeError),
        (lambda x: np.cumsum(x[0], out=gi.zeros(2, "int64", device=x.device)), gi.DTypeError),
    ],
)
def test_wrong_calls(place, call, error):
    with pytest.raises(error):
        call(gi.zeros((2, 2), device=place))

"""searchsorted, isin and the distinct elements, compared with NumPy."""

import itertools

import numpy as np
import pytest
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from test_sort import same_bits, values_of

import gpuinterop as gi

DTYPES = (
    "bool",
    "int8",
    "uint16",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


def equal(found, expected):
    np.testing.assert_array_equal(found.get(), expected, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_on_each_driver(device, dtype):
    host = values_of(dtype, (100,))
    x = gi.GpuArray(host, device=device)
    for found, expected in zip(
        gi.unique(x, True, True, True), np.unique(host, True, True, True), strict=True
    ):
        equal(found, expected)
    equal(gi.searchsorted(gi.sort(x), x), np.searchsorted(np.sort(host), host))
    equal(gi.isin(x, x[::2]), np.isin(host, host[::2]))


@pytest.mark.parametrize("sorter", [[2, 0, 1], (2, 0, 1)])
def test_a_sorter_may_be_a_list_of_ints(device, sorter):
    host = np.asarray([2.0, 3.0, 1.0], "float32")
    x = gi.GpuArray(host, device=device)
    equal(gi.searchsorted(x, x, sorter=sorter), np.searchsorted(host, host, sorter=sorter))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(place, dtype, side):
    for n in (0, 1, 2, 1000):
        ordered, values = np.sort(values_of(dtype, (n,))), values_of(dtype, (20, 30), 1)
        x, v = (gi.GpuArray(a, device=place) for a in (ordered, values))
        equal(gi.searchsorted(x, v, side), np.searchsorted(ordered, values, side))
        equal(
            np.searchsorted(x, v[:, ::2].T, side), np.searchsorted(ordered, values[:, ::2].T, side)
        )


def test_searchsorted_with_other_operands(place):
    host = np.array([30, 10, 20])
    x = gi.GpuArray(host, device=place)
    order = gi.argsort(x)
    for v in (15, 2.5, [5, 20], [[1.5]], np.array([20, 21], "i2"), True):
        expected = np.searchsorted(host, v, "right", np.argsort(host))
        found = gi.searchsorted(x, v, "right", order)
        assert (found.shape, found.tolist()) == (np.shape(expected), np.asarray(expected).tolist())
        assert x.searchsorted(v, "right", np.argsort(host)).tolist() == found.tolist()
    assert gi.searchsorted([1, 2], gi.asarray([2.0], device=place)).tolist() == [1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("equal_nan", [True, False])
def test_unique(place, dtype, equal_nan):
    for shape in ((0,), (1,), (7,), (20, 30), (5000,)):
        host = values_of(dtype, shape)
        x = gi.GpuArray(host, device=place)
        equal(np.unique(x, equal_nan=equal_nan), np.unique(host, equal_nan=equal_nan))
        # With indices NumPy's sort is stable too, so that distinct NaN have one order.
        expected = np.unique(host, True, True, True, equal_nan=equal_nan)
        for which in itertools.product((False, True), repeat=3):
            if any(which):
                parts = [expected[0], *itertools.compress(expected[1:], which)]
                found = gi.unique(x, *which, equal_nan=equal_nan)
                for one, part in zip(found, parts, strict=True):
                    equal(one, part)


def test_named_results(place):
    host = values_of("float32", (300,))
    x = gi.asarray(host, device=place)
    assert type(gi.unique_values(x)) is gi.CudaNdarray
    by_name = np.unique_all(host)
    for own, numpys in (
        (gi.unique_all, np.unique_all), (gi.unique_counts, np.unique_counts),
        (gi.unique_inverse, np.unique_inverse),
    ):  # fmt: skip
        expected = numpys(host)
        expected = expected._replace(**{name: getattr(by_name, name) for name in expected._fields})
        for found in (own(x), numpys(x)):
            assert found._fields == expected._fields
            for a, b in zip(found, expected, strict=True):
                equal(a, b)
    equal(gi.unique_values(x), np.unique(host, equal_nan=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("invert", [True, False])
def test_isin(place, dtype, invert):
    for n in (0, 1, 40):
        host, tests = values_of(dtype, (20, 30)), values_of(dtype, (n,), 1)
        x, t = (gi.GpuArray(a, device=place) for a in (host, tests))
        equal(gi.isin(x, t, invert=invert), np.isin(host, tests, invert=invert))
        equal(np.isin(x, t, invert=invert), np.isin(host, tests, invert=invert))
    assert gi.isin(gi.asarray([1, 2], device=place), 2).tolist() == [False, True]
    assert gi.isin(2, gi.asarray([1, 2], device=place)).item() is True


@given(
    npst.arrays(st.sampled_from(["int8", "float32", "complex64"]), npst.array_shapes(max_side=30))
)
@examples(100)
def test_any_array(place, host):
    x = gi.GpuArray(host, device=place)
    for found, expected in zip(
        gi.unique(x, True, True, True), np.unique(host, True, True, True), strict=True
    ):
        equal(found, expected)
    ordered = np.sort(host, None)
    equal(gi.searchsorted(gi.sort(x, None), x), np.searchsorted(ordered, host))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: gi.searchsorted(x, 1), gi.ShapeError),
        (lambda x: gi.searchsorted(x[0], 1, "middle"), TypeError),
        (lambda x: gi.searchsorted(x[0], 1, sorter=x[0]), ValueError),
        (lambda x: gi.searchsorted(x[0], 1, sorter=[0]), ValueError),
        (lambda x: gi.searchsorted(x[0], "text"), TypeError),
        (lambda x: gi.unique(x, axis=5), (TypeError, ValueError)),
        (lambda x: gi.isin(x, x, kind="hash"), TypeError),
        (lambda x: gi.capture(gi.unique, x), gi.CaptureError),
    ],
)
def test_wrong_calls(place, call, error):
    with pytest.raises(error):
        call(gi.zeros((2, 2), device=place))


def test_unique_of_parts_on_the_host():
    host = np.array([[1, 2], [1, 2], [0, 1]])
    equal(gi.unique(gi.GpuArray(host, device="cpu"), axis=0), np.unique(host, axis=0))


@pytest.mark.gpu
def test_unique_of_parts_on_a_gpu_is_refused():
    with pytest.raises(gi.ArgumentTypeError, match="axis=0"):
        gi.unique(gi.zeros((2, 2), device="cuda:0"), axis=0)


# ---- few elements, which the core searches itself ----------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (256,), (257,), (3, 40)])
def test_few_elements(place, dtype, shape):
    host, tests = values_of(dtype, shape), values_of(dtype, (9,), 1)
    x, t = (gi.GpuArray(a, device=place) for a in (host, tests))
    whole = np.unique(host, True, True, True, equal_nan=False)
    for name, parts in (("all", (0, 1, 2, 3)), ("counts", (0, 3)), ("inverse", (0, 2))):
        found = getattr(gi, f"unique_{name}")(x)
        assert type(found) is type(getattr(np, f"unique_{name}")(host))
        for one, i in zip(found, parts, strict=True):
            equal(one, whole[i])
    for invert in (False, True):
        equal(gi.isin(x, t, invert=invert), np.isin(host, tests, invert=invert))
    ordered = np.sort(tests)
    for side in ("left", "right"):
        equal(
            gi.searchsorted(gi.GpuArray(ordered, device=place), x, side),
            np.searchsorted(ordered, host, side),
        )
    assert x.sort() is None
    same_bits(x.get(), np.sort(host, kind="stable"))

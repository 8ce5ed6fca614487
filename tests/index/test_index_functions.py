"""The functions that index, as functions of the package, as methods and as NumPy's functions."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from doubles.on_fake import FAKE
from helpers.layouts import LAYOUTS
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st
from keys import INDEX_DTYPES

import gpuinterop as gi

HOST = np.arange(60, dtype="f4").reshape(3, 4, 5) % 7


def on(device, host=HOST):
    return gi.GpuArray(host, device=device)


def layouts(device):
    """HOST in several layouts."""
    return [make(HOST, lambda a: on(device, a)) for make in LAYOUTS.values()]


def equal(found, expected):
    np.testing.assert_array_equal(found.get(), expected, strict=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(device, axis):
    order = np.argsort(-HOST, axis=axis, kind="stable")
    for x in layouts(device):
        for indices in (
            order,
            on(device, order),
            on(device, order - HOST.shape[axis]),
            order.tolist(),
        ):
            equal(gi.take_along_axis(x, indices, axis), np.take_along_axis(HOST, order, axis))
            equal(np.take_along_axis(x, indices, axis), np.take_along_axis(HOST, order, axis))
        best = np.expand_dims(HOST.argmax(axis), axis)
        equal(gi.take_along_axis(x, on(device, best), axis), np.take_along_axis(HOST, best, axis))
        one = np.ones((1, 1, 1), "i4")  # broadcasts
        equal(gi.take_along_axis(x, on(device, one), axis), np.take_along_axis(HOST, one, axis))
    equal(
        gi.take_along_axis(on(device), on(device, np.array([7, -1])), None), HOST.ravel()[[7, -1]]
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_put_along_axis(device, axis):
    places = np.expand_dims(HOST.argmax(axis), axis)
    values = (np.arange(places.size, dtype="f4") + 100).reshape(places.shape)
    expected = HOST.copy()
    np.put_along_axis(expected, places, values, axis)
    for x in layouts(device):
        gi.put_along_axis(x, on(device, places), on(device, values), axis)
        equal(x, expected)
        np.put_along_axis(x, places, values, axis)
        equal(x, expected)


@given(
    size=st.integers(0, 8), values=st.lists(st.integers(0, 99), max_size=12),
    mode=st.sampled_from(["raise", "clip", "wrap"]), dtype=st.sampled_from(INDEX_DTYPES),
    data=st.data(),
)  # fmt: skip
@examples(60)
def test_put(device, size, values, mode, dtype, data):
    far = 0 if mode == "raise" else 60
    low = -60 - far if np.dtype(dtype).kind == "i" else 0
    places = data.draw(st.lists(st.integers(low, 59 + far), min_size=size, max_size=size, unique_by=lambda i: (
        i % 60 if mode == "wrap" or i < 60 - far else min(max(i, 0), 59)
    )))  # fmt: skip
    if mode == "clip":  # several at an end would get one of several values
        places = [i for i in places if 0 < i < 59]
    places = np.array(places, dtype)
    expected = HOST.copy()
    np.put(expected, places.astype("i8"), values, mode)
    layout = data.draw(st.integers(0, 4))
    x = layouts(device)[layout]
    gi.put(x, on(device, places), values, mode)
    equal(x, expected)
    np.put(x, places, np.array(values, "f4"), mode)
    equal(x, expected)
    x.put(places, values, mode)
    equal(x, expected)


def test_compress(device):
    for axis in (None, 0, 1, -1):
        n = HOST.size if axis is None else HOST.shape[axis]
        for condition in (
            np.arange(n) % 2 == 0,
            np.arange(n - 1) % 2 == 1,
            np.zeros(n, bool),
            np.arange(n),
        ):
            expected = np.compress(condition, HOST, axis)
            for x in layouts(device):
                equal(gi.compress(condition, x, axis), expected)
                equal(x.compress(on(device, condition), axis), expected)
                equal(np.compress(condition.tolist(), x, axis), expected)
                out = gi.empty(expected.shape, "float32", device=device)
                assert gi.compress(condition, x, axis, out=out) is out
                equal(out, expected)
    with pytest.raises(IndexError):
        gi.compress([False] * 3 + [True], on(device), 0)
    with pytest.raises(gi.ShapeError):
        gi.compress([[True]], on(device), 0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "float64", "complex64", "float16"])
def test_nonzero(device, dtype):
    host = (np.arange(3000) % 3).astype(dtype).reshape(10, 300)
    if dtype == "float32":
        host[0, :2] = np.nan, -0.0
    for turned in (host, host.T, host[:, ::-2], host[:0], host.ravel()):
        x = on(device, turned.copy())
        for found in (gi.nonzero(x), x.nonzero(), np.nonzero(x)):
            assert len(found) == turned.ndim
            for one, wanted in zip(found, np.nonzero(turned), strict=True):
                equal(one, wanted)
        equal(gi.argwhere(x), np.argwhere(turned))
        equal(np.argwhere(x), np.argwhere(turned))
        equal(gi.flatnonzero(x), np.flatnonzero(turned))
        equal(np.flatnonzero(x), np.flatnonzero(turned))
    view = on(device, host)[::-1, ::3]
    equal(gi.nonzero(view)[1], np.nonzero(host[::-1, ::3])[1])
    for number in (0, 3):
        wanted = np.argwhere(np.array(number, dtype))
        for call in (gi.argwhere, np.argwhere):
            equal(call(on(device, np.array(number, dtype))), wanted)
    with pytest.raises(gi.ShapeError):
        gi.nonzero(x[0])


def test_repeat(device):
    assert gi.repeat(on(device, HOST[:0]), [], 0).shape == (0, *HOST.shape[1:])
    for axis in (None, 0, 1, -1):
        n = HOST.size if axis is None else HOST.shape[axis]
        for repeats in (0, 2, [3], np.arange(n), np.int8(1)):
            expected = np.repeat(HOST, repeats, axis)
            for x in layouts(device):
                equal(gi.repeat(x, repeats, axis), expected)
                equal(x.repeat(repeats, axis), expected)
                equal(np.repeat(x, repeats, axis), expected)
        equal(
            gi.repeat(on(device), on(device, np.arange(n)), axis),
            np.repeat(HOST, np.arange(n), axis),
        )
    for kind in ("uint8", "int16", "int64", "uint64"):
        for counts in ([3, 0, 2], [0, 0, 0], [0, 5, 0]):
            given = on(device, np.repeat(np.array(counts, kind), 2)[::-2])
            expected = np.repeat(HOST, counts[::-1], 0)
            for x in (*layouts(device), on(device)[::1]):
                equal(gi.repeat(x, given, 0), expected)
    for wrong in ([1, 2], [-1, 1, 1], [2, -1, 2**40]):
        with pytest.raises(gi.ShapeError, match="count of 0 or more") as raised:
            gi.repeat(on(device), on(device, np.array(wrong)), 0)
        assert str(wrong) in raised.value.got
    assert gi.repeat(on(device)[:, :0], on(device, np.array([3, 0, 2])), 0).shape == (5, 0, 5)
    assert gi.repeat(on(device)[:0], on(device, np.array([], "int64")), 0).shape == (0, 4, 5)
    for wrong in ([1, 2], [-1, 1, 1], 1.5, [[1, 2, 3]]):
        with pytest.raises(ValueError if wrong not in (1.5, [[1, 2, 3]]) else TypeError):
            gi.repeat(on(device), wrong, 0)


@pytest.mark.parametrize("n", [2, 17, 2048, 4097, 30_000])
def test_repeat_by_many_counts(device, n):
    counts = np.random.default_rng(n).integers(0, 4, n)
    counts[n // 3 : n - n // 4] = 0
    counts[n // 2] = 5000
    host = np.arange(n, dtype="f8")
    with gi.count_copies() as copies:
        given, x = on(device, counts), on(device, host)
        before = copies.count
        found = gi.repeat(x, given)
        assert copies.count == before
    equal(found, np.repeat(host, counts))


@pytest.mark.parametrize(
    "counts", [[2**62] * 4, [2**63 - 1, 3, 0, 0], [2**61, 2**50, 1, 1], [2**50] * 4]
)
def test_repeat_by_counts_whose_sum_no_memory_holds(device, counts):
    x = on(device, np.arange(4.0))
    for many in (counts, np.array(counts), on(device, np.array(counts))):
        with pytest.raises((ValueError, gi.OutOfMemoryError), match="repeat"):
            gi.repeat(x, many)
    with pytest.raises(gi.ShapeError, match="count of 0 or more"):
        gi.repeat(x, on(device, np.array([-1, 2**62, 2**62, 2**62])))
    many = on(device, np.array([2**40] * 3))
    assert gi.repeat(on(device, HOST[:, :0]), many, 0).shape == (3 * 2**40, 0, 5)


@pytest.mark.driver
def test_repeat_by_counts_on_a_gpu_is_refused_in_a_capture():
    x, counts = on("cuda:0"), on("cuda:0", np.array([1, 2, 3]))
    with pytest.raises(gi.CaptureError), gi.capture(device="cuda:0"):
        gi.repeat(x, counts, 0)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
              "float16", "float32", "float64", "complex64", "complex128", "bfloat16", "float8_e5m2"],
)  # fmt: skip
def test_addition_of_every_dtype(device, dtype):
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    host = np.ones(7).astype(kind)
    indices = np.array([0, 3, 3, 6, 3, -1, 5, 5], "i4")
    values = np.array([1, 2, 1, 4, 1, 2, 0, 1]).astype(kind)
    expected = host.copy()
    for i, value in zip(indices, values, strict=True):
        expected[i] = expected[i] + value
    for view in (slice(None), slice(None, None, -1)):
        x = on(device, host)
        gi.add.at(x[view], on(device, indices), on(device, values))
        equal(x, expected[view])
        x = on(device, host)
        np.add.at(x[view], indices, values)
        equal(x, expected[view])


def test_integer_addition_wraps(device):
    x = gi.zeros(2, "int8", device=device)
    gi.add.at(x, on(device, np.zeros(300, "u1")), 1)
    assert x.tolist() == [300 - 256, 0]


def test_addition_converts_the_value_as_assignment_does(device):
    x, y = gi.CudaNdarray(np.zeros(3, "f4"), device=device), gi.zeros(3, "int32", device=device)
    gi.add.at(x, [0, 0], 0.5)
    gi.add.at(y, on(device, np.array([1, 1])), on(device, np.array([2.9, 1.0])))
    assert (x.tolist(), y.tolist()) == ([1, 0, 0], [0, 3, 0])
    with pytest.raises(gi.DTypeError):
        gi.add.at(x, [0], np.ones(1))
    with pytest.raises(gi.DTypeError):
        gi.add.at(y, [0], 2**40)
    gi.add.at(x, ..., 1)  # a key without arrays
    gi.add.at(x, (slice(None, 1),), on(device, np.ones(1, "f4")))
    assert x.tolist() == [3, 1, 1]
    for key in ([0], 0):
        with pytest.raises(gi.ReadOnlyError):
            gi.add.at(x[:1].broadcast_to(3), key, 1)
    with pytest.raises(TypeError):
        gi.add.at(np.zeros(3), [0], 1)


def _set(call):
    """A function of x and indices that returns the x which `call` has changed."""

    def run(x, indices):
        call(x, indices)
        return x

    return run


# Each with NumPy's function of the same array at the index that the mode makes of the given one.
INDEXING = {
    "x[i]": (lambda x, i: x[i], "raise"),
    "x[:, i]": (lambda x, i: x[None].broadcast_to((2, 5))[:, i][1], "raise"),
    "x[i, j]": (lambda x, i: x[:, None][i, on(x.device, np.zeros(2, "u8"))], "raise"),
    "x[i] = v": (_set(lambda x, i: x.__setitem__(i, 7)), "raise"),
    "x[:, i] = v": (_set(lambda x, i: x[None].__setitem__((slice(None), i), 7)), "raise"),
    "add.at": (_set(lambda x, i: gi.add.at(x, i, 7)), "raise"),
    "take_along_axis": (lambda x, i: gi.take_along_axis(x, i, 0), "raise"),
    "put_along_axis": (_set(lambda x, i: gi.put_along_axis(x, i, 7, 0)), "raise"),
    **{f"take {m}": (lambda x, i, m=m: gi.take(x, i, mode=m), m) for m in ("raise", "wrap", "clip")},
    **{f"put {m}": (_set(lambda x, i, m=m: gi.put(x, i, [7], m)), m) for m in ("raise", "wrap", "clip")},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name, dtype in product(INDEXING, INDEX_DTYPES)
        # A kernel for each of them: on the fake driver all ways with two dtypes, two ways with all dtypes.
        if not FAKE or dtype in ("int8", "uint64") or name in ("x[i]", "put wrap")
    ],
)
def test_indices_at_the_limits_of_their_dtype(device, name, dtype):
    call, mode = INDEXING[name]
    limits, host = np.iinfo(dtype), np.arange(5, dtype="f4") + 10
    for index in {
        limits.min,
        limits.max,
        limits.max // 2 + 1,
        4,
        5,
        0,
        *((-5, -6) if limits.min else ()),
    }:
        wanted = np.array([2, index], dtype)
        inside = {"raise": index, "wrap": index % 5, "clip": min(max(index, 0), 4)}[mode]
        listed = wanted.tolist() if index < 1 << 63 else wanted  # NumPy makes floats of this list
        for indices in (
            on(device, wanted),
            wanted,
            listed,
            on(device, wanted[::-1])[::-1],
        ):
            x = on(device, host)
            if not -5 <= inside < 5:
                with pytest.raises(IndexError):
                    call(x, indices)
                equal(x, host)
                continue
            places = [2, inside]
            if "take" in name or name[-1] == "]":
                equal(call(x, indices), host[places])
                continue
            expected = host.copy()
            expected[places] = 7
            if name == "add.at":
                expected = host.copy()
                np.add.at(expected, places, 7)
            equal(call(x, indices), expected)


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_counts_and_conditions_at_the_limits_of_their_dtype(device, dtype):
    limits, x = np.iinfo(dtype), on(device, np.arange(3, dtype="f4"))
    for counts in (
        np.array([limits.min, 0, limits.max], dtype),
        np.array([1, 0, limits.max // 2 + 1], dtype),
    ):
        for condition in (counts, on(device, counts)):
            equal(gi.compress(condition, x), np.arange(3, dtype="f4")[counts != 0])
            if counts.min() >= 0 and counts.max() < 1 << 17:
                equal(gi.repeat(x, condition), np.arange(3, dtype="f4").repeat(counts.tolist()))
            elif counts.min() < 0 or counts.max() > 1 << 62:
                with pytest.raises((ValueError, MemoryError)):
                    gi.repeat(x, condition)

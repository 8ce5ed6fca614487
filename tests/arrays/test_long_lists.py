"""Long lists are converted piece by piece, with the results and errors of short ones."""

import numpy as np
import pytest

import gpuinterop as gi

LONG = 5000  # more than are converted at once
EQUAL = {
    "floats": [0.1] * LONG,
    "integers after floats": [0.5] * LONG + [7],
    "tuples": ((1.5, -2.0),) * LONG,
    "bools": [True, False] * LONG,
    "long rows": [[float(i) for i in range(LONG)]] * 3,
    "three axes": [[[1, 2]] * LONG, [[3, 4]] * LONG],
    "large integers": [2**24 + 2 * i for i in range(LONG)],
    "arrays": [np.arange(LONG, dtype="float32"), [3.0] * LONG],
    "arrays of axes": [np.full((3, LONG), i) for i in range(4)],
    "scalars of NumPy": [np.float32(0.1)] * LONG,
    "ranges": [range(3)] * LONG,
    "gpuinterop arrays": [gi.full(LONG, 3, device="cpu")] * 3,
    "empty lists": [[]] * LONG,
}


@pytest.mark.parametrize("name", EQUAL)
def test_values_are_those_of_numpy(device, name):
    values = EQUAL[name]
    for got in (gi.array(values, device=device), gi.asarray(values, device=device)):
        np.testing.assert_array_equal(got.get(), np.array(values, "float32"))
    made = gi.GpuArray(values, "float64", device)
    assert made.base is None
    assert made.is_c_contiguous()
    np.testing.assert_array_equal(made.get(), np.array(values, "float64"))
    made[...] = 0
    made[...] = values
    np.testing.assert_array_equal(made.get(), np.array(values, "float64"))


@pytest.mark.parametrize(
    "values",
    [
        [[1.0, 2.0]] * LONG + [[1.0]],
        [[1.0, 2.0]] * LONG + [1.0],
        [1.0] * LONG + [[1.0]],
        [[1.0] * LONG] + [1.0] * LONG,
        [[1.0] * LONG, [1.0] * (LONG - 1)],
        [[1.0] * LONG, np.ones(1)],
        [np.ones(LONG, "float32"), 1.0],
    ],
)
def test_lengths_that_differ(device, values):
    with pytest.raises(gi.ShapeError, match="equal lengths"):
        gi.array(values, device=device)


@pytest.mark.parametrize("last", [2**24 + 1, 1e300, 1j, np.float64(0.1), np.ones(1)[0] + 1j])
def test_one_item_decides(device, last):
    x = gi.zeros(LONG + 1, device=device)
    for call in (
        lambda: gi.array([1.0] * LONG + [last], device=device),
        lambda: gi.array([last] + [1.0] * LONG, device=device),
    ):
        if last == 0.1:
            assert call().dtype == np.float32
            continue
        with pytest.raises(gi.DTypeError):
            call()
    if last not in (0.1, 2**24 + 1):
        with pytest.raises(gi.DTypeError):
            x[...] = [1.0] * LONG + [last]
        assert not x.any()


def test_wider_arrays_among_rows_are_refused(device):
    rows = [[1.0] * LONG, np.full(LONG, 0.1)]
    with pytest.raises(gi.DTypeError):
        gi.array(rows, device=device)
    assert gi.array(rows, "float32", device=device).shape == (2, LONG)


@pytest.mark.parametrize("item", ["a", None, object()])
def test_items_that_are_not_numbers(device, item):
    with pytest.raises(gi.ConversionTypeError, match="numbers"):
        gi.array([1.0] * LONG + [item], device=device)


def test_lists_without_an_end(device):
    values: list = [1.0] * LONG
    values.append(values)
    with pytest.raises(gi.ShapeError):
        gi.array(values, device=device)
    values.insert(0, values)
    with pytest.raises(gi.ShapeError):
        gi.array(values, device=device)


def test_a_replay_sets_the_values_of_the_list():
    with gi.capture() as step:
        x = gi.array([3.0] * LONG, device="cpu")
        y = x + 1
        x.fill(0)
    for _ in range(2):
        step.replay()
        assert (y.get() == 4).all()

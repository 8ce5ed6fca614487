"""Lists of numbers, tuples, ranges and arrays have the values that NumPy reads."""

import numpy as np
import pytest

import gpuinterop as gi

LONG = 3
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
    "no items": [],
    "one number": 2.5,
    "a range": range(LONG),
    "mixed": ((1.0, 2), [3, 4.5]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_values_are_those_of_numpy(device, name):
    values = EQUAL[name]
    for make in (gi.array, gi.asarray, gi.CudaNdarray, gi.GpuArray):
        got = make(values, device=device).get()
        np.testing.assert_array_equal(got, np.array(values, "float32"), strict=True)
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

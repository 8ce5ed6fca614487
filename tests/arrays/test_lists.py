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


@pytest.mark.driver
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 4)])
def test_arrays_on_one_gpu_are_stacked_there(shape):
    host = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    first, second = gi.asarray(host, device="cuda:0"), gi.asarray(host + 7, device="cuda:0")
    expected = np.stack([host, host + 7])
    assigned = gi.zeros(expected.shape, device="cuda:0")
    with gi.log_transfers() as transfers:
        with gi.no_copies():
            made = [make((first, second)) for make in (gi.array, gi.asarray, gi.CudaNdarray)]
            made.append(gi.GpuArray([first.T, second.T], "float32"))
        assigned[...] = [first, second]
    assert not transfers
    for x in (*made[:3], assigned):
        np.testing.assert_array_equal(x.get(), expected, strict=True)
        assert not gi.shares_memory(x, first)
    np.testing.assert_array_equal(made[3].get(), np.stack([host.T, host.T + 7]), strict=True)


@pytest.mark.driver
@pytest.mark.parametrize("second", [[1.0, 2.0, 3.0], gi.ones(3, device="cpu"), "float64"])
def test_a_download_of_an_array_in_a_list_is_refused_as_one(second):
    x = gi.ones(3, device="cuda:0")
    values = [x, x.astype(second) if isinstance(second, str) else second]
    for call in (gi.array, gi.asarray, gi.absolute, lambda v: x + v):
        with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
            call(values)
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError, match="asarray"):
        gi.asarray([x, x], device="cpu")
    with gi.count_copies() as copies:
        gi.ones((2, 3), device="cpu")[...] = [x, x]
    assert copies.count == 1


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

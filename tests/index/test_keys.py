"""x[key] and x[key] = value with index arrays and masks: NumPy's results, whatever the key and its form."""

import numpy as np
import pytest
from helpers.layouts import LAYOUTS
from helpers.profile import functions_of
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st
from keys import FORMS, given_as, is_valid, keys, shapes

import gpuinterop as gi


@st.composite
def cases(draw):
    shape = draw(shapes)
    dtype = draw(st.sampled_from(["float32", "int8", "float64", "complex128", "uint16"]))
    array = (np.arange(np.prod(shape)) % 100).astype(dtype).reshape(shape)
    return (
        array,
        draw(keys(shape)),
        draw(st.sampled_from(FORMS)),
        draw(st.sampled_from(list(LAYOUTS))),
    )


def placed(array, layout, device):
    return LAYOUTS[layout](array, lambda a: gi.GpuArray(a, device=device))


@examples(200)
@given(case=cases())
def test_reading(device, case):
    array, key, form, layout = case
    x = placed(array, layout, device)
    if not is_valid(array, key):
        with pytest.raises(IndexError):
            x[given_as(key, form, device)]
        return
    found = x[given_as(key, form, device)]
    assert type(found) is gi.GpuArray
    assert found.device == x.device
    np.testing.assert_array_equal(found.get(), array[key], strict=True)


@examples(200)
@given(case=cases(), spread=st.integers(0, 3))
def test_assignment(device, case, spread):
    array, key, form, layout = case
    if not is_valid(array, key):
        return
    x = placed(array, layout, device)
    # Equal values for repeated indices, whose order is undefined: the value is that of the first axis's place.
    places = np.arange(array.size).reshape(array.shape)[key]
    values = np.asarray(places * 7 % 50 + 60).astype(array.dtype)
    if spread == 3 and values.ndim:  # the same for the first axis
        values = np.full((1, *values.shape[1:]), 7, array.dtype)
    elif spread:
        values = np.array(7, array.dtype)
    expected = array.copy()
    expected[key] = values
    given_value = [
        values,
        gi.asarray(values, device=device),
        values.tolist() if values.size else values,
    ]
    x[given_as(key, form, device)] = given_value[spread % 3]
    np.testing.assert_array_equal(x.get(), expected, strict=True)


@examples(150)
@given(case=cases(), in_place=st.booleans())
def test_addition_counts_repeated_indices_and_the_operator_does_not(device, case, in_place):
    array, key, form, layout = case
    if not is_valid(array, key):
        return
    x, expected = placed(array, layout, device), array.copy()
    given_key, values = given_as(key, form, device), np.ones(array[key].shape, array.dtype)
    if in_place:
        expected[key] += 1
        x[given_key] += 1
    else:
        np.add.at(expected, key, values)
        gi.add.at(x, given_key, gi.asarray(values, device=device))
    np.testing.assert_array_equal(x.get(), expected, strict=True)


@pytest.mark.parametrize("axes", [32, 33, 60])
def test_addition_to_arrays_of_many_axes(device, axes):
    x = gi.zeros((2,) + (1,) * (axes - 1), device=device)
    gi.add.at(x, [1, 1], 2)
    assert x.get().ravel().tolist() == [0, 4]


def test_numpy_arrays_in_keys_run_no_python_on_the_host():
    host, places, mask = (
        np.arange(12.0).reshape(3, 4),
        np.array([2, -3]),
        np.arange(12).reshape(3, 4) % 5 > 2,
    )
    x = gi.GpuArray(host, device="cpu")

    def assign(key):
        x[key] = 7.0
        host[key] = 7.0

    for key in (
        places,
        mask,
        (places, places[::-1]),
        (slice(None), places.astype("u1") % 3),
        mask[:, ::-1],
    ):
        assert functions_of(lambda key=key: x[key]) == []
        np.testing.assert_array_equal(x[key].get(), host[key], strict=True)
        assert functions_of(lambda key=key: assign(key)) == ["assign"]
        np.testing.assert_array_equal(x.get(), host)
    with pytest.raises(IndexError, match="0 to 3"):
        x[np.array([0, 3])]
    with pytest.raises(IndexError, match="0 to 3"):
        gi.add.at(x, np.array([0, 3]), 1.0)
    np.testing.assert_array_equal(x.get(), host)


def test_numpy_keys_that_share_the_memory_they_change():
    for change in (
        lambda x, i: x.__setitem__(i, [10, 20, 30, 40]),
        lambda x, i: gi.add.at(x, i, 1),
    ):
        host = np.array([3, 1, 2, 0])
        change(gi.from_any(host), host)
        expected = gi.from_any(np.array([3, 1, 2, 0]))
        change(expected, np.array([3, 1, 2, 0]))
        np.testing.assert_array_equal(host, expected.get())

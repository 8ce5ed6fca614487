"""An index out of range is reported with the axis and the size that NumPy reports."""

import re

import numpy as np
import pytest
from helpers.property_tests import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from keys import FORMS, given_as, keys, shapes

import gpuinterop as gi


@st.composite
def wrong_keys(draw):
    """A shape, and a key for it in which one index is out of range."""
    shape = draw(shapes)
    key = list(draw(keys(shape)))
    axis, places = 0, []  # in the key, of ints and of index arrays, with the axis
    for place, part in enumerate(key):
        if part is Ellipsis:
            axis = len(shape) - sum(map(consumed, key[place + 1 :]))
        elif consumed(part) and np.size(part) and np.asarray(part).dtype.kind in "iu":
            places.append((place, axis))
        axis += consumed(part)
    assume(places)
    place, axis = draw(st.sampled_from(places))
    wrong = draw(st.sampled_from([shape[axis], shape[axis] + 9, -shape[axis] - 1]))
    if isinstance(key[place], int):
        key[place] = wrong
    else:
        key[place] = key[place].astype("int64")
        key[place].flat[draw(st.integers(0, key[place].size - 1))] = wrong
    return shape, tuple(key)


def consumed(part) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def reported_by_numpy(call) -> tuple[int, int, int] | None:
    try:
        call()
    except (IndexError, DeprecationWarning) as raised:
        # NumPy 2.1 warns, on behalf of the error, if the result has no elements.
        error = raised if isinstance(raised, IndexError) else raised.__context__
        found = re.fullmatch(
            r"index (-?\d+) is out of bounds for axis (\d+) with size (\d+)", str(error)
        )
        return tuple(map(int, found.groups())) if found else None
    return None


def assert_reported(call, index: int, axis: int, size: int) -> None:
    with pytest.raises(gi.ArrayIndexError) as error:
        call()
    assert error.value.axis == axis
    assert f"{-size} to {size - 1}" in error.value.expected
    assert str(index) in error.value.got
    assert error.value.got.endswith(f" on axis {axis}")


USES = {
    "reading": lambda x, key: x[key],
    "assignment": lambda x, key: x.__setitem__(key, 1),
    "assignment of an array": lambda x, key: x.__setitem__(key, x[:0].sum(keepdims=True)),
    "addition": lambda x, key: (gi if isinstance(x, gi.GpuArray) else np).add.at(x, key, 1),
}


@examples(150)
@given(case=wrong_keys(), form=st.sampled_from(FORMS), use=st.sampled_from(list(USES)))
def test_axis_of_a_key(device, case, form, use):
    shape, key = case
    host = np.zeros(shape, "f4")
    reported = reported_by_numpy(lambda: USES[use](host, key))
    assume(reported)
    x = gi.GpuArray(host, device=device)
    assert_reported(lambda: USES[use](x, given_as(key, form, device)), *reported)


FUNCTIONS = {
    "take": lambda m, x, i: m.take(x, i, axis=1),
    "take of the flattened array": lambda m, x, i: m.take(x, i * 9),
    "take_along_axis": lambda m, x, i: m.take_along_axis(x, i[None, :, None], axis=1),
    "put_along_axis": lambda m, x, i: m.put_along_axis(x, i[None, :, None], 1, axis=1),
    "put": lambda m, x, i: m.put(x, i * 9, 1),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("on_device", [False, True])
def test_axis_of_a_function(device, function, on_device):
    host, indices = np.zeros((2, 3, 4), "f4"), np.array([0, 7])
    x = gi.GpuArray(host, device=device)
    reported = reported_by_numpy(lambda: function(np, host, indices))
    given_indices = gi.asarray(indices, device=device) if on_device else indices
    if reported is None:  # numpy.put names no axis
        reported = (7, 1, 3) if function is FUNCTIONS["put_along_axis"] else (63, 0, 24)
    assert_reported(lambda: function(gi, x, given_indices), *reported)


@pytest.mark.parametrize("key", [(0, 0), (None, 1), (0, None, 0), (slice(0), 0)])
def test_axis_of_empty_results_and_empty_axes(device, key):
    """No element is read, and the index is reported nevertheless."""
    for shape in ((2, 3, 0), (2, 3, 4)):
        host = np.zeros(shape, "f4")
        whole = (*key, np.array([9]))
        reported = reported_by_numpy(lambda h=host, k=whole: h[k])
        if reported is None:
            continue
        x = gi.GpuArray(host, device=device)
        for i in (np.array([9]), gi.asarray(np.array([9]), device=device)):
            with pytest.raises(gi.ArrayIndexError) as error:
                x[(*key, i)]
            assert error.value.axis == reported[1]

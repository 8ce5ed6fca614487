"""Integers that float64 cannot represent keep their value, whatever the other elements are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

# NumPy reads each of these as float64 unless a dtype is given.
LISTS = [
    ([2**63, 2**53 + 1], "uint64"),
    ([2**64 - 1, 1], "uint64"),
    ([np.uint64(2**63 + 1), 5], "uint64"),
    ([2**62 + 1, 0.5], "uint64"),
    ([2**53 + 1, 1.5], "int64"),
    ([-(2**63), 0.5], "int64"),
    ([np.uint64(3), np.int64(2**53 + 1)], "int64"),
    ([True, 2**53 + 1, 1.0], "int64"),
    ([np.float32(1.5), 2**24 + 1], "int32"),
    ([[2**53 + 1], [-2.9]], "int64"),
    ([np.array([2**53 + 1]), [0.5]], "int64"),
]
listed = pytest.mark.parametrize(("values", "dtype"), LISTS)


def _elements(values, dtype):
    """The oracle: NumPy's assignment of one Python number at a time."""
    flat = [one.item() if hasattr(one, "item") else one for one in np.array(values, object).flat]
    return np.array([int(one) for one in flat], dtype).reshape(np.shape(values))


@listed
def test_a_list_keeps_its_integers(device, values, dtype):
    expected = _elements(values, dtype)
    x = gi.zeros(expected.shape, dtype, device=device)
    x[...] = values
    for found in (
        x,
        gi.asarray(values, dtype, device=device),
        gi.GpuArray(values, dtype, device=device),
        gi.full(expected.shape, values, dtype, device=device),
    ):
        assert found.tolist() == expected.tolist()


@given(st.lists(st.integers(0, 2**64 - 1) | st.floats(0, 2**63), min_size=1, max_size=4))
def test_integers_among_floats_agree_with_python(values):
    found = gi.asarray(values, "uint64", device="cpu")
    assert found.tolist() == [int(one) for one in values]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([2**64, 0.5], "uint64"), ([2**63, 0.5], "int64"), ([-1, 2**63], "uint64"),
     ([2**53 + 1, float("nan")], "int64"), ([2**53 + 1, float("inf")], "uint64")],
)  # fmt: skip
def test_integer_out_of_range_is_refused(values, dtype):
    with pytest.raises(gi.DTypeError) as caught:
        gi.asarray(values, dtype, device="cpu")
    assert dtype in caught.value.expected


@pytest.mark.parametrize(
    ("given", "dtype"),
    [((2**63, 2**63 + 3), "uint64"), ((2**64 - 3, 2**64 - 1), "uint64"),
     ((2**63 + 3, 2**63, -1), "uint64"), ((0, 2**64 - 1, 2**62), "uint64"),
     ((np.uint64(2**63), 2**63 + 3), "uint64"), ((-(2**63), -(2**63) + 2), "int64"),
     ((2**63 - 3, 2**63 - 1), "int64"), ((-(2**63) - 2**62, 2**63, 2**62), "float64"),
     ((2**63, 2**63), "uint64")],
)  # fmt: skip
def test_arange_counts_to_the_end_of_the_range(given, dtype):
    found = gi.arange(*given, dtype=dtype, device="cpu")
    assert found.dtype == dtype
    assert found.tolist() == list(range(*map(int, given)))

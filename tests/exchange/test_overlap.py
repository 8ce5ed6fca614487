"""Exact memory overlap of strided arrays, against NumPy's own answer."""

import numpy as np
import pytest
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

BUFFER = np.zeros(1024, np.uint8)


@st.composite
def windows(draw):
    """A strided window of some item size somewhere in BUFFER."""
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    ndim = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(0, 5)) for _ in range(ndim))
    strides = tuple(draw(st.integers(-24, 24)) for _ in range(ndim))
    low = sum(min(0, max(n - 1, 0) * s) for n, s in zip(shape, strides, strict=False))
    high = sum(max(0, max(n - 1, 0) * s) for n, s in zip(shape, strides, strict=False)) + itemsize
    offset = draw(st.integers(-low, min(-low + 64, BUFFER.size - high)))
    return np.ndarray(shape, f"V{itemsize}", buffer=BUFFER, offset=offset, strides=strides)


@examples(200)
@given(windows(), windows())
def test_overlap_matches_numpy(a, b):
    assert gi.shares_memory(a, b) == np.shares_memory(a, b)


@examples(100)
@given(windows(), st.integers(0, 1023))
def test_address_ranges_match_numpy(a, at):
    ends = [] if a.size == 0 else np.lib.array_utils.byte_bounds(a)
    begin = BUFFER.ctypes.data
    for place in (at, *(end - begin for end in ends), *(end - begin - 1 for end in ends)):
        byte = BUFFER[place : place + 1]
        assert gi.may_share_memory(a, byte) == np.may_share_memory(a, byte)
        assert gi.may_share_memory(byte, a) == np.may_share_memory(byte, a)


def test_interleaved_slices_of_a_large_matrix_are_decided_at_once():
    x = np.zeros((4000, 4000), np.float32)
    assert not gi.shares_memory(x[::2], x[1::2])
    assert not gi.shares_memory(x[:, ::2], x[:, 1::2])
    assert gi.shares_memory(x[::3, ::7], x[1::5, 3::9]) == np.shares_memory(
        x[::3, ::7], x[1::5, 3::9]
    )


def test_a_hard_instance_stops_at_the_budget():
    # Twelve large coefficients without a common divisor, and item size 1: nothing merges.
    strides = tuple(10_007 * k * k + 13 * k + 1 for k in range(1, 7))
    other = tuple(10_009 * k * k + 17 * k + 1 for k in range(1, 7))
    reach = 60 * (sum(other) + 1)
    memory = np.zeros(reach, np.uint8)  # pages that nothing touches
    a = np.ndarray((60,) * 6, "u1", buffer=memory, strides=strides)
    b = np.ndarray((60,) * 6, "u1", buffer=memory, offset=5, strides=other)
    with pytest.raises(gi.BoundsError, match="may_share_memory"):
        gi.shares_memory(a, b, budget=3)

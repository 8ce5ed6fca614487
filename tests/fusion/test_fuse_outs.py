"""Outs of fused functions that overlap the arguments, which the function may return as they are."""

import numpy as np
import pytest
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

RETURNING = {
    "turned": lambda a, b, c: (b, c, a),
    "computed first": lambda a, b, c: (a + b, a, c),
    "computed last": lambda a, b, c: (c, b, a * b),
    "twice": lambda a, b, c: (a, a, b - c),
}


@pytest.mark.parametrize("name", RETURNING)
@examples(60)
@given(
    starts=st.lists(st.integers(3, 17), min_size=3, max_size=3),
    steps=st.lists(st.sampled_from([1, 2, -1]), min_size=6, max_size=6),
    parts=st.permutations([0, 8, 16]),  # the outs must not overlap each other
)
def test_outs_may_overlap_the_arguments_in_any_way(device, name, starts, steps, parts):
    memory = np.arange(1.0, 25.0)
    begins = starts + [
        part + (3 if step < 0 else 0) for part, step in zip(parts, steps[3:], strict=True)
    ]
    places = [(at + np.arange(4) * step).tolist() for at, step in zip(begins, steps, strict=True)]
    held = gi.GpuArray(memory, device=device)
    views = [
        held[at : at + 4 * step if at + 4 * step >= 0 else None : step]
        for at, step in zip(begins, steps, strict=True)
    ]
    expected = memory.copy()
    values = RETURNING[name](*(memory[place] for place in places[:3]))
    for place, value in zip(places[3:], values, strict=True):
        expected[place] = value
    gi.fuse(RETURNING[name])(*views[:3], out=tuple(views[3:]))
    assert held.tolist() == expected.tolist()

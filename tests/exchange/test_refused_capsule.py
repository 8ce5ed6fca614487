"""A capsule that is refused stays as it was, so that the call which the error names can still take it."""

from __future__ import annotations

import numpy as np
import pytest
from peers import api, capsule, freed, has_compiler, name_of, start_counting

import gpuinterop as gi

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

FLOAT64 = (2, 64, 1)
VALUES = [[0, 1, 2], [3, 4, 5]]


def assigned(shape, dtype):
    return lambda cap: gi.zeros(shape, dtype, device="cpu").__setitem__(..., cap)


REFUSALS = {
    "the class by from_dlpack": (lambda cap: gi.from_dlpack(cap, cls=gi.CudaNdarray), TypeError),
    "the class itself": (lambda cap: gi.CudaNdarray(cap, device="cpu"), TypeError),
    "no cast": (lambda cap: gi.asarray(cap, "int32", device="cpu", copy=False), BufferError),
    "assigned to another dtype": (assigned((2, 3), "float32"), TypeError),
    "assigned to another shape": (assigned((4, 5), "float64"), ValueError),
    "assigned to another shape and dtype": (assigned((4, 5), "int32"), ValueError),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_leaves_the_capsule(name, legacy):
    refuse, error = REFUSALS[name]
    start_counting()
    cap = capsule(dtype=FLOAT64, legacy=legacy)
    before = name_of(cap)
    with pytest.raises(error):
        refuse(cap)
    assert name_of(cap) == before
    assert freed() == 0
    x = gi.from_dlpack(cap)
    assert np.from_dlpack(x).tolist() == VALUES
    del x
    assert freed() == 1


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_leaves_the_destructor(name):
    refuse, error = REFUSALS[name]
    live = gi.devices.memory_stats("cpu")["live_bytes"]
    cap = gi.asarray(np.array(VALUES), "float64", device="cpu", copy=True).__dlpack__()
    destructor = api.PyCapsule_GetDestructor(cap)
    assert destructor
    with pytest.raises(error):
        refuse(cap)
    assert api.PyCapsule_GetDestructor(cap) == destructor
    del cap
    assert gi.devices.memory_stats("cpu")["live_bytes"] == live


def test_what_is_not_refused_uses_the_capsule_up():
    start_counting()
    x = gi.zeros((2, 3), "float64", device="cpu")
    takes = [
        lambda cap: x.__setitem__(..., cap),
        lambda cap: gi.asarray(cap, "int32", device="cpu"),
        lambda cap: gi.asarray(cap, device="cpu", copy=False),
        lambda cap: gi.GpuArray(cap, device="cpu"),
    ]
    for count, take in enumerate(takes, 1):
        cap = capsule(dtype=FLOAT64)
        take(cap)
        assert name_of(cap) == b"used_dltensor_versioned"
        assert freed() == count
    assert np.from_dlpack(x).tolist() == VALUES

"""Fixtures of several modules in this folder."""

import gc
from types import SimpleNamespace

import peers
import pytest
from doubles import fake_driver

import gpuinterop as gi


@pytest.fixture
def freed():
    """How many structs of the C++ library and of `peers.struct` were deleted since the test began."""
    return peers.counting()


@pytest.fixture
def gpu():
    """An array and two streams on the fake driver, which must have survived what the test did."""
    x = gi.zeros((64,), device="cuda:0")
    gi.synchronize()
    yield SimpleNamespace(x=x, own_stream=gi.Stream("cuda:0"), other_stream=gi.Stream("cuda:0"))
    gc.collect()
    gi.synchronize()
    assert fake_driver.faults() == ""

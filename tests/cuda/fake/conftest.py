from __future__ import annotations

import gc

import helper
import pytest

import gpuinterop as gi
from gpuinterop import devices


@pytest.fixture(autouse=True)
def tidy():
    """Each test leaves the thread's streams and contexts as they were, and no fault behind."""
    helper.primary()  # starts the driver
    before = helper.current_context()
    yield
    helper.Capture.end_all()
    gc.collect()
    gi.synchronize()
    assert helper.current_context() == before
    assert devices.current_stream("cuda:0").handle == helper.LEGACY
    if hasattr(helper.libcuda(), "fakecuda_faults"):
        assert helper.fake_faults() == ""


@pytest.fixture
def second_device():
    if len(gi.devices()) < 3:
        pytest.skip("one CUDA device only")
    return "cuda:1"

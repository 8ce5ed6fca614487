"""Tests of devices, streams and memory, which leave the driver as they found it."""

import pytest
from helpers.tidy import tidy as tidy

import gpuinterop as gi


@pytest.fixture
def second_device():
    if len(gi.devices()) < 3:
        pytest.skip("one CUDA device only")
    return "cuda:1"

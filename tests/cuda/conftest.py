"""Tests of devices, streams and memory.

``both/`` runs on a real GPU (marked ``gpu``) and on the fake driver; ``fake/`` needs the fake, for it
looks behind the driver's interface. A process has one driver, so test_on_fake.py runs the two
folders in a process of their own.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import helper
import pytest

import gpuinterop as gi
from gpuinterop import devices

HERE = Path(__file__).parent
ON_FAKE = "fakecuda" in os.environ.get("GPUINTEROP_LIBCUDA", "")

collect_ignore = [] if ON_FAKE else [str(HERE / "fake")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not ON_FAKE:  # named on the command line, where collect_ignore does not count
        strangers = [item for item in items if item.path.is_relative_to(HERE / "fake")]
        items[:] = [item for item in items if item not in strangers]
        config.hook.pytest_deselected(items=strangers)
    for item in items:
        if item.path.is_relative_to(HERE / "both") and not ON_FAKE:
            item.add_marker(pytest.mark.gpu)


def uses_the_driver(path: Path) -> bool:
    return path.is_relative_to(HERE / "both") or path.is_relative_to(HERE / "fake")


@pytest.fixture(autouse=True)
def tidy(request):
    """Each test of the driver leaves the thread's streams and contexts as they were, and no fault."""
    if not uses_the_driver(request.path):
        yield
        return
    helper.primary()  # starts the driver
    before = helper.current_context()
    yield
    helper.Capture.end_all()
    gc.collect()
    gi.synchronize()
    assert helper.current_context() == before
    assert devices.current_stream("cuda:0").handle == helper.LEGACY
    if ON_FAKE:
        assert helper.fake_faults() == ""


@pytest.fixture
def second_device():
    if len(gi.devices()) < 3:
        pytest.skip("one CUDA device only")
    return "cuda:1"

"""Tests of devices, streams and memory.

``both/`` runs on a real GPU (marked ``gpu``) and on the fake driver; ``fake/`` needs the fake, for it
looks behind the driver's interface. A process has one driver, so test_on_fake.py runs the two
folders in a process of their own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ON_FAKE = "fakecuda" in os.environ.get("GPUINTEROP_LIBCUDA", "")

collect_ignore = [] if ON_FAKE else [str(HERE / "fake")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE / "both") and not ON_FAKE:
            item.add_marker(pytest.mark.gpu)

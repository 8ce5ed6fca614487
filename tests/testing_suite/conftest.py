"""device/ runs on a real GPU (marked ``gpu``) and, in a process of its own, on the fake driver."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "device"), str(HERE.parent / "fakecuda")]
ON_FAKE = "fakecuda" in os.environ.get("GPUINTEROP_LIBCUDA", "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE / "device") and not ON_FAKE:
            item.add_marker(pytest.mark.gpu)

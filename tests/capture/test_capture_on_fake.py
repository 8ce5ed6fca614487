"""Captures of GPUs without one: on the fake driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_captures_on_the_fake_driver() -> None:
    driver = subprocess.run(
        [sys.executable, str(ROOT / "tests/fakecuda/build.py")],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / "on_fake_capture.py")],
        cwd=ROOT, env={**os.environ, "GPUINTEROP_LIBCUDA": driver, "GPUINTEROP_TEST_FAKE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout

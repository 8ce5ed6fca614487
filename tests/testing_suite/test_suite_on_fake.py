"""Run device/ on the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import build

HERE = Path(__file__).parent


def test_device_suite_on_the_fake_driver():
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", str(HERE / "device")],
        env={**os.environ, "GPUINTEROP_LIBCUDA": str(build.library())},
        cwd=HERE.parents[1], capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    print(result.stdout[-6000:], result.stderr[-2000:])
    assert result.returncode == 0
    assert " passed" in result.stdout

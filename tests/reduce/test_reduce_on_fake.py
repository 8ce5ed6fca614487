"""The CUDA path without a GPU: a fake driver runs the kernels' own text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.slow  # minutes of g++
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_reduce_methods_on_the_fake_driver() -> None:
    built = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "fakecuda" / "build.py")],
        check=True,
        capture_output=True,
        text=True,
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            str(HERE / "on_fake_reduce.py"),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "GPUINTEROP_LIBCUDA": built.stdout.strip(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "examples")]),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

"""Products on the CUDA path without a GPU: fakes of the driver and of cuBLAS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.slow  # two minutes of g++
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_products_on_the_fakes(tmp_path: Path) -> None:
    library = tmp_path / "libfakecublas.so"
    subprocess.run(
        [
            "g++",
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            str(HERE / "fakecublas.cpp"),
            "-o",
            str(library),
            "-ldl",
        ],
        check=True,
    )
    driver = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "fakecuda" / "build.py")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
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
            str(HERE / "on_fake_blas.py"),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "GPUINTEROP_LIBCUDA": driver,
            "GPUINTEROP_LIBCUBLAS": str(library),
            "GPUINTEROP_LIBCUBLASLT": str(library),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

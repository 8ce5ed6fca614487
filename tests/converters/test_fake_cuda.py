"""The converters of GPU libraries on stand-in objects, with a driver that works on host memory.

The core opens one driver for the life of a process, so these run in processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinterop import jit
from gpuinterop.errors import LibraryNotFoundError

HERE = Path(__file__).parent
FILES = sorted((HERE / "fake_cuda").glob("check_*.py"))


@pytest.fixture(scope="session")
def fake_driver():
    try:
        jit.supported_archs()  # strided copies are kernels, also on the stand-in driver
    except LibraryNotFoundError as error:
        pytest.skip(f"no NVRTC: {error.got}")
    sys.path.insert(0, str(HERE.parent / "fakecuda"))
    from build import library

    return str(library())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_stand_ins(file, fake_driver):
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(file), "-q", "-p", "no:cacheprovider", "--no-header"],
        env={**os.environ, "GPUINTEROP_LIBCUDA": fake_driver},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]

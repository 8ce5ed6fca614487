"""The tests of this folder once more, on "cuda:0" of the fake driver with kernels built by g++."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def fake_driver() -> str:
    spec = importlib.util.spec_from_file_location("fake_build", ROOT / "tests/fakecuda/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.library())


def run(*options: str, launcher: tuple[str, ...] = (), **environment: str) -> None:
    environment = {
        **os.environ,
        "GPUINTEROP_LIBCUDA": fake_driver(),
        "GPUINTEROP_TEST_FAKE": "1",
        **environment,
    }
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "pytest", str(HERE), "-q", "-x", "-p", "no:cacheprovider",
         f"--ignore={__file__}", *options],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.slow  # minutes of g++
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_kernels_on_the_host():
    run("-m", "not slow and not gpu and not barriers")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_kernels_under_the_address_sanitizer():
    run(
        "-m", "not slow and not gpu and not barriers", "-k", "test_layouts",
        launcher=("sh", str(ROOT / "tools/with-asan")), GPUINTEROP_TEST_ASAN="1",
    )  # fmt: skip

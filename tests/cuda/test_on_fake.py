"""Run both/ and fake/ on the fake driver, once as it is and once without memory pools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import helper
import pytest

HERE = Path(__file__).parent


def run(arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "GPUINTEROP_LIBCUDA": str(helper.fake_library()), **environment},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.parametrize("pools", ["1", "0"])
def test_suite_passes_on_the_fake_driver(pools):
    result = run(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "both"), str(HERE / "fake")],
        FAKECUDA_POOLS=pools,
    )
    print(result.stdout[-6000:], result.stderr[-2000:])
    assert result.returncode == 0
    assert " passed" in result.stdout

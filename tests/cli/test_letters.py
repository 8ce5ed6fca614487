"""What is printed where the terminal lacks a letter of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("letters", ["ascii", "utf-8:strict", "latin-1"])
def test_a_path_is_printed_whatever_letters_the_terminal_has(letters):
    around = {**os.environb, b"CUDA_PATH": b"/opt/\xff/\xc3\xbc\xe2\x82\xac"}
    around[b"PYTHONIOENCODING"] = letters.encode()
    done = subprocess.run(
        [sys.executable, "-m", "gpuinterop", "doctor", "--verbose"],
        env=around, capture_output=True, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"CUDA_PATH=/opt/" in done.stdout
    assert done.returncode in (0, 1)

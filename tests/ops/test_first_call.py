"""How many files of the package the first call of an operation passes through."""

from __future__ import annotations

import subprocess
import sys

FIRST_SUM = """
import os, sys
import numpy as np
import gpuinterop as gi
x = gi.asarray(np.ones((4, 4), "float32"), device="cpu")
root = os.path.dirname(gi.__file__)
files = []
def profile(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
        if not files or files[-1] != file:
            files.append(file)
sys.setprofile(profile)
x + x
sys.setprofile(None)
print(len(set(files)), len(files) - len(set(files)))
"""


def test_the_first_sum_on_the_host_passes_few_files():
    done = subprocess.run(
        [sys.executable, "-c", FIRST_SUM], capture_output=True, text=True, check=True
    )
    files, returns = map(int, done.stdout.split())
    assert 0 < files <= 8
    assert returns <= 10

"""How many files of the package a first call passes, and how often it returns to a file that it had left."""

import pytest
from doubles import driver

JOURNEY = """
import os, sys
import numpy
{library}
import gpuinterop as gi

x = gi.asarray(numpy.ones((4, 4), "float32"), device="cpu")
to, explain = gi.to, gi.explain
root = os.path.dirname(gi.__file__)
files = []

def profile(frame, event, arg):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
        if not files or files[-1] != file:
            files.append(file)

sys.setprofile(profile)
{call}
sys.setprofile(None)
print(len(set(files)), len(files) - len(set(files)), *(os.path.relpath(f, root) for f in files))
"""


def journey(call: str, library: str = "") -> tuple[int, int, str]:
    code = JOURNEY.format(call=call, library=library)
    files, returns, *path = driver.run(code, timeout=120).split()
    return int(files), int(returns), " > ".join(path)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("call", "most_files", "most_returns"),
    [('to(x, "torch")', 6, 4), ('explain(x, "torch")', 8, 12)],
    ids=["to", "explain"],
)
def test_a_first_conversion_passes_few_files(call, most_files, most_returns):
    pytest.importorskip("torch")
    files, returns, path = journey(call, "import torch")
    assert files <= most_files, path
    assert returns <= most_returns, path


def test_a_first_sum_on_the_host_passes_few_files():
    files, returns, path = journey("x + x")
    assert files <= 8, path
    assert returns <= 10, path

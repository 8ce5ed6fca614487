"""The demo keeps its word: nothing is called shared that was not seen to be shared."""

import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from doubles import driver, internals

import gpuinterop as gi
from gpuinterop.cli import main
from gpuinterop.testing import Matrix


@pytest.mark.gpu
def test_demo_runs_on_the_gpu():
    done = driver.python("-m", "gpuinterop", "demo", "--device", "cuda")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on cuda:0" in done.stdout


@pytest.fixture
def demo_of(capsys, clean):
    """Runs the demo with NumPy under the name "toy", and with another function that converts to it."""

    def run_demo(convert, *words: str) -> str:
        bridge = replace(internals.bridge("numpy"), name="toy")
        module = types.SimpleNamespace(
            __name__="toy", testing_bridge=bridge, to_toy=convert, from_toy=gi.from_any
        )
        gi.converters.register(gi.converters.Backend("toy", "numpy", converter=module))
        assert main(["demo", "--device", "cpu", "--only", "toy", *words]) == 1
        return capsys.readouterr().out

    return run_demo


def test_a_library_that_copies_silently_is_caught(demo_of):
    text = demo_of(lambda x, copyif=False: np.array(x))
    assert "address: expected 0x" in text
    found = Matrix.from_json(demo_of(lambda x, copyif=False: np.array(x), "--json"))
    assert found.outcome(layout="C") == "wrong"


def test_a_library_that_fails_is_a_line_of_the_table(demo_of):
    def convert(x, copyif=False):
        raise MemoryError("no room\nand a long trace")

    text = demo_of(convert)
    (row,) = (line for line in text.splitlines() if line.strip().startswith("toy "))
    assert row.count("WRONG") == 4
    assert "error: expected no error, or a GpuInteropError, got MemoryError: no room\n" in text


def test_a_closed_pipe_prints_no_traceback():
    command = f"{sys.executable} -m gpuinterop demo --device cpu --only numpy | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr

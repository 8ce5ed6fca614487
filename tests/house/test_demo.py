"""The demo keeps its word: nothing is called shared that was not seen to be shared."""

import json
import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from doubles import internals

import gpuinterop as gi
from gpuinterop.cli import main


def run(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "gpuinterop", "demo", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


def test_demo_runs_here():
    code, text = run("--device", "cpu")
    assert code == 0, text
    assert not [word for word in ("BROKEN", "WRONG", "NOT:") if word in text]
    head, _, table = text.partition("3. What was shared")
    assert "fix: pass copyif=True" in head
    rows = {line.split()[0]: line for line in table.splitlines() if line.split()}
    assert rows["numpy"].split()[2:] == ["shared"] * 4


@pytest.mark.gpu
def test_demo_runs_on_the_gpu():
    code, text = run("--device", "cuda")
    assert code == 0, text
    assert "on cuda:0" in text


@pytest.fixture
def demo_of(capsys):
    """Runs the demo with NumPy under the name "toy", and with another function that converts to it."""
    saved = internals.save_registry()

    def run_demo(convert, *words: str) -> str:
        bridge = replace(internals.bridge("numpy"), name="toy")
        module = types.SimpleNamespace(
            __name__="toy", testing_bridge=bridge, to_toy=convert, from_toy=gi.from_any
        )
        gi.converters.register(gi.converters.Backend("toy", "numpy", converter=module))
        assert main(["demo", "--device", "cpu", "--only", "toy", *words]) == 1
        return capsys.readouterr().out

    yield run_demo
    internals.restore_registry(saved)


def test_a_library_that_copies_silently_is_caught(demo_of):
    (row,) = json.loads(demo_of(lambda x, copyif=False: np.array(x), "--json"))["libraries"]
    assert row["one_memory"].startswith("NOT: write by gpuinterop seen")
    assert row["outcomes"]["x"] == "BROKEN"


def test_a_library_that_drops_strides_is_caught(demo_of):
    text = demo_of(lambda x, copyif=False: np.zeros(x.shape, "float32"), "--json")
    (row,) = json.loads(text)["libraries"]
    assert row["outcomes"]["x[:, ::-1]"] == "WRONG"


def test_a_library_that_fails_is_a_line_of_the_table(demo_of):
    def convert(x, copyif=False):
        raise MemoryError("no room\nand a long trace")

    text = demo_of(convert)
    assert "FAILED: MemoryError: no room\n" in text
    assert text.splitlines()[-1].strip() == "toy failed: MemoryError: no room"
    (row,) = json.loads(demo_of(convert, "--json"))["libraries"]
    assert set(row["outcomes"].values()) == {"FAILED"}


def test_a_closed_pipe_is_no_traceback():
    command = f"{sys.executable} -m gpuinterop demo --device cpu --only numpy | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr

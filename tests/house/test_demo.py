"""The demo keeps its word: nothing is called shared that was not seen to be shared."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gpuinterop.cli import demo
from gpuinterop.testing import peers


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


def library(convert):
    """NumPy with another function that converts to it."""
    return demo.Library(replace(peers.load("numpy"), to=convert))


def test_a_library_that_copies_silently_is_caught():
    liar = library(lambda x, copyif=False: x.copy())
    assert demo.share(liar, demo.gi.device("cpu")).startswith("NOT: our write seen there")
    assert liar.cells[demo.PLAIN] == "BROKEN"


def test_a_library_that_drops_strides_is_caught():
    liar = library(lambda x, copyif=False: np.zeros(x.shape, "float32"))
    demo.offer(liar, "x[:, ::-1]", demo.gi.device("cpu"))
    assert liar.cells["x[:, ::-1]"] == "WRONG"


def test_a_library_that_fails_is_a_line_of_the_table():
    def convert(x, copyif=False):
        raise MemoryError("no room\nand a long trace")

    broken = library(convert)
    place = demo.gi.device("cpu")
    assert demo.share(broken, place) == "FAILED: MemoryError: no room"
    for view in demo.VIEWS:
        demo.offer(broken, view, place)
    assert set(broken.cells.values()) == {"FAILED"}
    assert demo.table([broken]).splitlines()[-1].strip() == "numpy failed: MemoryError: no room"


def test_a_closed_pipe_is_no_traceback():
    command = f"{sys.executable} -m gpuinterop demo --device cpu --only numpy | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr

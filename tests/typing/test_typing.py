"""A user's program passes mypy --strict, and mistakes in it are found."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuinterop

PROGRAM = Path(__file__).with_name("user_program.py")
# The package under test, whether it is the source tree's or an installed one.
PACKAGE = Path(gpuinterop.__file__).parents[1]


@pytest.fixture
def mypy(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")

    def check(program: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version=3.12",
                   # What is judged is the program, not the optional libraries that the package names.
                   "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(program)]  # fmt: skip
        environment = {**os.environ}
        if PACKAGE.name != "site-packages":
            environment["MYPYPATH"] = str(PACKAGE)
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
        )

    return check


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "gpuinterop" / "py.typed").is_file()


def test_the_program_runs():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE)}, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "gpuinterop.devices()" in done.stdout


def test_the_program_passes(mypy):
    done = mypy(PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


MISTAKES = {
    "x.no_such_method()": 'has no attribute "no_such_method"',
    "gi.mem_info(1, 2)": "Too many arguments",
    "x.shape + 1": "No overload variant",
    "n: int = x.T": "Incompatible types in assignment",
    "x.reshape(2, 2, order=3)": "order",
    "x.shape = 'C'": "Incompatible types in assignment",
}


def test_mistakes_are_found(mypy, tmp_path):
    program = tmp_path / "mistaken.py"
    program.write_text(
        "\n".join(["import gpuinterop as gi", "x = gi.CudaNdarray([1.0])", *MISTAKES])
    )
    done = mypy(program)
    assert done.returncode == 1, done.stdout + done.stderr
    for number, (line, fault) in enumerate(MISTAKES.items(), 3):
        said = [told for told in done.stdout.splitlines() if f"mistaken.py:{number}:" in told]
        assert fault in "".join(said), f"{line}: {said}"

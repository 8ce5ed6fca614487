"""Without PyTensor, or on a Python older than it needs, the import and the command say what to do."""

import re
from pathlib import Path

import pytest
from doubles import driver

ROOT = Path(__file__).parents[2]
OLD = "sys.version_info, sys.version = (3, 11, 7, 'final', 0), '3.11.7 (main)'"
MISSING = "sys.modules['pytensor'] = None"
ASKED = {
    "import gpuinterop.pytensor": 1,
    "import gpuinterop.theano as old; old.install({})": 1,
    "sys.exit(gpuinterop.cli.main(['run', 'check1.py.txt']))": 2,
}


def errors_of(program: str) -> tuple[int, str]:
    program = "import sys, gpuinterop.cli; " + program
    done = driver.python("-c", program, cwd=driver.ROOT / "tests" / "documents")
    return done.returncode, done.stderr


@pytest.mark.parametrize(("command", "code"), ASKED.items())
def test_an_older_python_is_named(command, code):
    lowest = re.search(
        r"pytensor>=.*python_version >= '([\d.]+)'",
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
    )
    status, text = errors_of(f"{OLD}; {command}")
    assert status == code, text
    assert f"gpuinterop.pytensor: expected Python {lowest[1]} or later" in text
    assert "got: Python 3.11.7\n" in text


@pytest.mark.parametrize(("command", "code"), ASKED.items())
def test_a_missing_package_is_named(command, code):
    status, text = errors_of(f"sys.version_info = (3, 12, 0, 'final', 0); {MISSING}; {command}")
    assert status == code, text
    assert "gpuinterop.pytensor: expected the package pytensor" in text
    assert "fix: pip install 'gpuinterop[pytensor]'" in text


def test_a_program_in_python_2_needs_a_translator():
    program = "from gpuinterop.theano.python2 import compiled; compiled('print 1', 'old.py')"
    status, text = errors_of(f"sys.modules['fissix'] = None; {program}")
    assert status == 1
    assert "expected the package fissix" in text
    assert "fix: pip install 'gpuinterop[pytensor]'" in text

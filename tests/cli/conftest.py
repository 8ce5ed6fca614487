"""Runs commands in this process, with arrays on the CPU."""

import pytest

import gpuinterop as gi
from gpuinterop.cli import main


@pytest.fixture
def run(capsys):
    """Run a command; return its exit code, output and errors."""

    def run(*words):
        with gi.device("cpu"):
            code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return run

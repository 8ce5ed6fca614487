"""Runs programs of Theano's time in processes of their own."""

import os
from pathlib import Path

from doubles import driver
from doubles.on_fake import FAKE

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "documents"


def run(script, **flags):
    """What ``gpuinterop run`` prints for a script, in the test's environment, which may name a fake driver."""
    environment = {"THEANO_FLAGS": ",".join(f"{k}={v}" for k, v in flags.items()),
                   "PYTENSOR_FLAGS": "cxx=,blas__ldflags=", "THEANORC": os.devnull}  # fmt: skip
    kernels = "from doubles import host_kernels; host_kernels.install(); " if FAKE else ""
    command = f"from gpuinterop.cli import main; raise SystemExit(main(['run', {str(script)!r}]))"
    done = driver.python("-c", kernels + command, cwd=PROGRAMS, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr

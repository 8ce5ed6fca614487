"""Runs programs of Theano's time in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from doubles.on_fake import FAKE

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "documents"


def run(script, **flags):
    """What ``gpuinterop run`` prints for a script, in the test's environment, which may name a fake driver."""
    environment = {**os.environ, "THEANO_FLAGS": ",".join(f"{k}={v}" for k, v in flags.items()),
                   "PYTENSOR_FLAGS": "cxx=,blas__ldflags=", "THEANORC": os.devnull}  # fmt: skip
    kernels = "from doubles import host_kernels; host_kernels.install(); " if FAKE else ""
    command = f"from gpuinterop.cli import main; sys.exit(main(['run', {str(script)!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); {kernels}{command}"],
        check=False, capture_output=True, text=True, env=environment, cwd=PROGRAMS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr

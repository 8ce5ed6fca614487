"""Runs programs of Theano's time in processes of their own."""

import os
from pathlib import Path

from doubles import driver
from doubles.on_fake import FAKE

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "documents"


def process(script, *options, stdin=None, gpu=True, **flags):
    """The ended process of ``gpuinterop run``, in the test's environment, which may name a fake driver."""
    environment = {"THEANO_FLAGS": ",".join(f"{k}={v}" for k, v in flags.items()),
                   "PYTENSOR_FLAGS": "cxx=,blas__ldflags=", "THEANORC": os.devnull}  # fmt: skip
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    kernels = "from doubles import host_kernels; host_kernels.install(); " if FAKE else ""
    command = (
        f"from gpuinterop.cli import main; raise SystemExit(main({['run', *options, str(script)]}))"
    )
    return driver.python("-c", kernels + command, cwd=PROGRAMS, stdin=stdin, **environment)


def run(script, *options, stdin=None, gpu=True, **flags):
    """What ``gpuinterop run`` prints for a script that ends without an error."""
    done = process(script, *options, stdin=stdin, gpu=gpu, **flags)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr

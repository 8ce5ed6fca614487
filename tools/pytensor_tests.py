#!/usr/bin/env python3
"""Run PyTensor's own tests in the mode "GPU": ``pytensor_tests.py CHECKOUT [--device cpu] [pytest arguments]``.

CHECKOUT is a source tree of the installed PyTensor with its folder tests/, which its packages on the index do not
contain. The tests of elementwise operations, reductions, products, indexing, gradients and shared variables run with
floatX=float32, mode "GPU" as the default and shared float32 variables on the device. pytensor_tests.txt, beside this
file, lists the tests that are omitted: a pattern of test names, ``|``, the reason.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = [
    "tensor/test_elemwise.py", "tensor/test_math.py", "tensor/test_blas.py", "tensor/test_subtensor.py",
    "tensor/test_shared.py", "tensor/test_sharedvar.py", "tensor/test_basic.py", "tensor/test_special.py",
    "test_gradient.py", "test_rop.py", "test_raise_op.py", "test_ifelse.py",
]  # fmt: skip


def left_out() -> dict[str, str]:
    """Return the patterns of tests that do not run, with their reasons."""
    lines = (HERE / "pytensor_tests.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("|", 1) for line in lines if line and not line.startswith("#"))
    return {pattern.strip(): reason.strip() for pattern, reason in pairs}


class Plugin:
    """Sets the mode, and skips the listed tests."""

    def __init__(self, device: str) -> None:
        self.device = device

    def pytest_configure(self) -> None:
        import gpuinterop.pytensor as backend

        backend.use(self.device)

    def pytest_collection_modifyitems(self, items: list[object]) -> None:
        import pytest

        reasons = left_out()
        for item in items:
            for pattern, reason in reasons.items():
                if pattern in item.nodeid:  # type: ignore[attr-defined]
                    item.add_marker(pytest.mark.skip(reason=reason))  # type: ignore[attr-defined]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--device", default="cpu")
    chosen, rest = parser.parse_known_args()
    tests = chosen.checkout.resolve() / "tests"
    found = [str(tests / name) for name in FILES if (tests / name).exists()]
    if not found:
        parser.error(f"{tests} has none of the test files; pass a source tree of PyTensor")
    if "GPUINTEROP_PYTENSOR_TESTS" not in os.environ:  # flags are read when PyTensor is imported
        flags = "floatX=float32,cxx=,blas__ldflags="
        environment = {**os.environ, "GPUINTEROP_PYTENSOR_TESTS": "1", "PYTENSOR_FLAGS": flags}
        return subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode
    import pytest

    os.chdir(chosen.checkout)
    sys.path.insert(0, str(chosen.checkout.resolve()))
    arguments = ["-q", "-p", "no:cacheprovider", "-rs", *found, *rest]
    return int(pytest.main(arguments, plugins=[Plugin(chosen.device)]))


if __name__ == "__main__":
    sys.exit(main())

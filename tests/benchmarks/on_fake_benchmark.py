"""Runs one benchmark with kernels built by g++: python on_fake_benchmark.py NAME OPTION..."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / p) for p in ("benchmarks", "tests/ops", "tests/reduce")]

import hostkernels  # noqa: E402
from reduce_shim import fake_image  # noqa: E402

from gpuinterop.ops import raw_kernel, reduction_dispatch  # noqa: E402

hostkernels.install()
reduction_dispatch.compile_source = fake_image  # type: ignore[assignment]


def empty_image(text: str, _arch: int, **_: object) -> bytes:
    """Kernels that are only launched here: nothing is computed."""
    names = re.findall(r"__global__ void (\w+)\(([^)]*)\)", text)
    program = "".join(
        f'extern "C" void {name}(const unsigned*, const unsigned*, unsigned, void**) {{}}\n'
        f'extern "C" const unsigned {name}_parameters[] = {{{"8, " * (taken.count(",") + 1)}0}};\n'
        for name, taken in names
    )
    return f"FAKECUDA:{hostkernels.library(program)}".encode()


raw_kernel.compile_source = empty_image  # type: ignore[assignment]
name = sys.argv.pop(1)
sys.argv[0] = str(ROOT / "benchmarks" / f"bench_{name}.py")
runpy.run_path(sys.argv[0], run_name="__main__")

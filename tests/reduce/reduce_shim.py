"""Runs reduction kernels on the CPU: g++ compiles their text, fibers play the threads of a block.

Barriers and shuffles work, because a thread that reaches one yields to the next thread until all
have arrived (tests/ops/hostrun.cpp).
"""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path

import pytest

from gpuinterop.jit import kernel_text

sys.path.append(str(Path(__file__).parents[1] / "ops"))

import hostkernels


def compile_kernel(text: str, mode: str) -> ctypes.CDLL:
    """The kernels of `text` as host functions `first` and `second`."""
    return ctypes.CDLL(str(build(text, mode)))


def fake_image(text: str, arch: int, name: str = "", **_: object) -> bytes:
    """What stands for a cubin where tests/fakecuda stands for the driver."""
    mode = "rows" if "gi_reduce_rows" in text else "columns"
    return b"FAKECUDA:" + str(build(text, mode)).encode() + b"\0"


def build(text: str, mode: str) -> Path:
    names = [f"gi_reduce_{mode}", f"gi_finish_{mode}"]
    source = host_text(text).replace('extern "C" __global__', "static")
    for name in names:
        source = source.replace(name, f"{name}_kernel")
    for name in names:
        source += f"""
static void {name}_call(void* p) {{ {name}_kernel(*(Params*)p); }}
extern "C" const unsigned {name}_parameters[] = {{sizeof(Params), 0}};
extern "C" void {name}(const unsigned* grid, const unsigned* block, unsigned, void** args) {{
  host_run(grid, block, {name}_call, args[0], 1);
}}
"""
    source += f"""
extern "C" void first(void* params, unsigned gx, unsigned gy) {{
  const unsigned grid[] = {{gx, gy, 1}}, block[] = {{GI_BLOCK, 1, 1}};
  host_run(grid, block, {names[0]}_call, params, 1);
}}
extern "C" void second(void* params, unsigned gx) {{
  const unsigned grid[] = {{gx, 1, 1}}, block[] = {{GI_BLOCK, 1, 1}};
  host_run(grid, block, {names[1]}_call, params, 1);
}}
extern "C" long sizes(int which) {{ return which ? sizeof(Params) : sizeof(Acc); }}
"""
    return shared_object(source)


def built(text: str) -> ctypes.CDLL:
    """Host functions made of plain kernel text."""
    return ctypes.CDLL(str(shared_object(host_text(text))))


def host_text(text: str) -> str:
    # The host's version of what only a GPU can run.
    return hostkernels.SHIM + text.replace(kernel_text("device.cuh"), "")


def shared_object(source: str) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    # Fibers would take many times as long through the sanitizer's checks.
    return hostkernels.library(source, "-O1", sanitized=False)

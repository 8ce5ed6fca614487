"""Kernel text as host code: g++ compiles what NVRTC would, for the fake driver to run.

`install()` puts it in the place of NVRTC, so that a whole warm call (operands, layout, plan, launch,
kernel) runs on a machine without a GPU.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from gpuinterop.jit import codegen
from gpuinterop.jit.spec import KernelSpec
from gpuinterop.ops import runtime

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "hostkernels"
ASAN = os.environ.get("GPUINTEROP_TEST_ASAN") == "1"


def host_text(specs: list[KernelSpec]) -> str:
    """The program for the host: the kernel under another name, and the fake driver's entry to it."""
    text = codegen.render_many(specs, device=f'#include "{HERE / "hostshim.hpp"}"')
    tail = []
    for spec in specs:
        name = spec.symbol
        text = text.replace(f"#define GI_NAME {name}\n", f"#define GI_NAME {name}_kernel\n")
        tail.append(
            f"static void {name}_call(void* p) {{ using namespace {codegen.NAMESPACE}; "
            f"{name}_kernel(*({name}_arguments*)p); }}\n"
            f'extern "C" void {name}(const unsigned* g, const unsigned* b, unsigned, void** a) '
            f"{{ host_run(g, b, {name}_call, a[0], {int(spec.layout == 'tile')}); }}\n"
            f'extern "C" const unsigned {name}_parameters[] = {{sizeof({codegen.NAMESPACE}::{name}_arguments), 0}};\n'
        )
    return text + "\n" + "\n".join(tail)


def _compile(source: Path, target: Path, *flags: str) -> None:
    partial = target.with_suffix(f".{os.getpid()}")
    sanitize = (
        [
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=undefined",
            "-fno-sanitize=float-divide-by-zero,float-cast-overflow,alignment",
        ]
        if ASAN
        else []
    )
    command = [
        "g++",
        "-std=c++17",
        "-x",
        "c++",
        "-shared",
        "-fPIC",
        "-fno-strict-aliasing",
        "-w",
        "-ffp-contract=off",
        *sanitize,
        str(source),
        "-x",
        "none",
        *flags,
        "-o",
        str(partial),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[:3000]
    partial.replace(target)


@cache
def _runner() -> Path:
    BUILD.mkdir(parents=True, exist_ok=True)
    source = HERE / "hostrun.cpp"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = BUILD / f"libhostrun-{digest}{'-asan' if ASAN else ''}.so"
    if not target.exists():
        _compile(source, target, "-std=c++20", "-O1", "-pthread")
    return target


def library(text: str) -> Path:
    """Path of the shared object made of a host program."""
    shim = (HERE / "hostshim.hpp").read_text()
    digest = hashlib.sha256((text + shim + str(ASAN)).encode()).hexdigest()[:24]
    target = BUILD / f"{digest}.so"
    if not target.exists():
        runner = _runner()
        source = BUILD / f"{digest}.{os.getpid()}.cpp"
        source.write_text(text)
        _compile(source, target, "-O0", str(runner), f"-Wl,-rpath,{runner.parent}")
        source.unlink()
    return target


def install() -> None:
    """From now on kernels are compiled for the host; call it once a process."""
    runtime.render = lambda spec: host_text([spec])
    runtime.compile_source = lambda text, _capability, **_: f"FAKECUDA:{library(text)}".encode()

"""Kernel text as host code: g++ compiles what NVRTC would, for the fake driver to run.

`install()` puts it in the place of NVRTC, so that a whole warm call (operands, layout, plan, launch,
kernel) runs on a machine without a GPU.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from gpuinterop.jit import codegen
from gpuinterop.jit.spec import KernelSpec
from gpuinterop.ops import core_callbacks

HERE = Path(__file__).resolve().parent
# Not in the source tree: what has been built is of use to every copy of it.
BUILD = Path(tempfile.gettempdir()) / f"gpuinterop-hostkernels-{os.getuid()}"
SHIM = (HERE / "hostshim.hpp").read_text()
ASAN = os.environ.get("GPUINTEROP_TEST_ASAN") == "1"


def host_text(specs: list[KernelSpec]) -> str:
    """The program for the host: the kernel under another name, and the fake driver's entry to it."""
    text = codegen.render_many(specs, device=SHIM)
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


SANITIZED = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-sanitize=float-divide-by-zero,float-cast-overflow,alignment",
)


def _compile(text: str, *flags: str) -> Path:
    """The shared object made of a program, kept for as long as that stays the same."""
    digest = hashlib.sha256("\n".join([*flags, text]).encode()).hexdigest()[:24]
    target = BUILD / f"{digest}.so"
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        # Names of its own: another process may build the same at this moment.
        source, partial = (target.with_suffix(f".{os.getpid()}.{end}") for end in ("cpp", "so"))
        source.write_text(text)
        command = ["g++", "-w", "-shared", "-fPIC", str(source), *flags, "-o", str(partial)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace"
        )
        assert done.returncode == 0, done.stderr[:3000]
        source.unlink()
        partial.replace(target)
    return target


@cache
def runner() -> Path:
    """What runs a kernel's grid. Not under the sanitizer, which does not know whose stack a fiber has."""
    return _compile((HERE / "hostrun.cpp").read_text(), "-std=c++17", "-O1")


def library(text: str, optimized: str = "-O0", sanitized: bool = ASAN) -> Path:
    """Path of the shared object made of a host program."""
    flags = [optimized, "-std=c++17", "-fno-strict-aliasing", "-ffp-contract=off"]
    # Every library has shared memory of its own, though all give it the same name.
    flags += ["-fno-gnu-unique", *(SANITIZED if sanitized else ())]
    return _compile(text, *flags, str(runner()), f"-Wl,-rpath,{runner().parent}")


def install() -> None:
    """From now on kernels are compiled for the host; call it once a process."""
    core_callbacks.render = lambda spec: host_text([spec])
    core_callbacks.compile_source = lambda text, _capability, **_: (
        f"FAKECUDA:{library(text)}".encode()
    )

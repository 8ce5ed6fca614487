"""Kernels as host code: g++ compiles what NVRTC would, and fibers play the threads of a block.

`install()` puts it in the place of NVRTC, so that a whole call (operands, layout, plan, launch, kernel)
runs on a machine without a GPU. Barriers and shuffles work, because a thread that reaches one yields to
the next thread until all have arrived (host_run.cpp).
"""

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

from gpuinterop.elementwise import codegen
from gpuinterop.jit import compiler, kernel_text

HERE = Path(__file__).resolve().parent
# Outside the source tree, so that all copies of it share what has been built.
BUILD = Path(tempfile.gettempdir()) / f"gpuinterop-hostkernels-{os.getuid()}"
SHIM = (HERE / "host_shim.hpp").read_text()
ASAN = os.environ.get("GPUINTEROP_TEST_ASAN") == "1"

# The kernels of a generated program: of elementwise operations, and all others.
_ELEMENTWISE = re.compile(r"^#define GI_NAME (\w+)$", re.MULTILINE)
_PLANNED = re.compile(r"\b(gi_\w+)\(const Params p\)")

# What the fake driver calls, and the sizes of the parameters, which it copies at a launch.
_ENTRY = """
static void {name}_call(void* p) {{ {kernel}(*({parameters}*)p); }}
extern "C" const unsigned {name}_parameters[] = {{sizeof({parameters}), 0}};
extern "C" void {name}(const unsigned* grid, const unsigned* block, unsigned, void** arguments) {{
  host_run(grid, block, {name}_call, arguments[0], {together});
}}
"""


def host_text(text: str) -> str:
    """Kernel text as C++: with the host's version of what only a GPU can run."""
    return SHIM + text.replace(kernel_text("device.cuh"), "")


def build(text: str) -> Path | None:
    """The shared object of a generated program, for the fake driver; None for a user's own kernels."""
    if shutil.which("g++") is None:
        import pytest  # programs that tests start need no more of it

        pytest.skip("no C++ compiler")
    source = host_text(text)
    if elementwise := _ELEMENTWISE.findall(text):
        for name in elementwise:
            source = source.replace(f"#define GI_NAME {name}\n", f"#define GI_NAME {name}_kernel\n")
            source += _ENTRY.format(
                name=name,
                kernel=f"{codegen.NAMESPACE}::{name}_kernel",
                parameters=f"{codegen.NAMESPACE}::{name}_arguments",
                together=int('#line 1 "tile.cuh"' in text),  # the one that has barriers
            )
        return library(source)
    if planned := _PLANNED.findall(text):
        source = source.replace('extern "C" __global__', "static")
        for name in planned:
            source = source.replace(name, f"{name}_kernel")
        source += f"using namespace {codegen.NAMESPACE};\n"
        for name in planned:
            source += _ENTRY.format(
                name=name, kernel=f"{name}_kernel", parameters="Params", together=1
            )
        # Fibers would take many times as long through the sanitizer's checks.
        return library(source, sanitized=False)
    return None


def load(text: str) -> ctypes.CDLL:
    """The functions of plain kernel text."""
    return ctypes.CDLL(str(library(host_text(text), sanitized=False)))


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
        # Names of its own: another process or thread may build the same at this moment.
        own = f"{os.getpid()}-{threading.get_ident()}"
        source, partial = (target.with_suffix(f".{own}.{end}") for end in ("cpp", "so"))
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
    """The program that runs a kernel's grid. Built without the sanitizer, which cannot track the stacks of fibers."""
    flags = ["-std=c++17", "-O1", "-Wl,--no-as-needed"]  # with all libraries that kernels may need
    return _compile((HERE / "host_run.cpp").read_text(), *flags)


def library(text: str, sanitized: bool = ASAN) -> Path:
    """Path of the shared object made of a host program."""
    # To optimize, and to link the standard libraries, which the runner has, would take longer than the tests' calls.
    flags = ["-O0", "-std=c++17", "-fno-strict-aliasing", "-ffp-contract=off"]
    # Every library has shared memory of its own, though all give it the same name.
    flags += ["-fno-gnu-unique", *(SANITIZED if sanitized else ("-nostdlib",))]
    return _compile(text, *flags, str(runner()), f"-Wl,-rpath,{runner().parent}", "-lgcc")


def install() -> None:
    """From now on g++ compiles the generated kernels of this process, and NVRTC only a user's own."""
    compile_for_gpus = compiler.nvrtc_compile

    def compile_for_host(source: str, name: str, target: Any, options: tuple[str, ...]) -> bytes:
        built = build(source)
        if built is None:
            return compile_for_gpus(source, name, target, options)
        return f"FAKECUDA:{built}".encode()

    compiler.nvrtc_compile = compile_for_host
    # Paths of host programs must not get into the user's cache of machine code.
    kept = tempfile.mkdtemp(prefix="gpuinterop-cubins-")
    os.environ["GPUINTEROP_CACHE_DIR"] = kept
    atexit.register(shutil.rmtree, kept, ignore_errors=True)

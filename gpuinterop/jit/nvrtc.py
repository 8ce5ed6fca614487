"""NVRTC through ctypes: its version and architectures, source code to cubin or PTX, and the kernels in these.

The library is opened on the first compilation, not on import and not on a cache hit.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import threading
import time
from functools import lru_cache, partial
from typing import Any, NamedTuple

from gpuinterop import _core
from gpuinterop.devices import find_libraries
from gpuinterop.errors import CompileError, CudaError, DeviceError


class Target(NamedTuple):
    """An architecture to compile for: `sm_90` gives a cubin, `compute_121` gives PTX for the driver.

    The suffix "a" adds the instructions of this architecture alone: `sm_90a`.
    """

    arch: int
    is_cubin: bool
    suffix: str = ""

    @property
    def option(self) -> str:
        kind = "sm" if self.is_cubin else "compute"
        return f"--gpu-architecture={kind}_{self.arch}{self.suffix}"


@lru_cache(maxsize=1)
def _library() -> Any:
    found = find_libraries.find("nvrtc")
    return ctypes.CDLL(found.path, handle=found.handle)


def is_open() -> bool:
    """Return whether this process has loaded the library."""
    return _library.cache_info().currsize > 0


def _check(code: int, call: str) -> None:
    if code:
        library = _library()
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CudaError(
            where="gpuinterop.jit",
            expected=f"{call} to succeed",
            got=f"{library.nvrtcGetErrorString(code).decode()} (code {code})",
            fix="install libnvrtc and libnvrtc-builtins of the same release",
        )


@lru_cache(maxsize=1)
def nvrtc_identity() -> tuple[tuple[int, int], tuple[int, ...], str]:
    """Return the version of NVRTC, the architectures that it compiles for, and its file."""
    library = _library()
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    _check(library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    _check(library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    archs = (ctypes.c_int * count.value)()
    _check(library.nvrtcGetSupportedArchs(archs), "nvrtcGetSupportedArchs")
    return (major.value, minor.value), tuple(sorted(archs)), str(library._name)


def select_target(capability: int, archs: tuple[int, ...]) -> Target:
    """Return the best target for a device of `capability` (90 for 9.0) among the architectures `archs`.

    Machine code runs on devices of the same major and the same or a later minor version. A device that is
    newer than the compiler gets PTX, which the driver translates.
    """
    same = [a for a in archs if a // 10 == capability // 10 and a <= capability]
    if same:
        return Target(max(same), True)
    older = [a for a in archs if a <= capability]
    if older:
        return Target(max(older), False)
    raise DeviceError(
        where="gpuinterop.jit",
        expected=f"a device of compute capability {min(archs) / 10:.1f} or newer for this NVRTC",
        got=f"compute capability {capability / 10:.1f}",
        fix="install an older NVRTC (CUDA 12 compiles for 5.0 and newer)",
    )


def _compile_error(name: str, source: str, command: str, log: str) -> CompileError:
    """Return the error with the compiler's first message, which quotes the line at fault."""
    first = re.search(r"^.*\berror\b[^\0]*?(?=\n\n|\Z)", log, re.MULTILINE)  # after the warnings
    error = CompileError(
        where=f"compiling {name}",
        expected="CUDA C++ that NVRTC accepts without headers",
        got=first[0] if first else log or "no machine code and no error",
        fix="correct the source code or the options; .log holds the whole log, .source the source code "
        f"({command})",
    )
    error.log, error.source = log, source
    return error


# When a process ends, NVRTC destroys its static objects, which a compilation in another thread uses. So the exit waits
# for compilations, and no thread but the main one can begin another.
_gate = threading.RLock()
_running: list[None] = []


@atexit.register
def _finish() -> None:
    _gate.acquire()
    end = time.monotonic() + 10
    while _running and time.monotonic() < end:
        time.sleep(0.002)


def nvrtc_compile(source: str, name: str, target: Target, options: tuple[str, ...]) -> bytes:
    """Compile one translation unit; a CompileError holds the log and the source code."""
    begin = (partial(_running.append, None), _running.pop)
    with _core.Block((_gate.acquire, None), begin, (_gate.release, None)):
        return _compile(source, name, target, options)


def _compile(source: str, name: str, target: Target, options: tuple[str, ...]) -> bytes:
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), 0, None, None
        ),
        "nvrtcCreateProgram",
    )
    try:
        arguments = [o.encode() for o in (target.option, *options)]
        vector = (ctypes.c_char_p * len(arguments))(*arguments)
        status = library.nvrtcCompileProgram(program, len(arguments), vector)
        command = " ".join(a.decode() for a in arguments)
        if status:
            # The log quotes lines of headers, whose encoding is unknown.
            log = _fetch(program, "ProgramLog").decode(errors="replace")
            raise _compile_error(name, source, command, log)
        code = _fetch(program, "CUBIN" if target.is_cubin else "PTX")
        if not code:
            raise _compile_error(name, source, command, "")  # for example with -dlto
        return code
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(program: ctypes.c_void_p, what: str) -> bytes:
    library, size = _library(), ctypes.c_size_t()
    _check(
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size"
    )
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, text), f"nvrtcGet{what}")
    # The log and PTX are C strings, a cubin is not.
    return text.raw if what == "CUBIN" else text.raw.rstrip(b"\0")


def kernels_in(code: bytes) -> list[str]:
    """Return the symbols of all kernels in a cubin, where each has a section of constants, or in PTX."""
    found = re.findall(rb"\0\.nv\.constant0\.([\w$]+)(?=\0)|\.entry\s+([\w$]+)", code)
    return sorted({(cubin or ptx).decode() for cubin, ptx in found})


def symbol_of(name: str, code: bytes, source: str) -> str:
    """Return the symbol of the kernel `name`: the name itself, or its only mangled form.

    C++ adds the types of the parameters to the name of a kernel that is not ``extern "C"``.
    """
    kernels = kernels_in(code)
    if not kernels or name in kernels:
        return name  # if there are no kernels, the driver reports the error
    forms = [kernel for kernel in kernels if kernel.startswith(f"_Z{len(name)}{name}")]
    if len(forms) == 1:
        return forms[0]
    error = CompileError(
        where=f"compiling {name}.cu", expected=f"one kernel called {name} in the source code",
        got=", ".join(forms or kernels), fix="pass one of these symbols as the name",
    )  # fmt: skip
    error.source = source
    raise error

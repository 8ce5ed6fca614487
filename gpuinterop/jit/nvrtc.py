"""NVRTC through ctypes: its version and architectures, and source code to cubin or PTX.

The library is opened on the first compilation, not on import and not on a cache hit.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from typing import Any, NamedTuple

from gpuinterop import cuda_libraries

from ..errors import CompileError, CudaError, DeviceError

__all__ = ["Target", "is_open", "nvrtc_identity", "nvrtc_compile", "select_target"]


class Target(NamedTuple):
    """An architecture to compile for: `sm_90` gives a cubin, `compute_121` gives PTX for the driver."""

    arch: int
    is_cubin: bool

    @property
    def option(self) -> str:
        return f"--gpu-architecture={'sm' if self.is_cubin else 'compute'}_{self.arch}"


@lru_cache(maxsize=1)
def _library() -> Any:
    found = cuda_libraries.find("nvrtc")
    return ctypes.CDLL(found.path, handle=found.handle)


def is_open() -> bool:
    """Whether this process has loaded the library."""
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


def select_target(capability: int, known: tuple[int, ...]) -> Target:
    """Return the best target for a device of `capability` (90 for 9.0) among the `known` architectures.

    Machine code runs on devices of the same major and the same or a later minor version. A device that is
    newer than the compiler gets PTX, which the driver translates.
    """
    same = [a for a in known if a // 10 == capability // 10 and a <= capability]
    if same:
        return Target(max(same), True)
    older = [a for a in known if a <= capability]
    if older:
        return Target(max(older), False)
    raise DeviceError(
        where="gpuinterop.jit",
        expected=f"a device of compute capability {min(known) / 10:.1f} or newer for this NVRTC",
        got=f"compute capability {capability / 10:.1f}",
        fix="install an older NVRTC (CUDA 12 compiles for 5.0 and newer)",
    )


_LOCATION = re.compile(
    r"^(?P<file>[^\s(]*)\((?P<line>\d+)\): (?:catastrophic )?error", re.MULTILINE
)


def _lines(source: str) -> list[str]:
    """Split into lines as the compiler counts them; str.splitlines also splits at page breaks and others."""
    return [line.removesuffix("\r") for line in source.split("\n")]


def _line_at(source: str, name: str, file: str, line: int) -> int | None:
    """Return the index in `source` of a line of a file that a #line directive names, None if there is none."""
    current, number, found = name, 0, None
    for index, text in enumerate(_lines(source)):
        number += 1
        directive = re.match(r'#line (\d+) "([^"]*)"', text)
        if directive:
            current, number = directive[2], int(directive[1]) - 1
        elif current == file and number == line:
            found = index  # the last match: code before a directive may have the same name
    return found


def _around(lines: list[str], at: int) -> range:
    """Return the indices from two lines before to one line after, within the same file."""
    first = last = at
    while first > max(0, at - 2) and not lines[first - 1].startswith("#line "):
        first -= 1
    if at + 1 < len(lines) and not lines[at + 1].startswith("#line "):
        last += 1
    return range(first, last + 1)


def _fix(complaint: str) -> str:
    if "unrecognized option" in complaint:
        return "omit the option, or spell it as this NVRTC does"
    if "could not open source file" in complaint:
        return (
            "copy the needed declarations into the source code, or pass the header's folder: "
            "options=('-I/path/to/headers',)"
        )
    at = "the line" if "error" in complaint and "(" in complaint else "the source code"
    return f"correct {at}"


def _compile_error(source: str, name: str, command: str, log: str) -> CompileError:
    shown = "the log names no line"
    match = _LOCATION.search(log)
    at = _line_at(source, name, match["file"], int(match["line"])) if match else None
    if at is not None and match:
        lines, named = _lines(source), int(match["line"])
        window = _around(lines, at)
        shown = "\n".join(
            f"{'>' if n == at else ' '} {named + n - at:4d} | {lines[n]}" for n in window
        )
    # The log may start with warnings.
    errors = log[match.start() :].strip() if match else log.strip()
    first = errors.splitlines()[0] if errors else "no log"
    error = CompileError(
        where=f"compiling {name}",
        expected="CUDA C++ that NVRTC accepts without headers",
        got=f"{first}\n{shown}",
        fix=f"{_fix(first)}; .log holds the whole log, .source the source code ({command})",
    )
    error.log, error.source = log, source
    return error


def _no_code(source: str, name: str, command: str) -> CompileError:
    error = CompileError(
        where=f"compiling {name}",
        expected="options with which NVRTC produces machine code",
        got="no machine code and no error",
        fix=f"omit the option that selects another output, such as -dlto ({command})",
    )
    error.source = source
    return error


def nvrtc_compile(source: str, name: str, target: Target, options: tuple[str, ...]) -> bytes:
    """Compile one translation unit; a CompileError holds the log and the source code."""
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
            raise _compile_error(source, name, command, log)
        code = _fetch(program, "CUBIN" if target.is_cubin else "PTX")
        if not code:
            raise _no_code(source, name, command)
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

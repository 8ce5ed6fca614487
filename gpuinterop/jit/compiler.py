"""Compile source code to machine code, through the caches."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.devices import find_libraries
from gpuinterop.errors import ArgumentTypeError, short_repr

from .cache import SCHEMA, DiskCache, cache_directory
from .nvrtc import Target, is_open, nvrtc_compile, nvrtc_identity, select_target

# IEEE division, square root and denormals are NVRTC's defaults. They stay, because results are compared
# with NumPy's in units in the last place.
# 177 is the warning about unused declarations: each kernel uses only a part of the prelude.
_OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--diag-suppress=177")

# For gpuinterop's own kernels: without this option the compiler contracts a product and a sum to one
# operation with one rounding, where NumPy rounds twice. Kernels that memory limits lose no time by it.
EXACT = ("--fmad=false",)

# Matches source code that reads files, which are not part of the cache key.
# The expression for a comment stops at the first "*/": with a second way to match, time would be exponential.
_INCLUDES = re.compile(r"(?:#|%:)(?:\s|/\*(?:(?!\*/).)*\*/)*include|__has_include", re.DOTALL)

Identity = tuple[tuple[int, int], tuple[int, ...]]  # version, architectures


def _disk_cache() -> DiskCache:
    return _cache_in(cache_directory())


_cache_in = lru_cache(maxsize=8)(DiskCache)


def _identity() -> Identity:
    """Return NVRTC's version and architectures; from the note on disk until the library is open."""
    noted = _read_note(find_libraries.decided_by("nvrtc"))
    return nvrtc_identity()[:2] if is_open() else noted


# The compiler's version is part of every key. With the version on disk, beside the path and time stamp of the
# library, a process that finds all its kernels in the cache does not load 100 MB of NVRTC.
@lru_cache(maxsize=8)
def _read_note(decided_by: str) -> Identity:
    """Return the identity that the note on disk holds, or write the note if the library has changed."""
    text = _disk_cache().get(_entry("note", decided_by))
    if text is not None:
        note = json.loads(text)  # as it was written: the checksum is right
        with contextlib.suppress(OSError):
            if _stamp(Path(note["path"])) == note["stamp"]:
                return tuple(note["version"]), tuple(note["archs"])
    return _write_note(decided_by)


def _write_note(decided_by: str) -> Identity:
    """Return the identity of the library, and write it to disk for later processes."""
    version, archs, path = nvrtc_identity()
    with contextlib.suppress(OSError):  # a name that only the loader resolves has no stamp
        note = {"path": path, "stamp": _stamp(Path(path)), "version": version, "archs": archs}
        _disk_cache().put(_entry("note", decided_by), json.dumps(note).encode())
    return version, archs


def _stamp(library: Path) -> list[int]:
    status = library.stat()
    return [status.st_mtime_ns, status.st_size]


def _entry(kind: str, *parts: str) -> str:
    """Return the name of an entry on disk. A path in `parts` may contain any bytes, as surrogates."""
    text = "\0".join((str(SCHEMA), *parts))
    return f"{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}.{kind}"


def compiler_version() -> tuple[int, int]:
    """Return the version of NVRTC: (major, minor)."""
    return _identity()[0]


def supported_archs() -> tuple[int, ...]:
    """Return the compute capabilities, times ten, for which NVRTC produces machine code."""
    return _identity()[1]


def _reads_files(source: str, options: tuple[str, ...]) -> bool:
    """Return whether the source code or the options include files."""
    spliced = re.sub(r"\\[ \t]*\r?\n", "", source)
    return bool(_INCLUDES.search(spliced)) or any(
        option.startswith(("-include", "--pre-include")) for option in options
    )


def compile_source(
    source: str,
    arch: int | Target,
    *,
    options: tuple[str, ...] = (),
    name: str = "kernel.cu",
) -> bytes:
    """Return a cubin (or PTX, for a device newer than the compiler) for `source`.

    Parameters
    ----------
    source : a whole translation unit. If it includes headers, every call compiles it, because the caches
        do not see when a header changes.
    arch : the device's compute capability times ten, 90 for 9.0.
    options : further NVRTC options, part of the cache key.
    name : the name of the file in messages.

    Raises
    ------
    CompileError
        With the log, the source code, and the line at fault.
    """
    version, archs = _identity()
    target = arch if isinstance(arch, Target) else select_target(arch, archs)
    own_options, options = options, (*_OPTIONS, *options)
    use_cache = not _reads_files(source, own_options)
    entry = _entry("cubin", str(version), target.option, *options, name, source)
    code = _disk_cache().get(entry) if use_cache else None
    if code is not None:
        return code
    if nvrtc_identity()[:2] != (version, archs):
        # The process had loaded another library than the one in the note.
        _write_note(find_libraries.decided_by("nvrtc"))
        return compile_source(source, arch, options=own_options, name=name)
    code = nvrtc_compile(source, name, target, options)
    if use_cache:
        _disk_cache().put(entry, code)
    return code


def require_text(value: Any, what: str, where: str) -> str:
    """Return `value` if it can be passed to the compiler."""
    if not isinstance(value, str):
        raise ArgumentTypeError(where=where, expected=f"text as {what}", got=short_repr(value),
                                fix="pass a str")  # fmt: skip
    bad = re.search("[\0\ud800-\udfff]", value)
    if bad:
        # The compiler would stop reading at a zero, and a lone surrogate cannot be encoded.
        line = value.count("\n", 0, bad.start()) + 1
        raise ArgumentTypeError(
            where=where, expected=f"text without zeros and lone surrogates as {what}",
            got=f"{bad[0]!r} in line {line}", fix="omit this character",
        )  # fmt: skip
    return value


def require_arch(arch: Any, where: str) -> int:
    """Return the argument of a kernel's `compile`."""
    if isinstance(arch, bool) or not isinstance(arch, (int, np.integer)):
        raise ArgumentTypeError(where=where, got=short_repr(arch),
                                expected="a compute capability times ten, as an int",
                                fix="pass 90 for capability 9.0, sm_90")  # fmt: skip
    return int(arch)


_functions: dict[tuple[int, tuple[str, ...], bytes], list[_core.LoadedKernel]] = {}


def loaded_kernels(
    device: int, text: str, names: Sequence[str], target: Target | None = None
) -> list[_core.LoadedKernel]:
    """Return the kernels of a text that are launched one after the other, compiled and loaded once.

    `target` replaces the best architecture for the device.
    """
    # One text may have several kernels, and a plan that joins parts and one that does not the same text.
    key = (device, tuple(names), hashlib.sha256(text.encode()).digest())
    kernels = _functions.get(key)
    if kernels is None:
        arch = target or _core._compute_capability(device)
        code = compile_source(text, arch, options=EXACT, name=f"{names[0]}.cu")
        kernels = [_core._load_kernel(device, code, name, name) for name in names]
        _functions[key] = kernels
    return kernels


@cache
def kernels_of(
    device: int, names: tuple[str, ...], text: Callable[..., str], *arguments: Any
) -> list[_core.LoadedKernel]:
    """Return the kernels of ``text(*arguments)``, which is composed once."""
    return loaded_kernels(device, text(*arguments), names)


@cache
def multiprocessors(device: int) -> int:
    """Return the number of multiprocessors of a GPU."""
    return int(_core.cuda_device_properties(device)["multiProcessorCount"])

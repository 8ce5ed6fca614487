"""Text to loadable code, through the caches."""

from __future__ import annotations

import hashlib
import re
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuinterop import cuda_libraries

from .cache import SCHEMA, DiskCache, MemoryCache, cache_directory
from .nvrtc import Target, is_open, nvrtc_compile, nvrtc_identity, select_target

__all__ = ["clear_cache", "compile_source", "compiler_version", "kernel_text", "supported_archs"]

# IEEE division, square root and denormals are NVRTC's defaults and stay: results are compared
# with NumPy's in units of the last place.
# 177: the prelude declares more than one kernel uses.
_OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--diag-suppress=177")

# For kernels of our own: a product and a sum stay two roundings, as in NumPy and as in the same
# operations one by one. Without it ptxas contracts them wherever they meet. Costs nothing where
# memory is the limit.
EXACT = ("--fmad=false",)

# A text that reads files: what they say is no part of its key.
# A comment has one end here: two that could also be one would double the ways to match.
_INCLUDES = re.compile(r"(?:#|%:)(?:\s|/\*(?:(?!\*/).)*\*/)*include|__has_include", re.DOTALL)

Identity = tuple[tuple[int, int], tuple[int, ...]]  # version, architectures

_memory = MemoryCache()
_disk: DiskCache | None = None
_lock = threading.Lock()


def _disk_cache() -> DiskCache:
    global _disk
    directory = cache_directory()
    with _lock:
        if _disk is None or _disk.directory != directory:
            _disk = DiskCache(directory)
        return _disk


def _identity() -> Identity:
    """NVRTC's version and architectures, by the note on disk until the library is open."""
    noted = _noted(cuda_libraries.decided_by("nvrtc"))
    return nvrtc_identity()[:2] if is_open() else noted


@lru_cache(maxsize=8)
def _noted(decided_by: str) -> Identity:
    """What the note says of the library that this leads to, where that is still true."""
    note = _disk_cache().load_note().get(decided_by)
    if isinstance(note, dict):
        try:
            status = Path(note["path"]).stat()
            archs = tuple(int(a) for a in note["archs"])
            if [status.st_mtime_ns, status.st_size] == note["stamp"] and archs:
                major, minor = note["version"]
                return (int(major), int(minor)), archs
        except (OSError, KeyError, TypeError, ValueError):
            pass  # the note is stale: the library itself is asked, and the note written anew
    return _note(decided_by)


def _note(decided_by: str) -> Identity:
    """Ask the library, and keep what it says for the processes to come."""
    version, archs, path = nvrtc_identity()
    file = Path(path)
    if file.is_file():
        status, disk = file.stat(), _disk_cache()
        notes = {key: note for key, note in disk.load_note().items() if _is_of_a_file(note)}
        notes[decided_by] = {
            "path": path,
            "stamp": [status.st_mtime_ns, status.st_size],
            "version": version,
            "archs": archs,
        }
        disk.save_note(notes)
    return version, archs


def _is_of_a_file(note: Any) -> bool:
    return isinstance(note, dict) and Path(str(note.get("path"))).is_file()


def compiler_version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use."""
    return _identity()[0]


def supported_archs() -> tuple[int, ...]:
    """Compute capabilities times ten that this NVRTC writes machine code for."""
    return _identity()[1]


@lru_cache(maxsize=64)
def kernel_text(name: str) -> str:
    """The text of jit/kernels/`name`."""
    return (Path(__file__).parent / "kernels" / name).read_text(encoding="utf-8")


def _reads_files(source: str, options: tuple[str, ...]) -> bool:
    """Whether headers have a part in the code."""
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
    use_cache: bool = True,
    fresh: bool = False,
) -> bytes:
    """Return a cubin (or PTX, for a device newer than the compiler) for `source`.

    Parameters
    ----------
    source : a whole translation unit. One that includes headers is compiled by every call: the caches
        do not see when a header changes.
    arch : the device's compute capability times ten, 90 for 9.0.
    options : further NVRTC options, part of the cache key.
    name : what the file is called in messages.
    fresh : compile in any case, and replace what the caches hold: the driver has refused it.

    Raises
    ------
    CompileError
        With the log, the text, and the line at fault.
    """
    version, archs = _identity()
    target = arch if isinstance(arch, Target) else select_target(arch, archs)
    given, options = options, (*_OPTIONS, *options)
    use_cache = use_cache and not _reads_files(source, given)
    parts = (str(SCHEMA), str(version), target.option, *options, name, source)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    if use_cache and not fresh:
        found = _memory.get(key)
        if found is None:
            found = _disk_cache().get(key)
            if found is not None:
                _memory.put(key, found)
        if found is not None:
            return found
    if nvrtc_identity()[:2] != (version, archs):
        # Another library than the note's was in the process already.
        _note(cuda_libraries.decided_by("nvrtc"))
        return compile_source(
            source, arch, options=given, name=name, use_cache=use_cache, fresh=fresh
        )
    code = nvrtc_compile(source, name, target, options)
    if use_cache:
        _memory.put(key, code)
        _disk_cache().put(key, code)
    return code


def clear_cache(*, disk: bool = False) -> None:
    """Forget compiled kernels of this process, and with `disk` those of the user."""
    _memory.clear()
    if disk:
        _disk_cache().clear()

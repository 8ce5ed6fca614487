"""Compiled kernels on disk and in memory.

One file per kernel: the cubin (or PTX), so that NVIDIA's tools open it, followed by a short trailer
with its checksum. An entry that fails the check is a miss and is replaced. Files with other names are
never counted, changed or removed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

__all__ = ["SCHEMA", "DiskCache", "MemoryCache", "cache_directory"]

# Part of every key: raise it when the meaning of an entry changes.
SCHEMA = 1
_MAGIC = b"gpuintK1"
_TRAILER = len(_MAGIC) + 32
_DEFAULT_MEGABYTES = 512
_ABANDONED = 3600.0  # seconds after which a temporary file is no longer being written
# The names of all files that the cache writes begin like this, so the user's own files are safe.
_PREFIX = "gpuinterop-"


@functools.cache
def _own_temporary() -> Path:
    """A folder among the temporary ones; another user's is not trusted, who could plant kernels."""
    shared = Path(tempfile.gettempdir()) / f"gpuinterop-{os.getuid()}"
    with contextlib.suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
        if shared.lstat().st_uid == os.getuid() and not shared.is_symlink():
            return shared
    return Path(tempfile.mkdtemp(prefix="gpuinterop-"))


def cache_directory() -> Path:
    """The folder of compiled kernels, below GPUINTEROP_CACHE_DIR or the user's own cache folder."""
    chosen = os.environ.get("GPUINTEROP_CACHE_DIR")
    if chosen:
        try:
            return Path(chosen).expanduser() / "gpuinterop"
        except RuntimeError:
            folder = _own_temporary() / "kernels"
            warnings.warn(
                f"GPUINTEROP_CACHE_DIR is {chosen!r}, in the home folder of a user that does not exist; "
                f"compiled kernels are kept in {folder}",
                RuntimeWarning,
                stacklevel=2,
            )
            return folder
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        return root.expanduser() / "gpuinterop" / "kernels"
    except RuntimeError:  # no home folder to be found: a container without a user entry
        return _own_temporary() / "kernels"


def _limit() -> int:
    """Megabytes that the folder may grow to."""
    chosen = os.environ.get("GPUINTEROP_CACHE_MB", "")
    try:
        return int(chosen or _DEFAULT_MEGABYTES)
    except ValueError:
        warnings.warn(
            f"GPUINTEROP_CACHE_MB is {chosen!r}, which is not an integer; "
            f"the limit stays {_DEFAULT_MEGABYTES}",
            RuntimeWarning,
            stacklevel=2,
        )
        return _DEFAULT_MEGABYTES


class MemoryCache:
    """The most recent entries of this process."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            self._entries[key] = value
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


class DiskCache:
    """Files under one directory, safe among processes; failures to write warn once, then are quiet."""

    def __init__(self, directory: Path, limit_bytes: int | None = None) -> None:
        self.directory = directory
        if limit_bytes is None:
            limit_bytes = _limit() << 20
        self.limit_bytes = limit_bytes
        self._used: int | None = None
        self._warned = False
        self._lock = threading.Lock()

    def _path(self, key: str) -> Path:
        return self.directory / f"{_PREFIX}{key}.cubin"

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        body, trailer = data[:-_TRAILER], data[-_TRAILER:]
        if trailer != _MAGIC + hashlib.sha256(body).digest():
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        # Recently used entries survive the size bound; once a day is often enough to say so.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 86_400:
                os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        data = body + _MAGIC + hashlib.sha256(body).digest()
        if self._write(self._path(key), data):
            with self._lock:
                self._bound(len(data))

    def _write(self, path: Path, data: bytes) -> bool:
        if self.limit_bytes <= 0:
            return False
        temporary = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=f".{_PREFIX}new-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            # Readers see the old file or the whole new one, never a part.
            os.replace(temporary, path)  # noqa: PTH105  (mkstemp gives a string)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"compiled kernels cannot be kept in {self.directory} ({error}); "
                    "set GPUINTEROP_CACHE_DIR to a folder that can be written",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return False
        return True

    def _entries(self) -> list[tuple[float, int, Path]]:
        found = []
        with contextlib.suppress(OSError):
            for path in self.directory.glob(f"{_PREFIX}*.cubin"):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return found

    def _bound(self, added: int) -> None:
        if self._used is None:
            self._sweep()
            self._used = sum(size for _, size, _ in self._entries())
        else:
            self._used += added
        if self._used <= self.limit_bytes:
            return
        entries = sorted(self._entries())
        used = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            # A quarter is freed at once, so that a full cache does not evict on every write.
            if used <= self.limit_bytes * 3 // 4:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                used -= size
        self._used = used

    def _sweep(self) -> None:
        """Remove temporary files of processes that were killed between a write and its rename."""
        with contextlib.suppress(OSError):
            for path in self.directory.glob(f".{_PREFIX}new-*"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _ABANDONED:
                        path.unlink()

    def clear(self) -> None:
        for _, _, path in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
        self._used = 0

    def _note_path(self) -> Path:
        return self.directory / f"{_PREFIX}nvrtc.json"

    # The compiler's version is part of every key. Remembering it beside the library's path and time
    # stamp spares a process that finds all its kernels the loading of a library of 100 MB.
    def load_note(self) -> dict[str, Any]:
        try:
            note = json.loads((self._note_path()).read_text())
        except (OSError, ValueError, RecursionError):  # the last of brackets in brackets
            return {}
        return note if isinstance(note, dict) else {}

    def save_note(self, note: dict[str, Any]) -> None:
        self._write(self._note_path(), json.dumps(note).encode())

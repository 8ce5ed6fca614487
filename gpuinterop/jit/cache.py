"""Compiled kernels on disk.

Each kernel is one file: the cubin (or PTX), which NVIDIA's tools can open, and a short trailer with its
checksum. A file with a wrong checksum is replaced. Files with other names are never counted, changed or
removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

# Part of every key. Raise it when the meaning of an entry changes.
SCHEMA = 1
_MAGIC = b"gpuintK1"
_TRAILER = len(_MAGIC) + 32
_DEFAULT_MEGABYTES = 512
# Start of the names of all files that the cache writes. It keeps the user's own files safe.
_PREFIX = "gpuinterop-"


def cache_directory() -> Path:
    """Return the folder of compiled kernels, below GPUINTEROP_CACHE_DIR or the user's cache folder."""
    folder = os.environ.get("GPUINTEROP_CACHE_DIR")
    root = Path(folder or os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        root = root.expanduser()
    except RuntimeError:  # a user without a home folder
        root = Path(os.devnull)
    return root / ("gpuinterop" if folder else "gpuinterop/kernels")


def _limit() -> int:
    """Return the size limit of the folder, in megabytes."""
    text = os.environ.get("GPUINTEROP_CACHE_MB", "")
    try:
        return int(text or _DEFAULT_MEGABYTES)
    except ValueError:
        warnings.warn(
            f"GPUINTEROP_CACHE_MB is {text!r}, which is not an integer; "
            f"the limit stays {_DEFAULT_MEGABYTES}",
            RuntimeWarning,
            stacklevel=2,
        )
        return _DEFAULT_MEGABYTES


class DiskCache:
    """Files in one folder, which several processes may use at once. Only the first failed write warns."""

    def __init__(self, directory: Path, limit_bytes: int | None = None) -> None:
        self.directory = directory
        self.limit_bytes = _limit() << 20 if limit_bytes is None else limit_bytes
        self._warned = False

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
        # Eviction starts with the oldest time stamps. One update a day is enough.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 86_400:
                os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        data = body + _MAGIC + hashlib.sha256(body).digest()
        if self._write(self._path(key), data):
            self._bound()

    def _write(self, path: Path, data: bytes) -> bool:
        if self.limit_bytes <= 0:
            return False
        temporary = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=f".{_PREFIX}new-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            # A rename, so that readers see either the old file or the whole new one.
            os.replace(temporary, path)  # noqa: PTH105  (mkstemp gives a string)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"compiled kernels cannot be kept in {self.directory} ({error}); "
                    "set GPUINTEROP_CACHE_DIR to a writable folder",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return False
        return True

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Return kernels, and temporary files of processes that were killed before the rename."""
        entries = []
        for pattern in (f"{_PREFIX}*.cubin", f".{_PREFIX}new-*"):
            with contextlib.suppress(OSError):
                for path in self.directory.glob(pattern):
                    with contextlib.suppress(OSError):
                        status = path.stat()
                        entries.append((status.st_mtime, status.st_size, path))
        return sorted(entries)

    def _bound(self) -> None:
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return
        for _, size, path in entries:
            # Free a quarter, so that a full cache does not evict on every write.
            if total <= self.limit_bytes * 3 // 4:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def _note_path(self) -> Path:
        return self.directory / f"{_PREFIX}nvrtc.json"

    # The compiler's version is part of every key. With the version on disk, next to the path and time stamp
    # of the library, a process that finds all its kernels in the cache does not load 100 MB of NVRTC.
    def load_note(self) -> dict[str, Any]:
        try:
            note = json.loads((self._note_path()).read_text())
        except (OSError, ValueError, RecursionError):  # RecursionError: deeply nested brackets
            return {}
        return note if isinstance(note, dict) else {}

    def save_note(self, note: dict[str, Any]) -> None:
        self._write(self._note_path(), json.dumps(note).encode())

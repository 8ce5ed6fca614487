"""Compiled kernels on disk.

Each kernel is one file: the cubin (or PTX), which NVIDIA's tools can open, and a short trailer with the
checksum of its name and its code. A file with a wrong checksum is replaced. Files with other names are never
counted, changed or removed.

Machine code has all rights of the process, so a folder into which another user could put it is neither read
nor written: the folder belongs to the user or to root, and no other user may write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import warnings
from pathlib import Path

# Part of every key. Raise it when the meaning of an entry changes.
SCHEMA = 2
_MAGIC = b"gpuintK2"
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
    """Files in one folder, which several processes may use at once. Only the first problem warns."""

    def __init__(self, directory: Path, limit_bytes: int | None = None) -> None:
        self.directory = directory
        self.limit_bytes = _limit() << 20 if limit_bytes is None else limit_bytes
        self._warned = False

    def _warn(self, problem: str, fix: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"{problem}; {fix}", RuntimeWarning, stacklevel=2)

    def _trusts(self, folder: os.stat_result) -> bool:
        """Return whether no other user can put files into the folder, or warn."""
        if folder.st_uid not in (0, os.geteuid()):
            why = f"it belongs to user {folder.st_uid}"
        elif folder.st_mode & 0o022:
            why = f"others may write to it (mode {folder.st_mode & 0o777:o})"
        else:
            return True
        self._warn(
            f"compiled kernels are neither read from nor kept in {self.directory}, because {why}",
            "take the right to write from others (chmod go-w), or set GPUINTEROP_CACHE_DIR to a folder of your own",
        )
        return False

    def get(self, name: str) -> bytes | None:
        """Return the entry `name`; None if there is none that is whole and safe."""
        if self.limit_bytes <= 0:
            return None
        path = self.directory / f"{_PREFIX}{name}"
        try:
            # By its handle, because another folder may take the place of this one after the test.
            folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if not self._trusts(os.fstat(folder)):
                    return None
                handle = os.open(path.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            finally:
                os.close(folder)
            with os.fdopen(handle, "rb") as file:
                data, status = file.read(), os.fstat(handle)
            body, trailer = data[:-_TRAILER], data[-_TRAILER:]
            if trailer != _trailer(name, body):
                path.unlink()
                return None
        except (OSError, MemoryError):
            return None
        # Eviction starts with the oldest time stamps. One update a day is enough.
        if time.time() - status.st_mtime > 86_400:
            with contextlib.suppress(OSError):
                os.utime(path)
        return body

    def put(self, name: str, body: bytes) -> None:
        """Keep `body` as `name`, or warn."""
        if self.limit_bytes <= 0:
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._trusts(self.directory.stat()):
                return
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=f".{_PREFIX}new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(body + _trailer(name, body))
                # A rename, so that readers see either the old file or the whole new one.
                os.replace(temporary, self.directory / f"{_PREFIX}{name}")  # noqa: PTH105  (mkstemp gives a string)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise
        except OSError as error:
            self._warn(
                f"compiled kernels cannot be kept in {self.directory} ({error})",
                "set GPUINTEROP_CACHE_DIR to a writable folder",
            )
            return
        self._bound(self.directory)

    def _bound(self, folder: Path) -> None:
        entries = _entries(folder)
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


def _trailer(name: str, body: bytes) -> bytes:
    # With the name, so that a renamed entry is none.
    return _MAGIC + hashlib.sha256(name.encode() + b"\0" + body).digest()


def _entries(folder: Path) -> list[tuple[float, int, Path]]:
    """Return kernels, notes, and temporary files of processes that were killed before the rename."""
    entries = []
    for pattern in (f"{_PREFIX}*.cubin", f"{_PREFIX}*.note", f".{_PREFIX}new-*"):
        with contextlib.suppress(OSError):
            for path in folder.glob(pattern):
                with contextlib.suppress(OSError):
                    status = path.stat(follow_symlinks=False)
                    entries.append((status.st_mtime, status.st_size, path))
    return sorted(entries)

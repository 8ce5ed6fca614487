"""Compiled kernels on disk.

Each kernel is one file: the cubin (or PTX), which NVIDIA's tools can open, and a short trailer with the
checksum of its name and its code. A file with a wrong checksum is replaced. Files with other names are never
counted, changed or removed.

Machine code has all rights of the process, so a folder into which another user could put it is neither read
nor written. The rule is that of OpenSSH for keys: the folder and its files belong to the user or to root, and
no other user may write to them, nor to any folder above, except one with the sticky bit, such as /tmp.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
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


def _others_may_write(status: os.stat_result) -> str | None:
    """Return why another user could change a file or the names in a folder, or None."""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _distrust(folder: Path) -> str | None:
    """Return why another user could put files into `folder`, which has no symbolic link in it, or None."""
    for path in (folder, *folder.parents):
        status = path.stat(follow_symlinks=False)
        # In a folder with the sticky bit no user can rename or replace what belongs to another one.
        sticky = (
            path != folder and status.st_mode & stat.S_ISVTX and status.st_uid in (0, os.geteuid())
        )
        if not sticky and (why := _others_may_write(status)):
            return f"{path} {why}"
    return None


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

    def _folder(self) -> Path | None:
        """Return the folder without symbolic links; None, with a warning, if others could put files into it.

        Raises OSError if the folder does not exist.
        """
        folder = self.directory.resolve(strict=True)
        why = _distrust(folder)
        if why is None:
            return folder
        self._warn(
            f"compiled kernels are neither read from nor kept in {self.directory}, because {why}",
            "take the right to write from others (chmod go-w), or set GPUINTEROP_CACHE_DIR to a folder of your own",
        )
        return None

    def get(self, name: str) -> bytes | None:
        """Return the entry `name`; None if there is none that is whole and safe."""
        if self.limit_bytes <= 0:
            return None
        try:
            folder = self._folder()
            return None if folder is None else self._read(folder, name)
        except (OSError, RuntimeError, MemoryError):  # RuntimeError: symbolic links in a circle
            return None

    def _read(self, folder: Path, name: str) -> bytes | None:
        path = folder / f"{_PREFIX}{name}"
        # Nonblocking, because a pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or _others_may_write(status):
                return None
            if status.st_size > self.limit_bytes + _TRAILER:
                return None
            data = file.read()
        body, trailer = data[:-_TRAILER], data[-_TRAILER:]
        if trailer != _trailer(name, body):
            path.unlink()
            return None
        # Eviction starts with the oldest time stamps. One update a day is enough.
        if time.time() - status.st_mtime > 86_400:
            with contextlib.suppress(OSError):
                os.utime(path, follow_symlinks=False)
        return body

    def put(self, name: str, body: bytes) -> None:
        """Keep `body` as `name`, or warn."""
        if self.limit_bytes <= 0:
            return
        try:
            _make_private(self.directory)
            folder = self._folder()
            if folder is None:
                return
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{_PREFIX}new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(body + _trailer(name, body))
                # A rename, so that readers see either the old file or the whole new one.
                os.replace(temporary, folder / f"{_PREFIX}{name}")  # noqa: PTH105  (mkstemp gives a string)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise
        except (OSError, RuntimeError) as error:
            self._warn(
                f"compiled kernels cannot be kept in {self.directory} ({error})",
                "set GPUINTEROP_CACHE_DIR to a writable folder",
            )
            return
        self._bound(folder)

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


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing; only the user may write to them."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


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

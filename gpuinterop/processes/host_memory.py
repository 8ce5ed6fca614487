"""Host memory that other processes can map: files without a name, and the files behind other libraries' memory."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_PROT_READ, _PROT_WRITE, _MAP_SHARED = 1, 2, 1
_SELF = Path("/proc/self")
# Seals that keep the length of a file, because a process that reads beyond a shortened file is ended by the system,
# and that refuse more seals, with which an opener could forbid further writable mappings.
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEAL_SEALS, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4
# A row of /proc/self/maps: first and last address, rights, offset in the file, device, inode, name.
_ROW = re.compile(r"(\w+)-(\w+) (.)(.).(.) (\w+) (\w+):(\w+) (\d+) *(.*)")


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc


class File:
    """A descriptor, closed with the object."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class HostMapping:
    """A file in this process's memory; unmapped when the last array over it is destroyed."""

    def __init__(self, file: File, nbytes: int, readonly: bool) -> None:
        """Keep the file too, so that the memory can be shared once more."""
        self.file, self.nbytes = file, nbytes
        protection = _PROT_READ if readonly else _PROT_READ | _PROT_WRITE
        found = _libc().mmap(None, nbytes, protection, _MAP_SHARED, file.descriptor, 0)
        if found == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            error = MemoryError if code == errno.ENOMEM else OSError
            raise error(f"mmap of {nbytes} bytes: {os.strerror(code)}")
        self.address = found

    def __del__(self) -> None:
        if hasattr(self, "address"):
            _libc().munmap(self.address, self.nbytes)


def new_memory(nbytes: int) -> HostMapping:
    """Return zeroed memory of a file without a name, which exists as long as a process has it open or mapped."""
    file = File(os.memfd_create("gpuinterop", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    os.ftruncate(file.descriptor, nbytes)
    fcntl.fcntl(file.descriptor, _F_ADD_SEALS, _SEAL_SEALS | _SEAL_SHRINK | _SEAL_GROW)
    return HostMapping(file, nbytes, readonly=False)


def keeps_its_length(file: File) -> bool:
    """Return whether no process can shorten a file."""
    try:
        return bool(fcntl.fcntl(file.descriptor, _F_GET_SEALS) & _SEAL_SHRINK)
    except OSError:  # the file system has no seals
        return False


def find_file(address: int, nbytes: int, readonly: bool) -> tuple[File, int, bool] | str:
    """Return the file behind memory, the offset of `address` in it and whether it is read-only, or why not."""
    row = _row_of(address, nbytes)
    if row is None:
        return "memory of several mappings"
    first, _, _, write, shared, offset, major, minor, inode, name = row
    if shared != "s":
        return "ordinary memory of this process"
    readonly = readonly or write != "w"
    identity = os.makedev(int(major, 16), int(minor, 16)), int(inode)
    # Without waiting, because the path may name a pipe by now. It means nothing for a file.
    flags = os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDONLY if readonly else os.O_RDWR)
    for path in _paths(name):
        try:
            if not _is_file(path.stat(), identity):  # open no device and no pipe, which may answer
                continue
            file = File(os.open(path, flags))
        except OSError:
            continue
        if _is_file(os.fstat(file.descriptor), identity):  # the path may name another file by now
            return file, int(offset, 16) + address - int(first, 16), readonly
    return "shared memory whose file this process has closed and that has no name"


def _is_file(found: os.stat_result, identity: tuple[int, int]) -> bool:
    return stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) == identity


def _row_of(address: int, nbytes: int) -> tuple[Any, ...] | None:
    with _SELF.joinpath("maps").open(encoding="utf-8", errors="surrogateescape") as rows:
        for text in rows:
            first, _, rest = text.partition("-")
            if int(first, 16) <= address < int(rest.partition(" ")[0], 16):
                row = _ROW.match(text)
                return row.groups() if row and address + nbytes <= int(row[2], 16) else None
    return None


def _paths(name: str) -> Iterator[Path]:
    """Return paths of the file of a mapping: this process's descriptors, and its name."""
    yield from _SELF.joinpath("fd").iterdir()
    if name.startswith("/"):
        yield Path(name)

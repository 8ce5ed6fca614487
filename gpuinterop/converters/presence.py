"""Which libraries can be imported. Nothing is imported to know."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["installed"]

# Looking through sys.path takes longer than a refusal should. What is there stays; what is not may be
# installed by the next cell of a notebook, which leaves its mark on the places where it would be.
_found: set[str] = set()
_absent: dict[str, tuple[Any, ...]] = {}
# Seconds that the marks are believed: as long as a loop of refusals, shorter than any cell.
_AT_ONCE = 0.05
_LIB = Path(os.__file__).parent
_ZIP = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_STANDARD = {str(_LIB), str(_LIB / "lib-dynload"), str(_LIB.parent / _ZIP)}
_seen: tuple[float, tuple[Any, ...]] = (-1.0, ())


def installed(package: str) -> bool:
    """Whether a package can be imported; nothing is imported to know."""
    if package in sys.modules:
        return sys.modules[package] is not None
    if package in _found:
        return True
    places = _places()
    if _absent.get(package) == places:
        return False
    try:
        spec = importlib.util.find_spec(package)
        # Without an origin it is a bare folder of that name.
        found = spec is not None and spec.origin is not None
    except (ImportError, ValueError):
        # A parent package is missing, or a stub module has no spec.
        found = False
    if found:
        _found.add(package)
    else:
        _absent[package] = places
    return found


def _places() -> tuple[Any, ...]:
    """Where packages are looked for, with what changes there when one is added.

    A directory's time is what importlib itself goes by. Nobody installs into the standard library.
    """
    global _seen
    now = time.monotonic()
    when, before = _seen
    if when <= now < when + _AT_ONCE and before[: len(sys.path)] == tuple(sys.path):
        return before
    marks: list[Any] = [*sys.path, *map(id, sys.meta_path)]
    for entry in sys.path:
        if entry in _STANDARD:
            continue
        try:
            seen = os.stat(entry or ".")  # noqa: PTH116 - a Path costs more than the call
        except (OSError, TypeError, ValueError):  # not there, or for a finder of its own
            continue
        marks.append((entry, seen.st_mtime_ns, seen.st_ino))
    _seen = now, tuple(marks)
    return _seen[1]

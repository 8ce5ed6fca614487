"""What a case came to, and the small questions that decide it."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import GpuInteropError

__all__ = ["Fault", "Verdict", "alike", "another", "buffers", "refused_parts", "settled"]

_PATIENCE = 2.0  # seconds that a library may take to let go: some do it on a thread of theirs
_waited: dict[str, float] = {}  # for each bridge, in vain


@dataclass(frozen=True)
class Fault:
    """What is wrong: the check, what it expected, what it got."""

    check: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.check}: expected {self.expected}, got {self.got}"


@dataclass
class Verdict:
    """What a case came to, and why."""

    outcome: str = "none"
    forecast: str = ""
    reason: str = ""
    fix: str = ""
    faults: list[Fault] = field(default_factory=list)

    def fault(self, check: str, expected: object, got: object) -> None:
        self.faults.append(Fault(check, str(expected), str(got)))

    def expect(self, holds: bool, check: str, expected: object, got: object) -> None:
        if not holds:
            self.fault(check, expected, got)


def refused_parts(verdict: Verdict, error: GpuInteropError) -> None:
    """Note what a refusal says, and that it says all of it."""
    for part in ("where", "expected", "got", "fix"):
        verdict.expect(
            bool(getattr(error, part)), "error", f"a message with its {part}", repr(str(error))
        )
    verdict.reason, verdict.fix = error.expected, error.fix


def buffers(place: tuple[str, int]) -> int:
    """How many this library holds on a device."""
    return int(_core.memory_statistics(1 if place[0] == "cpu" else 2, place[1])["live_buffers"])


def settled(condition: Any, bridge: str) -> bool:
    """Whether it comes true, at once, after a collection, or after a little patience."""
    if condition():
        return True
    # One bridge that leaks everywhere must not cost the patience of each case.
    begin = time.monotonic()
    deadline = begin + _PATIENCE - _waited.get(bridge, 0.0)
    while True:
        gc.collect()
        if condition():
            return True
        if time.monotonic() >= deadline:
            _waited[bridge] = _waited.get(bridge, 0.0) + time.monotonic() - begin
            return False
        time.sleep(0.01)


def alike(a: Any, b: Any) -> bool:
    """The same bytes in C order; dtypes that NumPy cannot compare included."""
    return _bytes(a) == _bytes(b)


def _bytes(a: Any) -> bytes:
    return np.ascontiguousarray(a).tobytes()


def another(old: Any) -> Any:
    """A value of the same type, small enough for all of them, that differs."""
    old = np.asarray(old)
    for value in (1, 0, 5):
        new = np.asarray(value).astype(old.dtype)
        if not alike(new, old):
            return new
    raise AssertionError("three values cannot all equal one")

"""The comparisons on which the outcome of a case is based."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np

from gpuinterop import _core, devices

_PATIENCE = 2.0  # seconds that a library may take to release memory: some do it on another thread
_waited: dict[str, float] = {}  # seconds waited without success, for each bridge


def buffers(place: tuple[str, int]) -> int:
    """Return the number of buffers that gpuinterop holds on a device."""
    return int(_core.memory_statistics(1 if place[0] == "cpu" else 2, place[1])["live_buffers"])


def settled(condition: Any, bridge: str) -> bool:
    """Return whether the condition becomes true at once, after a garbage collection, or after some time."""
    if condition():
        return True
    # The time is for all cases of a bridge, so that a bridge that always leaks does not slow each case.
    begin = time.monotonic()
    deadline = begin + _PATIENCE - _waited.get(bridge, 0.0)
    while True:
        gc.collect()
        devices.empty_cache()  # completes releases that wait for work on a GPU
        if condition():
            return True
        if time.monotonic() >= deadline:
            _waited[bridge] = _waited.get(bridge, 0.0) + time.monotonic() - begin
            return False
        time.sleep(0.01)


def alike(a: Any, b: Any) -> bool:
    """Return whether both have the same bytes in C order; works for dtypes that NumPy cannot compare."""
    return _bytes(a) == _bytes(b)


def _bytes(a: Any) -> bytes:
    return np.ascontiguousarray(a).tobytes()


def another(old: Any) -> Any:
    """Return a different value of the same dtype, which every dtype can represent."""
    old = np.asarray(old)
    for value in (1, 0, 5):
        new = np.asarray(value).astype(old.dtype)
        if not alike(new, old):
            return new
    raise AssertionError("three values cannot all equal one")

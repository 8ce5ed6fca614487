"""Timing shared by the benchmarks: device time by events, host time by the clock, medians of both."""

from __future__ import annotations

import importlib.util
import json
import platform
import statistics
import subprocess
import time
from pathlib import Path


def peers() -> dict[str, object]:
    """Return torch and CuPy where they are installed and see a GPU."""
    found = {}
    if importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            found["torch"] = torch
    if importlib.util.find_spec("cupy"):
        import cupy

        if cupy.cuda.is_available():
            found["cupy"] = cupy
    return found


def device_seconds(body, repeats: int = 15, inner: int = 1) -> float:
    """Median seconds of one call on the device, legacy default stream."""
    import torch

    body()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(inner):
            body()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / inner)
    return statistics.median(times)


def loop_seconds(body, wait, calls: int = 1000, repeats: int = 7) -> float:
    """Median seconds a call of a loop that is waited for at its end."""
    for _ in range(20):
        body()
    wait()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        wait()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times)


def report(name: str, unit: str, rows: dict[str, dict[str, float]], out: str | None) -> None:
    """A short table, and JSON with what it was measured on."""
    columns = list(dict.fromkeys(c for row in rows.values() for c in row))
    print(f"{name} ({unit})")
    print(f"{'':34}" + "".join(f"{c:>12}" for c in columns))
    for label, row in rows.items():
        print(
            f"{label:34}" + "".join(f"{row[c]:12.2f}" if c in row else f"{'':>12}" for c in columns)
        )
    if out:
        gpu = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False,
        ).stdout.strip()  # fmt: skip
        about = {"name": name, "unit": unit, "gpu": gpu, "python": platform.python_version()}
        Path(out).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")

"""A table of bench_bandwidth.py: times of gpuinterop divided by those of the fastest other library."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench_common import GPUINTEROP, Benchmark, optional

Cases = dict[str, tuple[float, dict[str, Callable[[], Any]]]]


def ratios(
    bench: Benchmark, device: Callable[[int], Any], cases: Callable[[Any], Cases],
    sizes: Iterable[int], only: str,
) -> None:  # fmt: skip
    """Measure the time of a call in a long loop, divided by that of the faster of torch and CuPy."""
    table: dict[str, dict[str, float]] = {}
    slow = []
    for log2 in sizes:
        d = device(log2)
        for name, (_, calls) in cases(d).items():
            if only not in name:
                continue
            contenders = {
                who: c for who, c in calls.items() if who in (GPUINTEROP, "torch", "cupy")
            }
            times = _loops(d, contenders, 1 if bench.options.quick else 7)
            bench.rows[f"{name}, 2^{log2}"] = times
            others = {who: t for who, t in times.items() if who != GPUINTEROP}
            if not others:
                continue
            peer = min(others, key=lambda who: others[who])
            ratio = table.setdefault(name, {})[f"2^{log2}"] = times[GPUINTEROP] / others[peer]
            if ratio > 1.05:
                slow.append(
                    f"{name}, 2^{log2}: {times[GPUINTEROP]:.2f} us, {peer} {others[peer]:.2f} us, {ratio:.2f}"
                )
        del d
    columns = list(dict.fromkeys(size for row in table.values() for size in row))
    print(f"{'gpuinterop / best':18}" + "".join(f"{size:>7}" for size in columns))
    for name, row in table.items():
        print(
            f"{name:18}" + "".join(f"{row[c]:7.2f}" if c in row else f"{'-':>7}" for c in columns)
        )
    print(f"{len(slow)} of {sum(map(len, table.values()))} cells above 1.05")
    for line in slow:
        print(f"  {line}")
    if bench.options.json:
        record = bench.record(time.perf_counter() - bench.began) | {"ratios": table}
        text = json.dumps(record, indent=1) + "\n"
        if bench.options.json == "-":
            bench.options.stdout.write(text)
        else:
            Path(bench.options.json).write_text(text, encoding="utf-8")


def _loops(d: Any, calls: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the microseconds of a call in a loop with a wait at its end: the host's work and the device's."""

    def loop(call: Callable[[], Any], count: int) -> float:
        d.wait()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        d.wait()
        return 1e6 * (time.perf_counter() - begin) / count

    counts: dict[str, int] = {}
    for who, call in calls.items():
        with optional({who: call}, who, "ratios"):
            for _ in range(3):
                call()
            counts[who] = max(3, min(2000, int(5e3 / max(loop(call, 5), 0.1))))
    times: dict[str, list[float]] = {who: [] for who in counts}
    for _ in range(turns):
        for who, count in counts.items():
            times[who].append(loop(calls[who], count))
    return {who: statistics.median(found) for who, found in times.items()}

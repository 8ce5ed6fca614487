"""Two tables of bench_bandwidth.py: launch geometries side by side, and our times over the best peer's."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

from bench_common import OURS, Benchmark, optional

from gpuinterop import _core

Cases = dict[str, tuple[float, dict[str, Callable[[], Any]]]]

TUNED = ("exp(x)", "x + y", "exp(x[::-1])", "exp(x[::2])", "X + row", "X + column")
_ROWS = {16: 1, 32: 2, 64: 4, 128: 8}
_H200_BLOCKS_OF_256 = 132 * 8


def spread(moved: float, milliseconds: list[float]) -> dict[str, float]:
    """Median and best GB/s."""
    return {
        "median": moved / statistics.median(milliseconds) / 1e6,
        "best": moved / min(milliseconds) / 1e6,
    }


def variants() -> dict[str, dict[str, int]]:
    """Threads of a block, bytes that a thread has in flight, streaming hints, loop or no loop."""
    found: dict[str, dict[str, int]] = {"as it is": {}}

    def add(threads: int, depth: int, stream: int = 0, waves: int = 0) -> None:
        name = f"{threads}x{depth}"
        name += ("", " ldcs", " stcs", " ldcs stcs")[stream] + (f" loop/{waves}" if waves else "")
        blocks = waves * _H200_BLOCKS_OF_256 * 256 // threads
        found[name] = {"threads": threads, "flat_bytes": depth, "rows_unroll": _ROWS[depth],
                       "stream": stream, "blocks": blocks}  # fmt: skip

    for threads, depth in product((128, 256, 512, 1024), (16, 32, 64)):
        add(threads, depth)
    add(256, 128)
    for threads, depth, stream in product((128, 256, 512), (32, 64), (1, 2, 3)):
        add(threads, depth, stream)
    for (threads, depth), waves in product(((256, 32), (512, 32), (256, 64)), (1, 4)):
        add(threads, depth, 0, waves)
        add(threads, depth, 3, waves)
    return found


def _turn(knobs: dict[str, int]) -> None:
    _core._tune("defaults")
    for knob, value in knobs.items():
        _core._tune(knob, value)


def tune(d: Any, cases: Cases, marks: dict[str, float], repeat: int) -> None:
    """Every variant on every case, in turns; torch beside."""
    chosen, table = variants(), dict[str, dict[str, dict[str, float]]]()
    for case in TUNED:
        moved, calls = cases[case]
        bodies = {name: (knobs, calls[OURS]) for name, knobs in chosen.items()}
        with optional(calls, "torch", case) as torch:
            if torch is not None:
                torch()
                bodies = {"torch": ({}, torch), **bodies}
        counts, times = {}, dict[str, list[float]]()
        for name, (knobs, call) in bodies.items():
            _turn(knobs)
            call()
            counts[name], times[name] = d.burst(call), []
        for _ in range(repeat):
            for name, (knobs, call) in bodies.items():
                _turn(knobs)
                times[name].append(d.milliseconds(call, counts[name]))
        for name, found in times.items():
            table.setdefault(name, {})[case] = spread(moved, found)
    _turn({})
    width = max(len(name) for name in table)
    print(f"{'GB/s, median (best)':{width}}" + "".join(f"{case:>15}" for case in TUNED))
    if marks:
        print(f"{'mark':{width}}" + "".join(f"{marks[case]:>15}" for case in TUNED))
    for name, row in table.items():
        cells = (
            f"{row[c]['median']:.0f} ({row[c]['best']:.0f})" if c in row else "-" for c in TUNED
        )
        print(f"{name:{width}}" + "".join(f"{cell:>15}" for cell in cells))
    ours = {name: row for name, row in table.items() if name != "torch"}
    for case in TUNED:
        best = max(ours, key=lambda name: ours[name][case]["median"])
        print(f"best for {case}: {best}, {ours[best][case]['median']:.0f}")
    top = {case: marks.get(case) or max(r[case]["median"] for r in ours.values()) for case in TUNED}
    worst = {n: min(r[c]["median"] / top[c] for c in TUNED) for n, r in ours.items()}
    for name in sorted(worst, key=lambda n: -worst[n])[:5]:
        print(f"best for all: {name}, at least {worst[name]:.3f} of every mark")


def ratios(
    bench: Benchmark, device: Callable[[int], Any], cases: Callable[[Any], Cases],
    sizes: Iterable[int], only: str,
) -> None:  # fmt: skip
    """Time of a call in a long loop, over that of the best of torch and CuPy."""
    table: dict[str, dict[str, float]] = {}
    slow = []
    for log2 in sizes:
        d = device(log2)
        for name, (_, calls) in cases(d).items():
            if only not in name:
                continue
            contenders = {who: c for who, c in calls.items() if who in (OURS, "torch", "cupy")}
            times = _loops(d, contenders, 1 if bench.options.quick else 7)
            bench.rows[f"{name}, 2^{log2}"] = times
            others = {who: t for who, t in times.items() if who != OURS}
            if not others:
                continue
            peer = min(others, key=lambda who: others[who])
            ratio = table.setdefault(name, {})[f"2^{log2}"] = times[OURS] / others[peer]
            if ratio > 1.05:
                slow.append(
                    f"{name}, 2^{log2}: {times[OURS]:.2f} us, {peer} {others[peer]:.2f} us, {ratio:.2f}"
                )
        del d
    columns = list(dict.fromkeys(size for row in table.values() for size in row))
    print(f"{'ours / best peer':18}" + "".join(f"{size:>7}" for size in columns))
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
    """Microseconds of a call, waited for at the end of a loop: the host's work and the device's."""

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

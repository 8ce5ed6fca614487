"""How fast are transfers of arrays between the host and a GPU?

GB/s by size, up and down, from and to memory that is pageable and reused, pageable and new, or pinned, for
gpuinterop with several numbers of threads (``--threads``), torch and CuPy in the same run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi

THREADS = "GPUINTEROP_TRANSFER_THREADS"
Step = Callable[[], Any]


def with_threads(count: int, step: Step) -> Step:
    """Return the step, run with a number of threads."""

    def call() -> None:
        before = os.environ.get(THREADS)
        os.environ[THREADS] = str(count)
        try:
            step()
        finally:
            del os.environ[THREADS]
            if before is not None:
                os.environ[THREADS] = before

    return call


def rates(bench: Benchmark, row: str, nbytes: int, steps: dict[str, Step]) -> None:
    """Measure the GB/s of blocking copies, in turns."""
    found: dict[str, list[float]] = {}
    turns, usable = (1 if bench.options.quick else 5 if nbytes < 1 << 26 else 3), {}
    for who, step in steps.items():
        usable |= bench.usable(row, {who: Call(step, lambda: None)})
    # Up to 64 MiB in each turn, because one small copy is shorter than the clock's noise.
    repeats = 1 if bench.options.quick else min(500, max(1, (1 << 26) // nbytes))
    for _ in range(turns):
        for who in usable:
            step = steps[who]
            begin = time.perf_counter()
            for _ in range(repeats):
                step()
            seconds = (time.perf_counter() - begin) / repeats
            found.setdefault(who, []).append(nbytes / seconds / 1e9)
    bench.keep(row, found)


def size_row(bench: Benchmark, device: str, libraries: dict[str, Any], k: int) -> None:
    """Measure copies of 2^k bytes."""
    n = 1 << (k - 2)
    host, pinned = np.ones(n, np.float32), gi.pinned_empty((n,), device=device)
    pinned[:] = 1
    there = gi.asarray(host, device=device)
    target = gi.empty((n,), device=device)
    wait = waiting(libraries, device)
    own: dict[str, dict[str, Step]] = {
        "upload": {GPUINTEROP: lambda: (target.set(host), gi.synchronize(device))},
        "download": {GPUINTEROP: lambda: there.get(out=host)},
        "download, new memory": {GPUINTEROP: there.get},
    }
    if k >= 20:
        for steps in own.values():
            counted = {
                f"{GPUINTEROP}, {c} thread{'s' if c > 1 else ''}": c for c in bench.options.threads
            }
            first = steps[GPUINTEROP]
            steps.update({who: with_threads(count, first) for who, count in counted.items()})
    own["upload"][f"{GPUINTEROP}, pinned"] = lambda: (target.set(pinned), gi.synchronize(device))
    own["download"][f"{GPUINTEROP}, pinned"] = lambda: there.get(out=pinned)
    with optional(libraries, "torch", f"2^{k} bytes") as torch:
        if torch:
            cpu, gpu = torch.from_numpy(host), torch.from_numpy(host).to(device)
            own["upload"]["torch"] = lambda: (gpu.copy_(cpu), wait["torch"]())
            own["download"]["torch"] = lambda: cpu.copy_(gpu)
            own["download, new memory"]["torch"] = gpu.cpu
    with optional(libraries, "cupy", f"2^{k} bytes") as cupy:
        if cupy:
            on_gpu = cupy.asarray(host)
            own["upload"]["cupy"] = lambda: (on_gpu.set(host), wait["cupy"]())
            own["download"]["cupy"] = lambda: on_gpu.get(out=host)
            own["download, new memory"]["cupy"] = on_gpu.get
    for name, steps in own.items():
        rates(bench, f"{name}, 2^{k}", 4 * n, steps)


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--threads", type=lambda text: [int(c) for c in text.split(",") if c],
                         default=[1, 2, 4, 8], help="as in 1,2,4,8")  # fmt: skip
    options.add_argument("--sizes", type=lambda text: range(*map(int, text.split(","))),
                         default=range(12, 31, 2), help="powers of two, as in 12,31,2")  # fmt: skip
    chosen = options.parse_args()
    libraries = peers(chosen, ("torch", "cupy"))
    transfers = Benchmark("transfers", "GB/s", chosen, figure="best", picture="lines")
    for k in (12, 21) if chosen.quick else chosen.sizes:
        if 16 << k < gi.mem_info(chosen.device)[0]:
            size_row(transfers, chosen.device, libraries, k)
    transfers.finish()


if __name__ == "__main__":
    main()

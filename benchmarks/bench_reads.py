"""How long does a read of a few bytes take, from the last kernel to a value on the host?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers

import gpuinterop as gi


def small_reads(bench: Benchmark, device: str, libraries: dict[str, Any]) -> None:
    """Measure the microseconds of small reads, in which only the latency counts."""
    host = np.random.default_rng(1).random(4096, np.float32)
    x, out = gi.asarray(host, device=device), np.empty_like(host)
    rows: dict[str, dict[str, Callable[[], Any]]] = {
        "x.get() of 4096 floats": {GPUINTEROP: x.get},
        "x.get(out=y) of 4096 floats": {GPUINTEROP: lambda: x.get(out=out)},
        "x.item(3)": {GPUINTEROP: lambda: x.item(3)},
        "float(x.sum())": {GPUINTEROP: lambda: float(x.sum())},
        "bool((x > 0).all())": {GPUINTEROP: lambda: bool((x > 0).all())},
    }
    with optional(libraries, "torch", "small reads") as torch:
        if torch:
            t, cpu = torch.from_numpy(host).to(device), torch.from_numpy(out)
            rest = (t.cpu, lambda: cpu.copy_(t), lambda: t[3].item(), lambda: float(t.sum()),
                    lambda: bool((t > 0).all()))  # fmt: skip
            for steps, call in zip(rows.values(), rest, strict=True):
                steps["torch"] = call
    with optional(libraries, "cupy", "small reads") as cupy:
        if cupy:
            c = cupy.asarray(host)
            rest = (c.get, lambda: c.get(out=out), lambda: c[3].item(), lambda: float(c.sum()),
                    lambda: bool((c > 0).all()))  # fmt: skip
            for steps, call in zip(rows.values(), rest, strict=True):
                steps["cupy"] = call
    for name, steps in rows.items():
        calls = {who: Call(step, lambda: None) for who, step in steps.items()}
        bench.loop(name, calls, count=1000)


def main() -> None:
    chosen = parser(__doc__, on_host=True).parse_args()
    bench = Benchmark("reads", "us", chosen)
    small_reads(bench, chosen.device, peers(chosen, ("torch", "cupy")))
    bench.finish()


if __name__ == "__main__":
    main()

"""What does one call cost, from 2^10 elements on, and how much of it is the host's?

Time of a call in a long loop, in microseconds, for exp with out given, exp with a fresh result and
x + y; beside us torch, CuPy, a jitted JAX function, and raw launches of one kernel from C++. Below
the size where the kernel itself is longer, this is the cost of launching.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop import _core

EMPTY = 'extern "C" __global__ void nothing(const float* x, float* y, long long n) {}'


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def per_call(call: Callable[[], Any], wait: Callable[[], Any], loops: int) -> float:
    """Microseconds of one call in a loop that is waited for at its end."""
    call()
    wait()
    start = time.perf_counter()
    for _ in range(loops):
        call()
    wait()
    return 1e6 * (time.perf_counter() - start) / loops


def contenders(n: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    host = np.random.default_rng(0).standard_normal(n, np.float32)
    x, y = gi.asarray(host, device="cuda:0"), gi.asarray(host, device="cuda:0")
    out = gi.empty(n, "float32", device="cuda:0")
    wait = gi.synchronize
    found: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "gi exp out": (lambda: gi.exp(x, out=out), wait),
        "gi exp": (lambda: gi.exp(x), wait),
        "gi x + y": (lambda: x + y, wait),
    }
    torch = library("torch")
    if torch is not None and torch.cuda.is_available():
        tx, ty, tout = (torch.from_dlpack(a) for a in (x, y, out))
        sync = torch.cuda.synchronize
        found["torch exp out"] = (lambda: torch.exp(tx, out=tout), sync)
        found["torch exp"] = (lambda: torch.exp(tx), sync)
        found["torch x + y"] = (lambda: tx + ty, sync)
    cupy = library("cupy")
    if cupy is not None and cupy.is_available():
        cx, cy, cout = (cupy.from_dlpack(a) for a in (x, y, out))
        stream = cupy.cuda.get_current_stream()
        found["cupy exp out"] = (lambda: cupy.exp(cx, out=cout), stream.synchronize)
        found["cupy exp"] = (lambda: cupy.exp(cx), stream.synchronize)
        found["cupy x + y"] = (lambda: cx + cy, stream.synchronize)
    jax = library("jax")
    if jax is not None and jax.default_backend() == "gpu":
        jx = jax.numpy.asarray(host)
        function = jax.jit(jax.numpy.exp)
        found["jax exp"] = (lambda: function(jx), lambda: function(jx).block_until_ready())
    return found


def raw_launch(loops: int) -> float:
    """Microseconds of one cuLaunchKernel, called in a loop in C++."""
    x = gi.empty(1024, "float32", device="cuda:0")
    kernel = gi.RawKernel(EMPTY, "nothing")
    kernel((1,), (32,), x, x, np.int64(0))
    loaded = kernel._loaded[0]
    gi.synchronize()
    start = time.perf_counter()
    loaded.repeat(loops)
    gi.synchronize()
    return 1e6 * (time.perf_counter() - start) / loops


def first_call() -> dict[str, float]:
    """Milliseconds of a first kernel: compiled, and found on disk."""
    from gpuinterop import jit  # noqa: PLC0415

    x = gi.asarray(np.ones(64, np.float32), device="cuda:0")
    found = {}
    for name, forget in (("compiled", True), ("from the disk cache", False)):
        _core._forget_kernels()
        jit.clear_cache(disk=forget)
        start = time.perf_counter()
        gi.arctan(x)
        gi.synchronize()
        found[name] = 1e3 * (time.perf_counter() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--last", type=int, default=24)
    parser.add_argument("--step", type=int, default=2)
    parser.add_argument("--loops", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = [1 << k for k in range(arguments.first, arguments.last + 1, arguments.step)] + [230_400]
    raw = statistics.median(raw_launch(10_000) for _ in range(arguments.rounds))
    report: dict[str, Any] = {
        "raw launch, us": raw,
        "first kernel, ms": first_call(),
        "us per call": {},
    }
    print(f"raw launch {raw:.2f} us; first kernel {report['first kernel, ms']}")
    for n in sorted(sizes):
        calls = contenders(n)
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _ in range(arguments.rounds):
            for who, (call, wait) in calls.items():
                times[who].append(
                    per_call(call, wait, max(50, min(arguments.loops, (1 << 34) // n)))
                )
        row = {who: statistics.median(t) for who, t in times.items()}
        report["us per call"][n] = row
        print(f"{n:>10}  " + "  ".join(f"{who} {t:.2f}" for who, t in row.items()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

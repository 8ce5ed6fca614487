"""What does one call cost, from one element to 2^28, and how much of it is the host's?

Microseconds of a call in a long loop, for exp with `out`, exp with a new result and x + y, compared with
torch, CuPy and a jitted JAX function. The baseline is launches of an empty kernel with three arguments from
C++, one after the other. Up to the size at which the kernel itself takes longer, this is the cost of
launching.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any
from unittest import mock

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, jax_call, optional, parser, peers, waiting

import gpuinterop as gi
from gpuinterop import _core

EMPTY = 'extern "C" __global__ void nothing(const float* x, float* y, long long n) {}'


def label(n: int) -> str:
    return f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else str(n)


def measure(bench: Benchmark, libraries: dict[str, Any], n: int, floor: Call | None) -> None:
    device, wait = bench.options.device, waiting(libraries, bench.options.device)
    block = np.random.default_rng(0).standard_normal(min(n, 1 << 20), np.float32)
    x = gi.empty(n, "float32", device=device)
    x.reshape(-1, len(block))[...] = gi.asarray(block, device=device)
    y, out = x.copy(), gi.empty_like(x)
    bodies = {
        f"exp, out given, {label(n)}": {
            GPUINTEROP: Call(lambda: gi.exp(x, out=out), wait[GPUINTEROP])
        },
        f"exp, fresh, {label(n)}": {GPUINTEROP: Call(lambda: gi.exp(x), wait[GPUINTEROP])},
        f"x + y, {label(n)}": {GPUINTEROP: Call(lambda: x + y, wait[GPUINTEROP])},
    }
    given, fresh, add = bodies.values()
    with optional(libraries, "torch", label(n)) as torch:
        tx, ty, tout = (torch.from_dlpack(a) for a in (x, y, out))
        given["torch"] = Call(lambda: torch.exp(tx, out=tout), wait["torch"])
        fresh["torch"] = Call(lambda: torch.exp(tx), wait["torch"])
        add["torch"] = Call(lambda: tx + ty, wait["torch"])
    with optional(libraries, "cupy", label(n)) as cupy:
        cx, cy, cout = (cupy.from_dlpack(a) for a in (x, y, out))
        given["cupy"] = Call(lambda: cupy.exp(cx, out=cout), wait["cupy"])
        fresh["cupy"] = Call(lambda: cupy.exp(cx), wait["cupy"])
        add["cupy"] = Call(lambda: cx + cy, wait["cupy"])
    with optional(libraries, "jax", label(n)) as jax:
        jx = jax.numpy.tile(jax.numpy.asarray(block), n // len(block))
        fresh["jax"] = jax_call(jax, jax.jit(jax.numpy.exp), jx)
        jy = jax.block_until_ready(
            jx + 1
        )  # separate memory, because reading one array twice is faster
        add["jax"] = jax_call(jax, jax.jit(lambda a, b: a + b), jx, jy)
    if floor is not None and n < 1 << 20:  # for larger n the kernel takes longer than its launch
        given["floor"] = floor
    for name, calls in bodies.items():
        bench.loop(name, calls, count=max(20, min(bench.options.loops, (1 << 33) // n)))


def raw_launch(device: str) -> Call:
    """Return a call that runs cuLaunchKernel in a loop in C++."""
    x = gi.empty(1024, "float32", device=device)
    kernel = gi.RawKernel(EMPTY, "nothing")
    kernel((1,), (32,), x, x, np.int64(0))
    loaded = kernel._loaded[gi.devices.device(device).index]
    return Call(lambda: loaded.repeat(1000), lambda: gi.synchronize(device), per=1000)


FIRST = """
import time
import numpy as np
import gpuinterop as gi
x = gi.asarray(np.ones(64, np.float32), device={device!r})
gi.synchronize({device!r})
start = time.perf_counter()
gi.arctan(x)
gi.synchronize({device!r})
print(1e6 * (time.perf_counter() - start))
"""


def first_of_a_process(bench: Benchmark) -> None:
    """Measure the first kernel of a process that loads the compiler, and of another one that reads the disk cache."""
    times: dict[str, list[float]] = {"compiled": [], "from the disk cache": []}
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            for found in times.values():
                done = subprocess.run(
                    [sys.executable, "-c", FIRST.format(device=bench.options.device)],
                    env={**os.environ, "GPUINTEROP_CACHE_DIR": folder},
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                found.append(float(done.stdout))
    marks = {"compiled": 100_000.0, "from the disk cache": 5_000.0}
    for name, found in times.items():
        bench.keep(f"first kernel of a process, {name}", {GPUINTEROP: found}, mark=marks[name])


def further_kernel(bench: Benchmark) -> None:
    """Measure a kernel in a process that has already compiled one."""
    device = bench.options.device
    x = gi.asarray(np.ones(64, np.float32), device=device)
    found: list[float] = []
    for _ in range(4):
        _core._forget_calls()
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"GPUINTEROP_CACHE_DIR": folder}),
        ):
            start = time.perf_counter()
            gi.arctan(x)
            gi.synchronize(device)
            found.append(1e6 * (time.perf_counter() - start))
    bench.keep("further kernel, compiled", {GPUINTEROP: found[1:]})


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--first", type=int, default=0, help="smallest size, as a power of two")
    options.add_argument("--last", type=int, default=28, help="largest size, as a power of two")
    options.add_argument("--loops", type=int, default=2000)
    chosen = options.parse_args()
    if chosen.quick:
        chosen.last = min(chosen.last, 13)
    bench = Benchmark("launch", "us", chosen, picture="lines")
    libraries = peers(chosen)
    floor = None
    if not bench.on_host:
        if not chosen.quick:
            first_of_a_process(bench)
        further_kernel(bench)
        floor = raw_launch(chosen.device)
    sizes = {1 << k for k in (0, 5, 10, 13, 16, 19, 22, 25, 28) if chosen.first <= k <= chosen.last}
    for n in sorted(sizes | {1 << chosen.last, 230_400 if not chosen.quick else 1 << 12}):
        measure(bench, libraries, n, floor)
    bench.finish()


if __name__ == "__main__":
    main()

"""The memory bandwidth of elementwise operations, for different layouts.

GB/s of the bytes that must be transferred (each operand once, without repeated elements), float32, for
gpuinterop, torch, CuPy, JAX and a hand-written baseline: a kernel for the case, or the driver's copy.
The contenders take turns, each with a burst of calls between two events, so that the cost of queueing a
call is not part of the figure. ``--ratios`` compares times of a call with the fastest other library, from
2^10 elements upwards.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bandwidth_baseline import floors
from bandwidth_tables import ratios
from bench_common import GPUINTEROP, Benchmark, optional, parser, peers

import gpuinterop as gi

MARKS: dict[str, float] = {"exp(x)": 4100, "x + y": 4300, "X + Y.T": 4200, "copy of X.T": 4000, "X + row": 4000,
         "X + column": 4000, "exp(x[::-1])": 4000, "exp(x[::2])": 2800}  # fmt: skip


class Device:
    """The benchmark's arrays and clock: events on the legacy stream, which all libraries but JAX use."""

    def __init__(self, options: argparse.Namespace, log2: int | None = None) -> None:
        n, device = 1 << (log2 or options.log2), options.device
        self.on_host = device == "cpu"
        self.libraries = peers(options)
        self.side = 1 << ((n.bit_length() - 1) // 2)
        self.n = self.side * self.side
        random = np.random.default_rng(0)
        host = random.standard_normal(1 << 20, np.float32)
        self.x = gi.empty(self.n, "float32", device=device)
        self.x.reshape(-1, min(self.n, 1 << 20))[...] = gi.asarray(host[: self.n], device=device)
        self.y = self.x + 1
        self.out = gi.empty(self.n, "float32", device=device)

    def milliseconds(self, call: Callable[[], Any], count: int, *, events: bool = True) -> float:
        """Return the milliseconds of one call, from a burst of `count`; without events the call itself waits."""
        if self.on_host or not events:
            wait = getattr(call, "wait", None) or (lambda: None)
            wait()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            wait()
            return 1e3 * (time.perf_counter() - begin) / count
        start, end = gi.Event(timing=True), gi.Event(timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / count

    def burst(self, call: Callable[[], Any], *, events: bool = True) -> int:
        """Return the number of calls that take about four milliseconds."""
        once = max(self.milliseconds(call, 1, events=events), 1e-4)
        return max(1, min(200, round(4 / once)))

    def wait(self) -> None:
        """Wait for all queued work; the contenders share one stream."""
        if not self.on_host:
            gi.synchronize()


def cases(d: Device) -> dict[str, tuple[float, dict[str, Callable[[], Any]]]]:
    """Return by name the bytes that must move, and the contenders' calls."""
    x, y, out, n, m = d.x, d.y, d.out, d.n, d.side
    matrix, other, result = x.reshape(m, m), y.reshape(m, m), out.reshape(m, m)
    row, column = y[:m], y[:m].reshape(m, 1)
    half = out[: n // 2]
    four = 4.0 * n
    found: dict[str, tuple[float, dict[str, Callable[[], Any]]]] = {
        "exp(x)": (2 * four, {GPUINTEROP: lambda: gi.exp(x, out=out)}),
        "x + y": (3 * four, {GPUINTEROP: lambda: gi.add(x, y, out=out)}),
        "X + Y.T": (3 * four, {GPUINTEROP: lambda: gi.add(matrix, other.T, out=result)}),
        "copy of X.T": (2 * four, {GPUINTEROP: lambda: result.__setitem__(..., matrix.T)}),
        "X + row": (2 * four, {GPUINTEROP: lambda: gi.add(matrix, row, out=result)}),
        "X + column": (2 * four, {GPUINTEROP: lambda: gi.add(matrix, column, out=result)}),
        "exp(x[::-1])": (2 * four, {GPUINTEROP: lambda: gi.exp(x[::-1], out=out)}),
        "exp(x[::2])": (four, {GPUINTEROP: lambda: gi.exp(x[::2], out=half)}),
        "x[1:] + y[:-1]": (3 * four, {GPUINTEROP: lambda: gi.add(x[1:], y[:-1], out=out[:-1])}),
        "X[:, 1:-1] * 2": (2 * four, {
            GPUINTEROP: lambda: gi.multiply(matrix[:, 1:-1], 2, out=result[:, 1:-1])}),
        "short rows + 1": (2 * four * 7 / 8, {
            GPUINTEROP: lambda: gi.add(x.reshape(-1, 8)[:, :7], 1, out=out.reshape(-1, 8)[:, :7])}),
        "astype(float16)": (1.5 * four, {GPUINTEROP: lambda: x.astype("float16")}),
        "x > y": (2.25 * four, {GPUINTEROP: lambda: x > y}),
        "x * 2 (fresh)": (2 * four, {GPUINTEROP: lambda: x * 2}),
        "fill": (four, {GPUINTEROP: lambda: out.fill(1.5)}),
    }  # fmt: skip
    if not d.on_host:
        for name, call in floors(x, y, out, m).items():
            found[name][1]["floor"] = call
    for name, add in (("torch", add_torch), ("cupy", add_cupy), ("jax", add_jax)):
        with optional(d.libraries, name, "bandwidth") as library:
            add(found, d, library)
    return found


def add_torch(found: Any, d: Device, torch: Any) -> None:
    n, m = d.n, d.side
    x, y, out = (torch.from_dlpack(a) for a in (d.x, d.y, d.out))
    matrix, other, result = (a.reshape(m, m) for a in (x, y, out))
    row, column = y[:m], y[:m].reshape(m, 1)
    calls = {
        "exp(x)": lambda: torch.exp(x, out=out),
        "x + y": lambda: torch.add(x, y, out=out),
        "X + Y.T": lambda: torch.add(matrix, other.T, out=result),
        "copy of X.T": lambda: result.copy_(matrix.T),
        "X + row": lambda: torch.add(matrix, row, out=result),
        "X + column": lambda: torch.add(matrix, column, out=result),
        "exp(x[::2])": lambda: torch.exp(x[::2], out=out[: n // 2]),
        "x[1:] + y[:-1]": lambda: torch.add(x[1:], y[:-1], out=out[:-1]),
        "X[:, 1:-1] * 2": lambda: torch.mul(matrix[:, 1:-1], 2, out=result[:, 1:-1]),
        "short rows + 1": lambda: torch.add(
            x.reshape(-1, 8)[:, :7], 1, out=out.reshape(-1, 8)[:, :7]
        ),
        "astype(float16)": lambda: x.half(),
        "x > y": lambda: x > y,
        "x * 2 (fresh)": lambda: x * 2,
        "fill": lambda: out.fill_(1.5),
    }
    for name, call in calls.items():
        found[name][1]["torch"] = call


def add_cupy(found: Any, d: Device, cupy: Any) -> None:
    n, m = d.n, d.side
    x, y, out = (cupy.from_dlpack(a) for a in (d.x, d.y, d.out))
    matrix, other, result = (a.reshape(m, m) for a in (x, y, out))
    row, column = y[:m], y[:m].reshape(m, 1)
    calls = {
        "exp(x)": lambda: cupy.exp(x, out=out),
        "x + y": lambda: cupy.add(x, y, out=out),
        "X + Y.T": lambda: cupy.add(matrix, other.T, out=result),
        "copy of X.T": lambda: result.__setitem__(..., matrix.T),
        "X + row": lambda: cupy.add(matrix, row, out=result),
        "X + column": lambda: cupy.add(matrix, column, out=result),
        "exp(x[::-1])": lambda: cupy.exp(x[::-1], out=out),
        "exp(x[::2])": lambda: cupy.exp(x[::2], out=out[: n // 2]),
        "x[1:] + y[:-1]": lambda: cupy.add(x[1:], y[:-1], out=out[:-1]),
        "X[:, 1:-1] * 2": lambda: cupy.multiply(matrix[:, 1:-1], 2, out=result[:, 1:-1]),
        "short rows + 1": lambda: cupy.add(
            x.reshape(-1, 8)[:, :7], 1, out=out.reshape(-1, 8)[:, :7]
        ),
        "astype(float16)": lambda: x.astype("float16"),
        "x > y": lambda: x > y,
        "x * 2 (fresh)": lambda: x * 2,
        "fill": lambda: out.fill(1.5),
    }
    for name, call in calls.items():
        found[name][1]["cupy"] = call


def add_jax(found: Any, d: Device, jax: Any) -> None:
    jnp, m = jax.numpy, d.side
    x, y = jnp.asarray(d.x.get()), jnp.asarray(d.y.get())
    functions = {
        "exp(x)": jax.jit(lambda x, y: jnp.exp(x)),
        "x + y": jax.jit(lambda x, y: x + y),
        "X + Y.T": jax.jit(lambda x, y: x.reshape(m, m) + y.reshape(m, m).T),
        "X + row": jax.jit(lambda x, y: x.reshape(m, m) + y[:m]),
        "exp(x[::-1])": jax.jit(lambda x, y: jnp.exp(x[::-1])),
        "exp(x[::2])": jax.jit(lambda x, y: jnp.exp(x[::2])),
    }
    for name, function in functions.items():
        found[name][1]["jax"] = Burst(jax, function, x, y)


class Burst:
    """A burst of calls of JAX, which queues on streams of its own, so `wait` waits for the last result."""

    def __init__(self, jax: Any, function: Callable[..., Any], *arguments: Any) -> None:
        self.jax, self.function, self.arguments = jax, function, arguments
        self.last: Any = None

    def __call__(self) -> None:
        self.last = self.function(*self.arguments)

    def wait(self) -> None:
        self.jax.block_until_ready(self.last)


def same_result(d: Device, calls: dict[str, Callable[[], Any]], name: str) -> None:
    """Check that the baseline computes the same result, because an empty kernel would be faster."""
    d.out.fill(0)
    calls[GPUINTEROP]()
    own = d.out.copy()
    d.out.fill(0)
    calls["floor"]()
    if not gi.allclose(d.out, own, rtol=1e-6):
        raise SystemExit(f"{name}: the baseline's kernel gives another result")


def measure(bench: Benchmark, d: Device, repeat: int, only: str, marks: dict[str, float]) -> None:
    for name, (moved, calls) in cases(d).items():
        if only not in name:
            continue
        counts: dict[str, int] = {}
        for who, call in list(calls.items()):
            with optional({who: call}, who, name):
                call()
                # JAX has its own streams, so time it by the host's clock around a wait.
                counts[who] = d.burst(call, events=who != "jax")
                continue
            bench.failed |= who == GPUINTEROP
            del calls[who]
        if "floor" in calls and not bench.options.quick:
            same_result(d, calls, name)
        d.wait()
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _ in range(repeat):
            for who, call in calls.items():
                times[who].append(d.milliseconds(call, counts[who], events=who != "jax"))
        rates = {who: [moved / t / 1e6 for t in found] for who, found in times.items()}
        bench.keep(name, rates, marks.get(name))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--log2", type=int, default=28, help="elements, as a power of two")
    options.add_argument("--repeat", type=int, default=20)
    options.add_argument("--only", default="", help="cases whose name contains this")
    options.add_argument(
        "--ratios",
        action="store_true",
        help="times relative to the fastest other library, by size and layout",
    )
    chosen = options.parse_args()
    if chosen.quick:
        chosen.log2, chosen.repeat = min(chosen.log2, 14), 2
    # The targets are for arrays of this size, on a GPU.
    marks = MARKS if chosen.log2 == 28 and chosen.device != "cpu" else {}
    if chosen.ratios:
        sizes = range(10, chosen.log2 + 1, 2)
        bench = Benchmark("ratios", "us", chosen)
        ratios(bench, lambda log2: Device(chosen, log2), cases, sizes, chosen.only)
        return
    d = Device(chosen)
    bench = Benchmark("bandwidth", "GB/s", chosen)
    measure(bench, d, chosen.repeat, chosen.only, marks)
    bench.finish()


if __name__ == "__main__":
    main()

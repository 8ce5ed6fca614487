"""How much faster are float32 products by three products of TF32 than cuBLAS's, and how large are the errors?

Microseconds of a product on the device, as nodes of a CUDA graph, with all that runs before it. "exact" and
"tf32x3" are gpuinterop's precisions; torch multiplies as float32 and with TF32. The errors are parts of |A| |B|.
``--grid N`` measures N shapes without the rule that chooses (`is_faster` of gpuinterop/product/tensor_product.py), and
says which of them the rule would have chosen. The rule was fitted to shapes of seed 1; other seeds judge it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from bench_common import Benchmark, parser, peers

import gpuinterop as gi
from gpuinterop.product import tensor_product

PRECISIONS = ("exact", "tf32x3")
CHOSEN = "the rule takes tf32x3"  # 1 or 0, beside the times of a row


def uniform(random: Any, m: int, n: int, k: int) -> Any:
    return random.random((m, k), dtype=np.float32), random.random((k, n), dtype=np.float32)


def normal(random: Any, m: int, n: int, k: int) -> Any:
    return random.standard_normal((m, k), dtype=np.float32), random.standard_normal(
        (k, n), dtype=np.float32
    )


def cancelling(random: Any, m: int, n: int, k: int) -> Any:
    x, y = normal(random, m, n, k // 2)
    nearly = 1 + 1e-6 * random.standard_normal(y.shape, dtype=np.float32)
    return np.hstack([x, x]), np.vstack([y, -y * nearly])


def wide_range(random: Any, m: int, n: int, k: int) -> Any:
    x, y = normal(random, m, n, k)
    rows, elements = (
        10.0 ** random.uniform(-r, r, shape) for r, shape in ((20, (m, 1)), (15, y.shape))
    )
    return (x * rows).astype(np.float32), (y * elements).astype(np.float32)


# Data and inner dimensions.
DATA: list[tuple[str, Any, tuple[int, ...]]] = [
    ("normal", normal, (32, 64, 96, 256, 1000, 4096)),
    ("positive", uniform, (32, 64, 96, 256, 1000, 4096)),
    ("cancelling", cancelling, (256, 1024, 4096)),
    ("of wide range", wide_range, (256, 1000, 4096)),
]
# Shape, batch, addend, orders of the operands, and how many times as fast as "exact" the product has to be.
ROWS: list[tuple[tuple[int, int, int], int, bool, str, float]] = [
    ((1000, 1000, 1000), 1, False, "NN", 1.95),
    ((1000, 1000, 1000), 1, True, "NN", 1.85),
    ((1024, 1024, 1024), 1, False, "NN", 2.1),
    ((2048, 2048, 2048), 1, False, "NN", 2.3),
    ((4096, 4096, 4096), 1, False, "NN", 2.4),
    ((4095, 4097, 4093), 1, False, "NN", 2.3),
    ((8192, 8192, 8192), 1, False, "NN", 2.3),
    ((768, 768, 768), 1, False, "NN", 1.6),
    ((512, 512, 512), 64, False, "NN", 1.5),
    ((1000, 1000, 1000), 1, False, "NT", 1.95),
    ((1000, 1000, 1000), 1, False, "TN", 1.95),
    ((1000, 1000, 1000), 1, False, "TT", 1.95),
    ((4096, 4096, 4096), 1, False, "NT", 2.4),
    ((4096, 4096, 4096), 1, False, "TN", 2.4),
    ((4096, 4096, 4096), 1, False, "TT", 2.4),
]


class Run:
    """The device, the peers, and one method for each table."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench, self.device = bench, bench.options.device
        self.torch = peers(bench.options, ("torch",)).get("torch")
        self.seconds = 0.0 if bench.options.quick else 0.004

        # Operands are views of these numbers, so that large ones need no time on the host.
        own = np.random.default_rng(1).standard_normal(1 << 20, dtype=np.float32)
        many = (2 if self.bench.on_host else 160, 1 << 20)
        self.pool = gi.asarray(own, device=self.device).broadcast_to(many).copy().reshape(-1)

    def operand(self, batch: int, rows: int, columns: int, order: str, start: int = 0) -> Any:
        shape = (rows, columns) if order == "N" else (columns, rows)
        shape = (batch, *shape) if batch > 1 else shape
        x = self.pool[start : start + batch * rows * columns].reshape(shape)
        return x if order == "N" else x.swapaxes(-1, -2)

    def replays(self, body: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
        """Return the replay of a graph of several calls, and their number."""
        body()
        count = 1 if not self.seconds else max(1, min(20, round(self.seconds / self.timed(body))))
        with gi.capture() as graph:
            for _ in range(count):
                body()
        return graph.replay, count

    def torch_replays(self, body: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
        torch = self.torch
        body()
        count = max(1, min(20, round(self.seconds / self.timed(body))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                body()
        return graph.replay, count

    def timed(self, body: Callable[[], Any]) -> float:
        start, end = (
            (gi.Event(timing=True) for _ in range(2)) if "cuda" in self.device else (None, None)
        )
        if start is None:
            body()
            return 1.0
        start.record()
        body()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)) / 1e3, 1e-7)

    def measure(
        self, graphs: dict[str, tuple[Callable[[], Any], int]], turns: int
    ) -> dict[str, list[float]]:
        """Return microseconds of a call for each contender; in every turn they run in another order."""
        times: dict[str, list[float]] = {who: [] for who in graphs}
        order = list(graphs)
        for turn in range(turns + 1):
            random.shuffle(order)
            for who in order:
                replay, count = graphs[who]
                seconds = self.timed(replay) / count
                if turn or not self.seconds:
                    times[who].append(1e6 * seconds)
        return times

    def product(
        self, m: int, n: int, k: int, batch: int, adds: bool, orders: str, turns: int = 7
    ) -> dict[str, list[float]]:
        a, b = self.operand(batch, m, k, orders[0]), self.operand(batch, k, n, orders[1], 1 << 12)
        c = self.operand(batch, m, n, "N") if adds else None
        out = gi.empty((batch, m, n) if batch > 1 else (m, n), device=self.device)
        bodies = {p: lambda p=p: gi.gemm(a, b, c, out=out, precision=p) for p in PRECISIONS}
        graphs = {who: self.replays(body) for who, body in bodies.items()}
        if self.torch is not None and not self.bench.on_host:
            graphs |= self.torch_graphs(a, b, c, out, tf32=turns > 5)
        return self.measure(graphs, turns)

    def torch_graphs(self, *arrays: Any, tf32: bool) -> dict[str, Any]:
        torch = self.torch
        x, y, z, into = (None if v is None else torch.from_dlpack(v) for v in arrays)

        def body() -> Any:
            if z is None:
                return torch.matmul(x, y, out=into)
            return (torch.addmm if x.ndim == 2 else torch.baddbmm)(z, x, y, out=into)

        found = {"torch": self.torch_replays(body)}
        if not tf32:
            return found
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            found["torch, TF32"] = self.torch_replays(body)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
        return found

    def speed(self) -> None:
        for (m, n, k), batch, adds, orders, mark in ROWS:
            if self.bench.options.quick:
                m, n, k, batch = 8, 6, 4, min(batch, 2)
            times = self.product(m, n, k, batch, adds, orders)
            row = f"{f'{batch} of ' if batch > 1 else ''}{m}x{k} @ {k}x{n}{' + C' if adds else ''}, {orders}"
            self.bench.keep(row, times)
            ratio = statistics.median(times["exact"]) / statistics.median(times["tf32x3"])
            print(
                f"  {ratio:.2f} times as fast, mark {mark}{'' if ratio >= mark else '  MISSED'}",
                flush=True,
            )

    @patch.object(tensor_product, "is_faster", lambda *shape: True)
    def errors(self) -> None:
        """Measure the largest error and the median, with products of float64 as exact ones."""
        m = n = 16 if self.bench.options.quick else 1024
        for name, draw, depths in DATA:
            for k in depths:
                a, b = (
                    gi.asarray(x, device=self.device)
                    for x in draw(np.random.default_rng(k), m, n, k)
                )
                x, y = (v.astype("float64") for v in (a, b))
                exact, scale = x @ y, abs(x) @ abs(y)
                found = {}
                for precision in (*PRECISIONS, "tf32"):
                    error = (
                        abs(gi.matmul(a, b, precision=precision).astype("float64") - exact) / scale
                    )
                    found[precision] = error.get()
                for figure, of in (("maximum", np.max), ("median", np.median)):
                    turns = {p: [1e9 * float(of(error))] for p, error in found.items()}
                    self.bench.keep(f"{name}, k = {k}, {figure}", turns)
                    allowed = 1.5 if k < 256 else 1.4 if draw is wide_range else 1.0
                    ratio = turns["tf32x3"][0] / max(turns["exact"][0], 1e-30)
                    if ratio > allowed:
                        print(f"  {ratio:.2f} times the error, mark {allowed}  MISSED", flush=True)

    def grid(self, count: int, seed: int) -> None:
        """Measure shapes of all proportions without the rule, and say what the rule would have chosen."""
        rule, draw, adding = tensor_product.is_faster, random.Random(seed), random.Random(seed)
        most = min(2**27, self.pool.size // 2)  # elements of an operand
        chosen = False

        def every_shape(*shape: Any) -> bool:
            nonlocal chosen
            chosen = rule(*shape)
            return True

        with patch.object(tensor_product, "is_faster", every_shape):
            while len(self.bench.rows) < count:
                m, n, k = (round(2 ** draw.uniform(4, 14)) for _ in range(3))
                kind = draw.randrange(4)
                if kind == 0:
                    n = m
                if kind == 1:
                    m = n = k = max(m, n) // 8
                if draw.random() < 0.5:
                    m, n, k = (max(16, x // 64 * 64) for x in (m, n, k))
                batch = draw.choice([1, 1, 1, 1, 2, 16, 64])
                work = 2 * m * n * k * batch
                if not 2e7 <= work <= 2e11 or max(m * k, n * k, m * n) * batch > most:
                    continue
                orders, adds = draw.choice(["NN", "NN", "NT", "TN", "TT"]), adding.random() < 0.25
                chosen = False
                times = self.product(m, n, k, batch, adds, orders, 5)
                row = f"{f'{batch} of ' if batch > 1 else ''}{m}x{k} @ {k}x{n}{' + C' if adds else ''}, {orders}"
                self.bench.keep(row, times | {CHOSEN: [float(chosen)]})

    def judge(self) -> None:
        """Say how good the choice of the rule is: the switch must make no shape slower."""
        rows = self.bench.rows
        ratio = {name: row["exact"] / row["tf32x3"] for name, row in rows.items()}
        chosen = sorted(((ratio[name], name) for name, row in rows.items() if row[CHOSEN]))
        left = sorted(((ratio[name], name) for name, row in rows.items() if not row[CHOSEN]))
        slower = [f"{r:.2f} {name}" for r, name in chosen if r < 1]
        faster = [f"{r:.2f} {name}" for r, name in left if r > 1.1]
        print(f"{len(rows)} shapes, chosen {len(chosen)}, of these slower {len(slower)}: {slower}")
        for what, found in (("chosen", chosen), ("left", left)):
            if found:
                ratios = [r for r, _ in found]
                print(
                    f"{what}: least {ratios[0]:.2f}, median {statistics.median(ratios):.2f}, most {ratios[-1]:.2f}"
                )
        print(f"left although 1.1 times as fast or more: {len(faster)}: {faster[-8:]}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--grid", type=int, default=0, help="measure this many shapes instead")
    options.add_argument("--seed", type=int, default=1, help="of the shapes of the grid")
    options.add_argument("--errors", action="store_true", help="measure errors instead")
    chosen = options.parse_args()
    unit = "1e-9 of |A| |B|" if chosen.errors else "us"
    bench = Benchmark("products on tensor cores", unit, chosen)
    run = Run(bench)
    if chosen.grid:
        run.grid(chosen.grid, chosen.seed)
    elif chosen.errors:
        run.errors()
    else:
        run.speed()
    bench.finish()
    if chosen.grid:
        run.judge()


if __name__ == "__main__":
    main()

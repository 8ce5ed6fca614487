"""Does what docs/reference/product-precision.md says of products on tensor cores hold, and what does a call cost?

Times of products with infinities and NaNs, errors of products that float32 computes exactly, the bias of positive data,
small elements, overflow, the host's time of a call, and the blog's y = m.x + b. Each row names its unit.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from bench_common import Benchmark, Call, optional, parser, peers, waiting
from bench_tensor_products import PRECISIONS

import gpuinterop as gi
from gpuinterop.product import tensor_product


def sprinkled(random: Any, shape: tuple[int, int], value: float, count: int) -> Any:
    """Return normal numbers with `count` copies of a value at random places."""
    x = random.standard_normal(shape, dtype=np.float32)
    x.reshape(-1)[random.integers(x.size, size=count)] = value
    return x


class Run:
    """The device, the peers, and one method for each kind of claim."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench, self.device = bench, bench.options.device
        self.libraries = peers(bench.options, ("torch",))
        self.wait = waiting(self.libraries, self.device)
        self.random = np.random.default_rng(7)

    def array(self, x: Any) -> Any:
        return gi.asarray(np.ascontiguousarray(x, dtype=np.float32), device=self.device)

    def normal(self, *shape: int) -> Any:
        return self.random.standard_normal(shape, dtype=np.float32)

    # ---- time -----------------------------------------------------------------------------------------

    def times(self, n: int) -> None:
        """Measure products of n x n matrices that are not all finite."""
        plain = self.normal(n, n)
        rows = plain.copy()
        rows[np.arange(n), self.random.integers(n, size=n)] = np.inf
        data = {
            "only finite numbers": (plain, plain),
            "one NaN in a": (sprinkled(self.random, plain.shape, np.nan, 1), plain),
            "one NaN in b": (plain, sprinkled(self.random, plain.shape, np.nan, 1)),
            "16 NaNs in a": (sprinkled(self.random, plain.shape, np.nan, 16), plain),
            "16 NaNs in b": (plain, sprinkled(self.random, plain.shape, np.nan, 16)),
            "16 infinities in a": (sprinkled(self.random, plain.shape, np.inf, 16), plain),
            "16 infinities in b": (plain, sprinkled(self.random, plain.shape, np.inf, 16)),
            "16 NaNs in a and 16 in b": tuple(
                sprinkled(self.random, plain.shape, np.nan, 16) for _ in range(2)
            ),
            "an infinity in every row of a": (rows, plain),
            "NaN everywhere": (np.full_like(plain, np.nan), plain),
        }
        out = gi.empty((n, n), device=self.device)
        for name, (a, b) in data.items():
            for order in "NT" if name.startswith("16 NaNs in") else "N":
                x = self.array(a)
                y = self.array(b) if order == "N" else self.array(b.T).T
                bodies = {
                    p: lambda x=x, y=y, p=p: gi.matmul(x, y, out=out, precision=p)
                    for p in PRECISIONS
                }
                calls = {p: Call(body, self.wait["gpuinterop"]) for p, body in bodies.items()}
                self.bench.device(f"{n}^3, N{order}, {name}, us", calls, budget=0.2)

    def host(self, n: int, count: int) -> None:
        """Measure what the host does for a call while the device's queue has room for all calls."""
        a, b = (self.array(self.normal(n, n)) for _ in range(2))
        out = gi.empty((n, n), device=self.device)
        bodies: dict[str, Callable[[], Any]] = {
            p: lambda p=p: gi.matmul(a, b, out=out, precision=p) for p in PRECISIONS
        }
        with optional(self.libraries, "torch", "host") as torch:
            x, y, z = (torch.from_dlpack(v) for v in (a, b, out))
            bodies["torch"] = lambda: torch.mm(x, y, out=z)
        times: dict[str, list[float]] = {who: [] for who in bodies}
        for turn in range(2 if self.bench.options.quick else 12):
            for who, body in bodies.items():
                gi.synchronize(self.device)
                begin = time.perf_counter()
                for _ in range(count):
                    body()
                seconds = (time.perf_counter() - begin) / count
                gi.synchronize(self.device)
                if turn:
                    times[who].append(1e6 * seconds)
        self.bench.keep(f"{n}^3, the host's time of a call, us", times)

    def blog(self, n: int) -> None:
        """Measure an iteration of y = m.x + b in a loop: as calls, as a captured graph, compiled by PyTensor."""
        m, x, b = (self.array(self.normal(n, n)) for _ in range(3))
        y = gi.empty((n, n), device=self.device)
        wait = self.wait["gpuinterop"]
        bodies = {p: lambda p=p: gi.gemm(m, x, b, out=y, precision=p) for p in PRECISIONS}
        calls = {p: Call(body, wait) for p, body in bodies.items()}
        graphs = {
            p: Call(gi.capture(body, device=self.device).replay, wait) for p, body in bodies.items()
        }
        with optional(self.libraries, "torch", "blog") as torch:
            tm, tx, tb, ty = (torch.from_dlpack(v) for v in (m, x, b, y))
            calls["torch"] = Call(lambda: torch.addmm(tb, tm, tx, out=ty), self.wait["torch"])
        self.bench.loop(f"y = m.x + b, {n}^3, us", calls, count=300)
        self.bench.loop(f"y = m.x + b, {n}^3, captured, us", graphs, count=300)
        if importlib.util.find_spec("pytensor") is None:
            return print("skipped: PyTensor is not installed")
        self.bench.loop(f"y = m.x + b, {n}^3, the blog's last program in PyTensor, us", {
            p: Call(self.compiled(n, p), wait) for p in PRECISIONS
        }, count=300)  # fmt: skip

    def compiled(self, n: int, precision: str) -> Callable[[], Any]:
        import pytensor
        import pytensor.tensor as pt

        import gpuinterop.pytensor as backend

        pytensor.config.cxx = ""
        before = gi.set_product_precision("exact")
        backend.use(self.device, product_precision=precision)
        m, x, b, y = (pytensor.shared(self.normal(n, n)) for _ in range(4))
        train = pytensor.function([], [], updates={y: pt.add(pt.dot(m, x), b)})
        backend.unuse()
        gi.set_product_precision(before)

        def body() -> None:
            with gi.product_precision(precision):
                train()

        return body

    # ---- numbers --------------------------------------------------------------------------------------

    def products(self, a: Any, b: Any) -> tuple[Any, dict[str, Any]]:
        """Return a @ b in float64, and with each precision in float32; a repeated call has to give equal bits."""
        x, y = self.array(a), self.array(b)
        found = {}
        for p in PRECISIONS:
            found[p] = gi.matmul(x, y, precision=p).get()
            again = gi.matmul(x, y, precision=p).get()
            assert found[p].tobytes() == again.tobytes(), p
        exact = (x.astype("float64") @ y.astype("float64")).get()
        return exact, found

    def keep(self, name: str, of: Callable[[Any, Any], float], exact: Any, found: Any) -> None:
        with np.errstate(all="ignore"):
            self.bench.keep(name, {p: [float(of(x, exact))] for p, x in found.items()})

    def copies(self, n: int) -> None:
        """Products that only select or sum integers, which float32 computes exactly."""
        identity, normal = np.eye(n, dtype=np.float32), self.normal(n, n)
        rows = self.random.integers(n, size=n)
        large = (
            self.random.integers(2**11, 2**12, (n, 1)),
            self.random.integers(2**11, 2**12, (1, n)),
        )
        small = self.random.integers(-100, 101, (2, n, n))
        for name, a, b in (
            ("identity @ normal", identity, normal),
            ("normal @ identity", normal, identity),
            ("permutation @ normal", identity[self.random.permutation(n)], normal),
            ("selection @ normal", identity[rows], normal),
            ("identity @ normal float16", identity, normal.astype(np.float16)),
            ("integers to 100", *small),
            ("integers of 2^11 to 2^12, k = 1", *large),
        ):
            exact, found = self.products(a, b)
            self.keep(
                f"{name}, % of elements equal", lambda x, y: 100 * (x == y).mean(), exact, found
            )
            self.keep(f"{name}, largest error in ulp", ulps, exact, found)

    def scales(self, n: int) -> None:
        """The bias of positive numbers, and errors of small ones."""
        for k in (n // 4, n, 4 * n):
            exact, found = self.products(
                *(self.random.random(s, dtype=np.float32) for s in ((n, k), (k, n)))
            )
            self.keep(
                f"positive, k = {k}, mean error in 1e-9 of the result", mean_error, exact, found
            )
        for exponent in (-30, -34, -35, -36, -38, -40):
            a = (self.normal(n, n).astype(np.float64) * 10.0**exponent).astype(np.float32)
            b = self.normal(n, n)
            exact, found = self.products(a, b)
            scale = abs(a.astype(np.float64)) @ abs(b.astype(np.float64))
            self.keep(
                f"a of 1e{exponent}, largest error in 1e-9 of |A| |B|",
                lambda x, y, scale=scale: 1e9 * (abs(x - y) / scale).max(), exact, found,
            )  # fmt: skip
            self.keep(f"a of 1e{exponent}, zeros", lambda x, _: (x == 0).sum(), exact, found)

    def overflow(self, n: int) -> None:
        """Classes of results of sums that overflow, and of operands with infinities and NaNs."""
        huge = self.normal(n, n) * np.float32(1e20), self.normal(n, n) * np.float32(1e20)
        _, found = self.products(*huge)
        for name, of in (("NaN", np.isnan), ("infinite", np.isinf)):
            self.keep(
                f"overflow with both signs, % {name}",
                lambda x, _, of=of: 100 * of(x).mean(),
                None,
                found,
            )
        a, b = self.normal(n, n), self.normal(n, n)
        for x in (a, b):
            for value in (np.inf, -np.inf, np.nan):
                x.reshape(-1)[self.random.integers(x.size, size=5)] = value
        _, found = self.products(a, b)
        first = classes(found["exact"])
        self.keep(
            "infinities and NaNs, % of elements in the class of exact",
            lambda x, _: 100 * (classes(x) == first).mean(), None, found,
        )  # fmt: skip


def ulps(x: Any, exact: Any) -> float:
    with np.errstate(all="ignore"):
        return float((abs(x - exact) / np.spacing(abs(exact).astype(np.float32))).max())


def mean_error(x: Any, exact: Any) -> float:
    return 1e9 * statistics.fmean(((x - exact) / exact).ravel().tolist())


def classes(x: Any) -> Any:
    return np.isnan(x) + 2 * np.isposinf(x) + 4 * np.isneginf(x)


def main() -> None:
    chosen = parser(__doc__).parse_args()
    bench = Benchmark("claims about products on tensor cores", "as rows say", chosen)
    quick = chosen.quick
    run = Run(bench)
    run.times(64 if quick else 4096)
    run.host(8 if quick else 1000, 3 if quick else 100)
    run.blog(8 if quick else 1000)
    n = 16 if quick else 1024
    # A quick run may have a driver that has no copy engine.
    rule = tensor_product.is_faster if quick else lambda *shape: True
    with patch.object(tensor_product, "is_faster", rule):
        run.copies(n)
        run.scales(n)
        run.overflow(n)
    bench.finish()


if __name__ == "__main__":
    main()

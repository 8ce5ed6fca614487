"""Are products as fast as cuBLAS itself in every order of the operands, and is the addend free?

Microseconds on the device, or of a call in a loop for small operands; float32 without TF32 unless the
row names it. Torch and CuPy are timed too, and JAX if its arrays, which are always contiguous, allow it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, jax_call, optional, parser, peers, waiting

import gpuinterop as gi

SIZES = [
    (1000, 1000, 1000),
    (4096, 4096, 4096),
    (8192, 64, 4096),
    (64, 8192, 4096),
    (16, 16, 1 << 18),
]


def jax_product(a: Any, b: Any, *rest: Any) -> Any:
    """Return a.b plus an addend; further arguments are memory for results, which JAX does not accept."""
    import jax.numpy as jnp  # noqa: PLC0415

    product = jnp.matmul(a, b, precision="highest")
    return product + rest[0] if len(rest) == 2 else product


class Run:
    """The device, the other libraries, and one method for each kind of row."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench, self.device = bench, bench.options.device
        self.libraries = peers(bench.options)
        self.wait = waiting(self.libraries, self.device)

    def random(self, *shape: int) -> gi.CudaNdarray:
        host = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        return gi.CudaNdarray(host, device=self.device)

    def row(
        self, name: str, own: Any, arrays: tuple[Any, ...], torch: Any, cupy: Any, jax: Any = None
    ) -> None:
        """`torch` and `cupy` take the library and its views of the arrays; they return a call.

        `jax` is a function of arrays, to be jitted.
        """
        self.bench.device(name, self.calls(name, own, arrays, torch, cupy, jax), budget=0.2)

    def loop(
        self, name: str, own: Any, arrays: tuple[Any, ...], torch: Any, cupy: Any, jax: Any = None
    ) -> None:
        self.bench.loop(name, self.calls(name, own, arrays, torch, cupy, jax))

    def calls(
        self, name: str, own: Any, arrays: tuple[Any, ...], torch: Any, cupy: Any, jax: Any
    ) -> dict[str, Call]:
        calls = {GPUINTEROP: Call(own, self.wait[GPUINTEROP])}
        for who, made in (("torch", torch), ("cupy", cupy)):
            if made is None:
                continue
            with optional(self.libraries, who, name) as library:
                views = [library.from_dlpack(a) for a in arrays]
                calls[who] = Call(made(library, *views), self.wait[who])
        if jax is not None:
            with optional(self.libraries, "jax", name) as library:
                # Copy, because the calls of other libraries write to the results.
                views = [library.numpy.array(a.get()) for a in arrays]
                calls["jax"] = jax_call(library, library.jit(jax), *views)
        return calls

    def products(self, m: int, n: int, k: int) -> None:
        a, b, c, y = self.random(m, k), self.random(k, n), self.random(m, n), self.random(m, n)
        name = f"{m}x{k} @ {k}x{n}"
        torch_product = lambda t, a, b, y: lambda: t.matmul(a, b, out=y)  # noqa: E731
        cupy_product = lambda c, a, b, y: lambda: c.matmul(a, b, out=y)  # noqa: E731
        product = lambda p, q: lambda: gi.matmul(p, q, out=y)  # noqa: E731
        self.row(name, product(a, b), (a, b, y), torch_product, cupy_product, jax_product)
        at, bt = self.random(k, m).T, self.random(n, k).T
        self.row(f"{name}, transposed", product(at, bt), (at, bt, y), torch_product, cupy_product)
        wide = self.random(m, 2 * k)[:, :k]
        self.row(
            f"{name}, part of rows", product(wide, b), (wide, b, y), torch_product, cupy_product
        )
        self.row(
            f"{name} + C", lambda: gi.gemm(a, b, c, out=y), (a, b, c, y),
            lambda t, a, b, c, y: lambda: t.addmm(c, a, b, out=y),
            lambda p, a, b, c, y: lambda: a @ b + c, jax_product,
        )  # fmt: skip
        # The baseline of the row before: beta = 1 into C itself, which reads no other addend.
        self.row(f"{name} += in place", lambda: gi.gemm(a, b, y, out=y), (), None, None)
        bias = self.random(n)
        self.row(
            f"{name} + row", lambda: gi.gemm(a, b, bias, out=y), (a, b, bias, y),
            lambda t, a, b, r, y: lambda: t.addmm(r, a, b, out=y),
            lambda p, a, b, r, y: lambda: a @ b + r, jax_product,
        )  # fmt: skip
        self.row(f"{name}, TF32", lambda: gi.gemm(a, b, out=y, tf32=True), (), None, None)

    def small(self, n: int) -> None:
        """Measure small products in a loop with a wait at its end: the host's work determines the time."""
        a, b, c, x, y = (self.random(*s) for s in [(n, n), (n, n), (n, n), (n,), (n,)])
        multiply = lambda p, a, b: lambda: p.matmul(a, b)  # noqa: E731
        self.loop(
            f"{n}x{n} @ {n}x{n}, a call", lambda: a @ b, (a, b), multiply, multiply, jax_product
        )
        self.loop(f"{n}x{n} @ vector, a call", lambda: a @ x, (a, x), multiply, multiply)
        self.loop(
            f"{n}x{n} @ {n}x{n} + C, a call", lambda: gi.gemm(a, b, c), (a, b, c),
            lambda t, a, b, c: lambda: t.addmm(c, a, b), lambda p, a, b, c: lambda: a @ b + c,
        )  # fmt: skip
        self.loop(
            f"outer product {n}x{n} + C, a call", lambda: gi.ger(x, y, c), (x, y, c),
            lambda t, x, y, c: lambda: t.addr(c, x, y), None,
        )  # fmt: skip

    def rank_one(self, n: int) -> None:
        x, y, c, out = (self.random(*s) for s in [(n,), (n,), (n, n), (n, n)])
        self.row(
            f"outer product {n}x{n} + C", lambda: gi.ger(x, y, c, out=out), (x, y, c, out),
            lambda t, x, y, c, out: lambda: t.addr(c, x, y, out=out), None,
        )  # fmt: skip
        # For comparison: the same as a product of matrices with one inner element.
        column, line = x.reshape((n, 1)), y.reshape((1, n))
        self.row(
            f"{n}x1 @ 1x{n} + C", lambda: gi.gemm(column, line, c, out=out), (column, line, c, out),
            lambda t, a, b, c, out: lambda: t.addmm(c, a, b, out=out), None,
        )  # fmt: skip

    def strided(self, n: int) -> None:
        """Measure operands without a unit stride, the only case in which an operand is copied."""
        a, b = self.random(2 * n, 2 * n)[::2, ::2], self.random(n, n)
        multiply = lambda p, a, b: lambda: p.matmul(a, b)  # noqa: E731
        self.row(f"{n}x{n} @ {n}x{n}, x[::2, ::2]", lambda: a @ b, (a, b), multiply, multiply)

    def batches(self, count: int, n: int) -> None:
        a, b = self.random(count, n, n), self.random(count, n, n)
        multiply = lambda p, a, b: lambda: p.matmul(a, b)  # noqa: E731
        name = f"{count} of {n}x{n} @ {n}x{n}"
        self.row(name, lambda: a @ b, (a, b), multiply, multiply, jax_product)

    def vectors(self, m: int, k: int) -> None:
        a, x, w = self.random(m, k), self.random(k), self.random(m)
        multiply = lambda p, a, x: lambda: p.matmul(a, x)  # noqa: E731
        self.row(f"{m}x{k} @ vector", lambda: a @ x, (a, x), multiply, multiply, jax_product)
        self.row(
            f"({m}x{k}).T @ vector", lambda: a.T @ w, (a, w),
            lambda p, a, w: lambda: p.matmul(a.T, w), lambda p, a, w: lambda: p.matmul(a.T, w),
        )  # fmt: skip


def main() -> None:
    options = parser(__doc__).parse_args()
    bench = Benchmark("products", "us", options, picture="ratio")
    run = Run(bench)
    for m, n, k in [(8, 4, 16)] if options.quick else SIZES:
        run.products(m, n, k)
    for n in [4] if options.quick else [2, 64, 256]:
        run.small(n)
    run.rank_one(4 if options.quick else 8192)
    run.strided(8 if options.quick else 2048)
    run.batches(*(3, 4) if options.quick else (256, 128))
    for m, k in [(8, 4)] if options.quick else [(400, 784), (8192, 8192)]:
        run.vectors(m, k)
    bench.finish()


if __name__ == "__main__":
    main()

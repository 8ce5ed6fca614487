"""Are products as fast as cuBLAS itself, whatever the operands' order, and is the addend free?

python benchmarks/bench_gemm.py [out.json]
"""

# ruff: noqa: B023  (every body is timed before the loop goes on)
from __future__ import annotations

import sys

import numpy as np
from bench_common import device_seconds, peers, report

import gpuinterop

SIZES = [
    (1000, 1000, 1000),
    (4096, 4096, 4096),
    (8192, 64, 4096),
    (64, 8192, 4096),
    (16, 16, 1 << 18),
]


def main(out: str | None = None) -> None:
    libraries = peers()
    rows: dict[str, dict[str, float]] = {}

    def row(name: str, **bodies) -> None:
        rows[name] = {
            library: device_seconds(body, inner=10) * 1e6 for library, body in bodies.items()
        }

    def random(*shape: int):
        return gpuinterop.CudaNdarray(
            np.random.default_rng(1).standard_normal(shape, dtype=np.float32), device="cuda"
        )

    torch = libraries.get("torch")
    for m, n, k in SIZES:
        a, b, c = random(m, k), random(k, n), random(m, n)
        y = gpuinterop.empty_like(c)
        at, bt = random(k, m).T, random(n, k).T
        extra = {}
        if torch:
            ta, tb, tc, ty = (gpuinterop.to(v, "torch") for v in (a, b, c, y))
            tat, tbt = gpuinterop.to(at, "torch"), gpuinterop.to(bt, "torch")
        name = f"{m}x{k} @ {k}x{n}"
        if torch:
            extra = {"torch": lambda: torch.matmul(ta, tb, out=ty)}
        row(f"{name}", gpuinterop=lambda: gpuinterop.matmul(a, b, out=y), **extra)
        if torch:
            extra = {"torch": lambda: torch.matmul(tat, tbt, out=ty)}
        row(f"{name} transposed", gpuinterop=lambda: gpuinterop.matmul(at, bt, out=y), **extra)
        if torch:
            extra = {"torch": lambda: torch.addmm(tc, ta, tb, out=ty)}
        row(f"{name} + C", gpuinterop=lambda: gpuinterop.gemm(a, b, c, out=y), **extra)
        # The floor: the same product with beta = 1 into C itself, which reads no other addend.
        row(f"{name} += (beta 1)", gpuinterop=lambda: gpuinterop.gemm(a, b, y, out=y))
        bias = random(n)
        row(f"{name} + row", gpuinterop=lambda: gpuinterop.gemm(a, b, bias, out=y))
        row(f"{name} TF32", gpuinterop=lambda: gpuinterop.gemm(a, b, out=y, tf32=True))
    for m, k in [(400, 784), (8192, 8192)]:
        a, x = random(m, k), random(k)
        extra = {}
        if torch:
            ta, tx = gpuinterop.to(a, "torch"), gpuinterop.to(x, "torch")
            extra = {"torch": lambda: torch.mv(ta, tx)}
        row(f"{m}x{k} @ vector", gpuinterop=lambda: a @ x, **extra)
        w = random(m)
        if torch:
            tw = gpuinterop.to(w, "torch")
            extra = {"torch": lambda: torch.mv(ta.T, tw)}
        row(f"({m}x{k}).T @ vector", gpuinterop=lambda: a.T @ w, **extra)
    report("products", "us", rows, out)


if __name__ == "__main__":
    main(*sys.argv[1:2])

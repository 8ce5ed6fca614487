"""How near do reductions come to the memory's bandwidth, beside torch and CuPy?

GB/s of the bytes read, float32. ``--tune`` sweeps the blocks a multiprocessor of a split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import OURS, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.ops import reduce_plan

BLOCK = 1 << 20  # the numbers of every array, repeated
AXES = (("all", None), ("axis 0", 0), ("axis 1", 1))
OPERATIONS = ("mean", "max", "argmax", "prod", "any", "var", "norm")
MARKS = {"sum all": 4500, "sum axis 0": 4500, "sum axis 1": 4500}


def shapes(largest: int) -> list[tuple[str, tuple[int, ...], int | None]]:
    """Further sums: narrow rows and columns, a middle axis, smaller sizes."""
    side = 1 << (largest // 2)
    found: list[tuple[str, tuple[int, ...], int | None]] = [
        ("rows of 64", (1 << (largest - 6), 64), 1),
        ("64 columns", (1 << (largest - 6), 64), 0),
        ("middle axis", (side // 32, side // 16, side // 32 * 16), 1),
    ]
    found += [(f"all of 2^{k}", (1 << k,), None) for k in (24, 20, 16) if k < largest]
    return found


def tiled(shape: tuple[int, ...], device: str) -> tuple[gi.CudaNdarray, float]:
    """An array made of repeated blocks, and the float64 sum of it."""
    n = int(np.prod(shape))
    block = np.random.default_rng(0).standard_normal(min(n, BLOCK), dtype=np.float32)
    x = gi.empty(n, device=device)
    x.reshape(-1, len(block))[...] = gi.CudaNdarray(block, device=device)
    return x.reshape(shape), block.astype(np.float64).sum() * (n // len(block))


def ours(x: gi.CudaNdarray, op: str, axis: int | None) -> Callable[[], Any]:
    if op == "norm":
        return lambda: gi.norm(x, axis=axis)
    return lambda: getattr(x, op)(axis)


def of_torch(torch: Any, t: Any, op: str, axis: int | None) -> Callable[[], Any]:
    where = {} if axis is None else {"dim": axis}
    functions = {
        "sum": lambda: torch.sum(t, **where),
        "mean": lambda: torch.mean(t, **where),
        "max": lambda: torch.amax(t, **where),
        "argmax": lambda: torch.argmax(t, **where),
        "prod": lambda: torch.prod(t, **where),
        "any": lambda: torch.any(t, **where),
        "var": lambda: torch.var(t, correction=0, **where),
        "norm": lambda: torch.linalg.vector_norm(t, **where),
    }
    return functions[op]


def of_cupy(cupy: Any, c: Any, op: str, axis: int | None) -> Callable[[], Any]:
    if op == "norm":
        return lambda: cupy.linalg.norm(c.ravel() if axis is None else c, axis=axis)
    return lambda: getattr(c, op)(axis)


class Run:
    """The device, the libraries beside us, and one method for each kind of row."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench, self.device = bench, bench.options.device
        self.libraries = peers(bench.options, ("torch", "cupy"))
        self.wait = waiting(self.libraries, self.device)

    def measure(self, name: str, x: gi.CudaNdarray, op: str, axis: int | None) -> None:
        calls = {OURS: Call(ours(x, op, axis), self.wait[OURS])}
        with optional(self.libraries, "torch", name) as torch:
            calls["torch"] = Call(
                of_torch(torch, torch.from_dlpack(x), op, axis), self.wait["torch"]
            )
        with optional(self.libraries, "cupy", name) as cupy:
            calls["cupy"] = Call(of_cupy(cupy, cupy.from_dlpack(x), op, axis), self.wait["cupy"])
        self.bench.device(name, calls, moved=x.nbytes, mark=MARKS.get(name))

    def check(self, x: gi.CudaNdarray, exact: float) -> None:
        """All three sums of x, within what pairwise summation would miss."""
        for axis in (None, *range(x.ndim)):
            got = float(np.asarray(x.sum(axis)).astype(np.float64).sum())
            assert abs(got - exact) <= 1e-6 * x.size, (axis, got, exact)


def tune(run: Run, x: gi.CudaNdarray) -> None:
    print("blocks a multiprocessor for a split, GB/s of sum over all and over axis 0")
    chosen = reduce_plan.BLOCKS_PER_SM
    for blocks in (8, 16, 32, 64):
        reduce_plan.BLOCKS_PER_SM = blocks
        _core._clear_reductions()
        for axis in (None, 0):
            run.measure(f"{blocks} blocks, axis {axis}", x, "sum", axis)
    reduce_plan.BLOCKS_PER_SM = chosen
    _core._clear_reductions()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--log2", type=int, default=28, help="elements, as a power of two")
    options.add_argument("--tune", action="store_true")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.log2 = min(chosen.log2, 16)
    bench = Benchmark("reductions", "GB/s", chosen)
    run = Run(bench)
    side = 1 << (chosen.log2 // 2)
    x, exact = tiled((side, (1 << chosen.log2) // side), chosen.device)
    run.check(x, exact)
    for op in ("sum", *OPERATIONS):
        for name, axis in AXES:
            run.measure(f"{op} {name}", x, op, axis)
    if chosen.tune:
        tune(run, x)
    del x
    for name, shape, axis in shapes(chosen.log2):
        x, exact = tiled(shape, chosen.device)
        run.check(x, exact)
        run.measure(f"sum {name}", x, "sum", axis)
    bench.finish()


if __name__ == "__main__":
    main()

"""How close are reductions to the memory's bandwidth, compared with torch, CuPy and JAX?

GB/s of the bytes read, float32. ``--tune`` instead sweeps the parameters of reduce.launch.TUNING.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, jax_call, optional, parser, peers, waiting

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.reduce import launch as reduction_launch

BLOCK = 1 << 20  # the numbers of every array, repeated
AXES = (("all", None), ("axis 0", 0), ("axis 1", 1))
OPERATIONS = ("mean", "max", "argmax", "prod", "any", "var", "norm")
MARKS = {"sum all": 4500, "sum axis 0": 4500, "sum axis 1": 4500}


def shapes(largest: int) -> list[tuple[str, tuple[int, ...], int | None]]:
    """Return the shapes of further sums: narrow rows and columns, a middle axis, smaller sizes."""
    side = 1 << (largest // 2)
    found: list[tuple[str, tuple[int, ...], int | None]] = [
        ("rows of 64", (1 << (largest - 6), 64), 1),
        ("64 columns", (1 << (largest - 6), 64), 0),
        ("middle axis", (side // 32, side // 16, side // 32 * 16), 1),
    ]
    found += [(f"all of 2^{k}", (1 << k,), None) for k in (24, 20, 16) if k < largest]
    return found


def tiled(shape: tuple[int, ...], device: str) -> tuple[gi.CudaNdarray, float]:
    """Return an array made of repeated blocks, and its sum in float64."""
    n = int(np.prod(shape))
    block = np.random.default_rng(0).standard_normal(min(n, BLOCK), dtype=np.float32)
    x = gi.empty(n, device=device)
    x.reshape(-1, len(block))[...] = gi.CudaNdarray(block, device=device)
    return x.reshape(shape), block.astype(np.float64).sum() * (n // len(block))


def own_call(x: gi.CudaNdarray, op: str, axis: int | None) -> Callable[[], Any]:
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


def of_jax(jnp: Any, op: str, axis: int | None) -> Callable[[Any], Any]:
    if op == "norm":
        return lambda j: jnp.linalg.norm(j.ravel() if axis is None else j, axis=axis)
    return lambda j: getattr(jnp, op)(j, axis)


class Run:
    """The device, the other libraries, and one method for each kind of row."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench, self.device = bench, bench.options.device
        self.libraries = peers(bench.options)
        self.wait = waiting(self.libraries, self.device)

    def measure(self, name: str, x: gi.CudaNdarray, op: str, axis: int | None) -> None:
        calls = {GPUINTEROP: Call(own_call(x, op, axis), self.wait[GPUINTEROP])}
        with optional(self.libraries, "torch", name) as torch:
            calls["torch"] = Call(
                of_torch(torch, torch.from_dlpack(x), op, axis), self.wait["torch"]
            )
        with optional(self.libraries, "cupy", name) as cupy:
            calls["cupy"] = Call(of_cupy(cupy, cupy.from_dlpack(x), op, axis), self.wait["cupy"])
        with optional(self.libraries, "jax", name) as jax:
            function = jax.jit(of_jax(jax.numpy, op, axis))
            calls["jax"] = jax_call(jax, function, jax.dlpack.from_dlpack(x))
        self.bench.device(name, calls, moved=x.nbytes, mark=MARKS.get(name))

    def check(self, x: gi.CudaNdarray, exact: float) -> None:
        """Check all three sums of x, within the error of pairwise summation."""
        for axis in (None, *range(x.ndim)):
            got = float(np.asarray(x.sum(axis)).astype(np.float64).sum())
            assert abs(got - exact) <= 1e-6 * x.size, (axis, got, exact)


Knobs = dict[str, int]
THREADS, LOADS, SIDES = (128, 256, 512), (2, 4, 8), (16, 32, 64, 128)


def combinations(kind: str, split: bool, quick: bool) -> list[Knobs]:
    """Return the combinations to try; blocks for each multiprocessor matter only if rows are split into parts."""
    if quick:
        return [{"threads": 256, "blocks_per_sm": 8, "loads": 2}]
    if kind == "rows":
        found = [(t, b, n, 256) for t in THREADS for n in LOADS
                 for b in ((8, 16, 32, 64) if split else (32,))]  # fmt: skip
    else:
        found = [(256, b, n, s) for b in (4, 8, 16, 32) for n in LOADS for s in SIDES]
        found += [(512, b, n, 64) for b in (4, 8, 16) for n in LOADS]
    return [dict(zip(("threads", "blocks_per_sm", "loads", "side"), f, strict=True)) for f in found]


def sweep(run: Run, name: str, kind: str, split: bool, moved: int, make: Callable[[], Any]) -> None:
    """Print a table of GB/s over all combinations, the best last. `make` returns a call without a plan."""
    chosen = reduction_launch.TUNING[kind]
    count, turns = (1, 1) if run.bench.options.quick else (10, 5)
    found = []
    for knobs in combinations(kind, split, run.bench.options.quick):
        reduction_launch.TUNING[kind] = dataclasses.replace(chosen, **knobs)
        _core._forget_calls()
        call = Call(make(), run.wait[GPUINTEROP])
        try:
            seconds = min(run.bench._timed(call, count) for _ in range(turns + 1))
        except gi.errors.GpuInteropError as error:  # for example too much shared memory
            print(f"{name} {knobs}: {str(error).splitlines()[0]}")
            continue
        found.append((moved / seconds / 1e9, 1e6 * seconds, knobs))
    reduction_launch.TUNING[kind] = chosen
    _core._forget_calls()
    print(f"\n{name}: now {chosen}")
    for rate, micros, knobs in sorted(found, key=lambda row: row[0]):
        print(
            f"{rate:8.0f} GB/s {micros:9.1f} us  " + " ".join(f"{k} {v}" for k, v in knobs.items())
        )


def tune(run: Run, x: gi.CudaNdarray) -> None:
    """Sweep threads, blocks for each multiprocessor, loads in flight, and the columns' threads side by side."""
    for name, axis in AXES:
        kind = "columns" if axis == 0 else "rows"
        sweep(
            run,
            f"sum {name}",
            kind,
            axis != 1,
            x.nbytes,
            lambda axis=axis: own_call(x, "sum", axis),
        )
    side = min(8192, x.shape[0])
    m = x.ravel()[: side * side].reshape(side, side)
    v = x.ravel()[:side]

    def product() -> Callable[[], Any]:
        kernel = gi.fuse(lambda a, b: (a * b).sum(axis=-1))
        return lambda: kernel(m.T, v)

    sweep(run, f"({side}^2).T @ v", "columns", True, m.nbytes, product)
    for k in (24, 20):
        part = x.ravel()[: 1 << k]
        sweep(
            run, f"sum of 2^{k}", "rows", True, part.nbytes, lambda p=part: own_call(p, "sum", None)
        )


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
    if chosen.tune:
        return tune(run, x)
    for op in ("sum", *OPERATIONS):
        for name, axis in AXES:
            run.measure(f"{op} {name}", x, op, axis)
    del x
    for name, shape, axis in shapes(chosen.log2):
        x, exact = tiled(shape, chosen.device)
        run.check(x, exact)
        run.measure(f"sum {name}", x, "sum", axis)
    bench.finish()


if __name__ == "__main__":
    main()

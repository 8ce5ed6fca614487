"""How near do sums and extremes come to the memory's bandwidth, beside torch and CuPy?

python benchmarks/bench_reductions.py [out.json]
"""

from __future__ import annotations

import sys

import numpy as np
from bench_common import device_seconds, peers, report

import gpuinterop
from gpuinterop import _core
from gpuinterop.ops import reduce_plan

CASES = [  # name, shape, axis
    ("sum all 2^28", (1 << 28,), None),
    ("sum axis 0, 16384^2", (1 << 14, 1 << 14), 0),
    ("sum axis 1, 16384^2", (1 << 14, 1 << 14), 1),
    ("sum axis 1, 2^22 x 64", (1 << 22, 64), 1),
    ("sum axis 0, 2^22 x 64", (1 << 22, 64), 0),
    ("sum axis 1, 512 x 1024 x 512", (512, 1024, 512), 1),
    ("sum all 2^24", (1 << 24,), None),
    ("sum all 2^20", (1 << 20,), None),
    ("sum all 2^16", (1 << 16,), None),
]


def main(out: str | None = None) -> None:
    libraries = peers()
    rows = {}
    for name, shape, axis in CASES:
        host = np.random.default_rng(0).standard_normal(int(np.prod(shape)) >> 4, dtype=np.float32)
        host = np.tile(host, 16).reshape(shape)
        x = gpuinterop.CudaNdarray(host, device="cuda")
        inner = max(1, min(200, (1 << 26) // x.size))
        ours = {"gpuinterop": lambda x=x, axis=axis: x.sum(axis)}
        if "torch" in libraries:
            t = gpuinterop.to(x, "torch")
            ours["torch"] = (
                (lambda t=t: t.sum()) if axis is None else (lambda t=t, a=axis: t.sum(a))
            )
        if "cupy" in libraries:
            c = gpuinterop.to(x, "cupy")
            ours["cupy"] = lambda c=c, axis=axis: c.sum(axis)
        rows[name] = {
            library: x.nbytes / device_seconds(body, inner=inner) / 1e9
            for library, body in ours.items()
        }
        exact = host.astype(np.float64).sum(axis)
        scale = np.abs(host.astype(np.float64)).sum(axis)
        assert np.all(
            np.abs(np.asarray(x.sum(axis)) - exact) <= 1e-7 * np.abs(exact) + 2e-7 * scale
        )
        for op in ("max", "argmax", "var"):
            if x.size == 1 << 28:
                body = lambda x=x, axis=axis, op=op: getattr(x, op)(axis)  # noqa: E731
                rows[f"{op}{name[3:]}"] = {"gpuinterop": x.nbytes / device_seconds(body) / 1e9}
        del x, ours
    report("reductions", "GB/s", rows, out)

    print("blocks a multiprocessor for a split (BLOCKS_PER_SM), sum of 2^28: GB/s")
    x = gpuinterop.CudaNdarray(np.ones(1 << 28, np.float32), device="cuda")
    y = x.reshape((1 << 14, 1 << 14))
    chosen = reduce_plan.BLOCKS_PER_SM
    for blocks in (8, 16, 32, 64):
        reduce_plan.BLOCKS_PER_SM = blocks
        _core._clear_reductions()
        speeds = [
            x.nbytes / device_seconds(body) / 1e9 for body in (lambda: x.sum(), lambda: y.sum(0))
        ]
        print(f"  {blocks:4} " + " ".join(f"{s:8.0f}" for s in speeds))
    reduce_plan.BLOCKS_PER_SM = chosen
    _core._clear_reductions()


if __name__ == "__main__":
    main(*sys.argv[1:2])

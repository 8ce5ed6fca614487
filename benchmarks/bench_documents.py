"""The documents' programs: microseconds a step, beside torch, CuPy and NumPy.

python benchmarks/bench_documents.py [out.json]
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
from bench_common import loop_seconds, peers, report

import gpuinterop

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(out: str | None = None) -> None:
    libraries = peers()
    torch, cupy = libraries.get("torch"), libraries.get("cupy")
    wait = lambda: gpuinterop.synchronize("cuda")  # noqa: E731
    rows: dict[str, dict[str, float]] = {}

    def row(name: str, calls: int = 1000, **bodies) -> None:
        rows[name] = {
            library: loop_seconds(body, wait, calls) * 1e6 for library, body in bodies.items()
        }

    host = np.random.RandomState(22).rand(230400).astype(np.float32)
    x = gpuinterop.CudaNdarray(host, device="cuda")
    y = gpuinterop.empty_like(x)
    graph = gpuinterop.capture(lambda: gpuinterop.exp(x, out=y), device="cuda")
    fresh, given, captured = {}, {}, {}
    if torch:
        tx, ty = gpuinterop.to(x, "torch"), gpuinterop.to(y, "torch")
        fresh["torch"], given["torch"] = (lambda: torch.exp(tx)), (lambda: torch.exp(tx, out=ty))
        tgraph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(tgraph):
            torch.exp(tx, out=ty)
        captured["torch"] = tgraph.replay
    if cupy:
        cx, cy = gpuinterop.to(x, "cupy"), gpuinterop.to(y, "cupy")
        fresh["cupy"], given["cupy"] = (lambda: cupy.exp(cx)), (lambda: cupy.exp(cx, out=cy))
    row("exp, out given", gpuinterop=lambda: gpuinterop.exp(x, out=y), **given)
    row("exp, fresh result", gpuinterop=lambda: gpuinterop.exp(x), **fresh)
    row("exp, captured graph", gpuinterop=graph.replay, **captured)
    row("exp, result on the host", 200, gpuinterop=lambda: np.asarray(gpuinterop.exp(x)))

    m, v, b = (
        gpuinterop.CudaNdarray(
            np.random.RandomState(i).randn(1000, 1000).astype(np.float32), device="cuda"
        )
        for i in range(3)
    )
    z = gpuinterop.empty_like(b)
    extra = {}
    if torch:
        tm, tv, tb, tz = (gpuinterop.to(q, "torch") for q in (m, v, b, z))
        extra["torch"] = lambda: torch.addmm(tb, tm, tv, out=tz)
    if cupy:
        cm, cv, cb = (gpuinterop.to(q, "cupy") for q in (m, v, b))
        extra["cupy"] = lambda: cm @ cv + cb
    row("y = m.x + b", 200, gpuinterop=lambda: gpuinterop.gemm(m, v, b, out=z), **extra)
    row(
        "y = m.x + y (beta 1, the floor)",
        200,
        gpuinterop=lambda: gpuinterop.gemm(m, v, z, beta=1e-3, out=z),
    )

    logistic = example("logistic_regression")
    logistic.train(10, "cuda")
    result = logistic.train(10_000, "cuda")
    exact = logistic.oracle(10_000)
    assert np.allclose(result["w"], exact["w"], rtol=1e-3, atol=1e-4)
    rows["logistic regression, a step"] = {"gpuinterop": result["seconds"] / 10_000 * 1e6}
    print("nodes in the graph of a training step:", result["nodes"])
    report("documents", "us", rows, out)


if __name__ == "__main__":
    main(*sys.argv[1:2])

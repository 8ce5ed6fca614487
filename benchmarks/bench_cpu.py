"""What does a call on device "cpu" cost, compared with NumPy and torch with one thread each?

Microseconds of a call on float32 arrays in host memory, whatever `--device` is. NumPy and torch evaluate a fused
expression operation by operation. A replay reuses its result array, so NumPy and torch also get an `out` array.
"""

from __future__ import annotations

import os
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # read when the libraries are loaded

import numpy as np  # noqa: E402
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers  # noqa: E402

import gpuinterop as gi  # noqa: E402

# Row, size, target in microseconds.
MARKS = {
    ("x + y", 64): 0.3,
    ("zeros", 64): 1.0,
    ("empty", 64): 1.0,
    ("full", 64): 1.0,
    ("arange", 64): 1.0,
    ("x.sum()", 64): 0.9,
    ("x.sum()", 1 << 18): 40.0,
    ("tanh(x * y + x), fused", 64): 1.5,
    ("tanh(x * y + x), fused", 1 << 18): 120.0,
    ("tanh(x * y + x), fused", 1 << 22): 2500.0,
    ("x + y, replayed", 64): 0.3,
}
SIZES = (64, 1 << 12, 1 << 16, 1 << 18, 1 << 22)


def at_once() -> None:
    """Return at once, because no work is queued in host memory."""


def others(n: int, h: Any, m: Any) -> dict[str, dict[str, Any]]:
    """Return further rows, of a vector, a matrix with short lines and a square one, which torch does not run."""
    side = int(n**0.5)
    s = h[: side * side].reshape(side, side)
    x, a, b = (gi.asarray(value, device="cpu") for value in (h, m, s))
    return {
        "exp(A[:, :32])": {
            GPUINTEROP: lambda: gi.exp(a[:, :32]),
            "numpy": lambda: np.exp(m[:, :32]),
        },
        "softplus(x)": {
            GPUINTEROP: lambda: gi.softplus(x),
            "numpy": lambda: np.log1p(np.exp(h)),
        },
        "A.mean(axis=0)": {GPUINTEROP: lambda: b.mean(axis=0), "numpy": lambda: s.mean(axis=0)},
        "A.max(axis=0)": {GPUINTEROP: lambda: b.max(axis=0), "numpy": lambda: s.max(axis=0)},
        "x.argmax()": {GPUINTEROP: lambda: x.argmax(), "numpy": lambda: h.argmax()},
        "A.T.copy()": {GPUINTEROP: lambda: b.T.copy(), "numpy": lambda: s.T.copy()},
        "x.astype('float64')": {
            GPUINTEROP: lambda: x.astype("float64"),
            "numpy": lambda: h.astype("float64"),
        },
        "zeros": {
            GPUINTEROP: lambda: gi.zeros(n, device="cpu"),
            "numpy": lambda: np.zeros(n, "float32"),
        },
        "empty": {
            GPUINTEROP: lambda: gi.empty(n, device="cpu"),
            "numpy": lambda: np.empty(n, "float32"),
        },
        "full": {
            GPUINTEROP: lambda: gi.full(n, 2.0, device="cpu"),
            "numpy": lambda: np.full(n, 2.0, "float32"),
        },
        "arange": {
            GPUINTEROP: lambda: gi.arange(n, device="cpu"),
            "numpy": lambda: np.arange(n, dtype="float32"),
        },
    }


def contenders(n: int, libraries: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the calls by row and library, on vectors of n elements and matrices of about as many."""
    rng = np.random.default_rng(0)
    h, k = (rng.random(n, np.float32) for _ in range(2))
    w, m = rng.integers(0, 9, n).astype("int16"), rng.random((max(1, n // 64), 64), np.float32)
    out = np.empty_like(h)
    x, y, z, a, o = (gi.asarray(value, device="cpu") for value in (h, k, w, m, out))
    fused = gi.fuse(lambda x, y: gi.tanh(x * y + x))
    graph = gi.capture(lambda x, y: x + y, x, y)
    rows = {
        "x + y": {GPUINTEROP: lambda: x + y, "numpy": lambda: h + k},
        "x[::-1] + int16": {GPUINTEROP: lambda: x[::-1] + z, "numpy": lambda: h[::-1] + w},
        "x.sum()": {GPUINTEROP: lambda: x.sum(), "numpy": lambda: h.sum()},
        "A.sum(axis=0)": {GPUINTEROP: lambda: a.sum(axis=0), "numpy": lambda: m.sum(axis=0)},
        "A.max(axis=1)": {GPUINTEROP: lambda: a.max(axis=1), "numpy": lambda: m.max(axis=1)},
        "tanh(x * y + x), fused": {
            GPUINTEROP: lambda: fused(x, y),
            "numpy": lambda: np.tanh(h * k + h),
        },
        "add(x, y, out=)": {
            GPUINTEROP: lambda: gi.add(x, y, out=o),
            "numpy": lambda: np.add(h, k, out=out),
        },
        **others(n, h, m),
        "x + y, replayed": {
            GPUINTEROP: graph.replay,
            "numpy": lambda: np.add(h, k, out=out),
        },
    }
    with optional(libraries, "torch", str(n)) as torch:
        if torch is not None:
            tx, ty, tz, ta, tout = (torch.from_numpy(value) for value in (h, k, w, m, out))
            rows["x + y"]["torch"] = lambda: tx + ty
            rows["x[::-1] + int16"]["torch"] = lambda: tx.flip(0) + tz
            rows["x.sum()"]["torch"] = lambda: tx.sum()
            rows["A.sum(axis=0)"]["torch"] = lambda: ta.sum(dim=0)
            rows["A.max(axis=1)"]["torch"] = lambda: ta.amax(dim=1)
            rows["tanh(x * y + x), fused"]["torch"] = lambda: torch.tanh(tx * ty + tx)
            rows["x + y, replayed"]["torch"] = lambda: torch.add(tx, ty, out=tout)
    return rows


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--last", type=int, default=22, help="largest size, as a power of two")
    chosen = options.parse_args()
    chosen.device = "cpu"
    bench = Benchmark("cpu", "us", chosen, figure="best")
    libraries = peers(chosen, ("torch",))
    if "torch" in libraries:
        libraries["torch"].set_num_threads(1)
    for n in SIZES if not chosen.quick else SIZES[:2]:
        if n > 1 << chosen.last:
            continue
        for row, calls in contenders(n, libraries).items():
            size = f"2^{n.bit_length() - 1}" if n > 64 else str(n)
            bench.loop(
                f"{row}, {size}", {who: Call(body, at_once) for who, body in calls.items()},
                count=max(5, min(5000, (1 << 25) // n)), mark=MARKS.get((row, n)),
            )  # fmt: skip
    bench.finish()


if __name__ == "__main__":
    main()

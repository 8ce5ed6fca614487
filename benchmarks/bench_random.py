"""Random numbers of a size, compared with torch, CuPy and, on "cpu", NumPy.

GB/s of the numbers that are written. CuPy's numbers are those of cupy.random.Generator, NumPy's of its default
generator, which is not Philox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi

KINDS = ("uniform", "normal")
DTYPES = ("float32", "float64")
INTEGERS = "integers below 1000"


def of_generator(rng: Any) -> dict[str, Callable[[int, str], Any]]:
    """Return the calls of a generator with NumPy's names."""
    return {
        "uniform": lambda n, dtype: rng.random(n, dtype),
        "normal": lambda n, dtype: rng.standard_normal(n, dtype),
        INTEGERS: lambda n, dtype: rng.integers(0, 1000, n, dtype),
    }


def of_torch(torch: Any, device: str) -> dict[str, Callable[[int, str], Any]]:
    def called(function: Any) -> Callable[[int, str], Any]:
        return lambda n, dtype: function(n, dtype=getattr(torch, dtype), device=device)

    return {
        "uniform": called(torch.rand),
        "normal": called(torch.randn),
        INTEGERS: lambda n, dtype: torch.randint(
            0, 1000, (n,), dtype=getattr(torch, dtype), device=device
        ),
    }


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--log2", type=int, nargs="*", default=[10, 20, 26], help="numbers")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.log2 = [10, 12]
    bench = Benchmark("random", "GB/s", chosen)
    on_host = chosen.device == "cpu"
    libraries = peers(chosen, ("numpy", "torch") if on_host else ("torch", "cupy"))
    wait = {"numpy": lambda: None, **waiting(libraries, chosen.device)}
    calls = {GPUINTEROP: of_generator(gi.random.default_rng(0, device=chosen.device))}
    for name in libraries:
        with optional(libraries, name, "generator") as library:
            if name == "torch":
                calls[name] = of_torch(library, chosen.device)
            else:
                calls[name] = of_generator(library.random.default_rng(0))
    cases = [(kind, dtype) for kind in KINDS for dtype in DTYPES] + [(INTEGERS, "int64")]
    for kind, dtype in cases:
        for log2 in chosen.log2:
            n = 1 << log2
            bodies = {
                who: Call(lambda f=functions[kind], n=n, t=dtype: f(n, t), wait[who])  # type: ignore[misc]
                for who, functions in calls.items()
            }
            moved = float(n * np.dtype(dtype).itemsize)
            bench.device(f"{kind}, {dtype}, 2^{log2}", bodies, moved=moved)
    bench.finish()


if __name__ == "__main__":
    main()

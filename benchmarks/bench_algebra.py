"""Are linear algebra and Fourier transforms as fast as those of the other libraries, which call the same routines?

Microseconds from the call to its end on the device: what raises `LinAlgError` waits for the device, here and in torch,
and not in CuPy. On "cpu" NumPy is timed too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi

FACTORIZATIONS = ("solve", "inv", "det", "cholesky", "qr", "eigh", "eigvalsh", "svd", "eigvals")
# Above this many rows these take seconds, and torch and CuPy have no faster way.
SLOW = {"svd": 2048, "eigvals": 1024}
TRANSFORMS = [
    ("fft", (1 << 10,)),
    ("fft", (1 << 20,)),
    ("ifft", (1 << 20,)),
    ("fft", (1000003,)),
    ("fft", (4096, 4096)),
    ("fft2", (512, 512)),
    ("fft2", (4096, 4096)),
    ("rfft", (1 << 10,)),
    ("rfft", (1 << 20,)),
    ("rfft", (4096, 4096)),
    ("irfft", (1 << 20,)),
]


def matrices(shape: tuple[int, ...], dtype: str) -> Any:
    """Return symmetric positive definite matrices with moderate condition numbers."""
    a = np.random.default_rng(1).standard_normal(shape)
    return (a @ np.swapaxes(a, -1, -2) / shape[-1] + np.eye(shape[-1])).astype(dtype)


def complex_numbers(shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


class Run:
    """The device, the other libraries, and a row for each function."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench, self.device = bench, bench.options.device
        self.libraries = peers(bench.options, ("torch", "cupy"))
        self.wait = waiting(self.libraries, self.device)

    def row(self, name: str, module: str, function: str, *operands: Any) -> None:
        """Time a function that all libraries have under one name."""
        arrays = [gi.asarray(a, device=self.device) for a in operands]
        own = getattr(getattr(gi, module), function)
        calls = {GPUINTEROP: Call(lambda: own(*arrays), self.wait[GPUINTEROP])}
        for who in ("torch", "cupy"):
            with optional(self.libraries, who, name) as library:
                if library is None:
                    continue
                theirs = getattr(getattr(library, module), function)
                views = [library.from_dlpack(x) for x in arrays]
                calls[who] = Call(lambda f=theirs, v=views: f(*v), self.wait[who])
        if self.device == "cpu":
            numpy = getattr(getattr(np, module), function)
            calls["numpy"] = Call(lambda: numpy(*operands), lambda: None)
        self.bench.device(name, calls, budget=0.2)

    def factorizations(self, shape: tuple[int, ...], dtype: str) -> None:
        a = matrices(shape, dtype)
        *stack, n, _ = shape
        size = f"{stack[0]} of {n}x{n}" if stack else f"{n}x{n}"
        for name in FACTORIZATIONS:
            if n <= SLOW.get(name, n) and not (stack and name in SLOW):
                operands = (a, a[..., :1]) if name == "solve" else (a,)
                self.row(f"{name} {size} {dtype}", "linalg", name, *operands)

    def transform(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        a = complex_numbers(shape, dtype)
        a = a.real.copy() if name == "rfft" else a
        self.row(f"{name} {'x'.join(map(str, shape))} {a.dtype}", "fft", name, a)


def main() -> None:
    options = parser(__doc__, on_host=True).parse_args()
    bench = Benchmark("algebra", "us", options, picture="ratio")
    run = Run(bench)
    for dtype in ("float32", "float64"):
        for n in [4] if options.quick else [64, 1024, 4096]:
            run.factorizations((n, n), dtype)
    run.factorizations((3, 4, 4) if options.quick else (1024, 32, 32), "float32")
    for dtype in ("complex64", "complex128"):
        for name, shape in [("fft", (8,)), ("rfft", (8,))] if options.quick else TRANSFORMS:
            run.transform(name, shape, dtype)
    bench.finish()


if __name__ == "__main__":
    main()

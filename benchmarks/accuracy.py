"""How accurate is each elementwise operation? The largest error over many arguments, in units of the last place.

The oracle is NumPy in the next wider type (float64 for float32, the processor's long double for float64),
or Python's math for functions that NumPy lacks; it is not the function that device "cpu" runs. ROWS has the
guaranteed errors, which tests/elementwise/test_accuracy.py checks on every device.

    python benchmarks/accuracy.py --device cuda --json benchmarks/results/accuracy-cuda.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gpuinterop as gi


class Row(NamedTuple):
    """An operation: its oracle, the ranges of its arguments, and the guaranteed error for each type."""

    oracle: Callable[..., Any]
    places: tuple[tuple[float, float], ...]  # of each argument
    float32: float
    float64: float | None = None  # None: the oracle has no wider type


def _python(function: Callable[[float], float]) -> Callable[[Any], Any]:
    loop = np.frompyfunc(lambda x: function(float(x)), 1, 1)
    return lambda x: np.asarray(loop(x), np.float64)


def _logaddexp(a: Any, b: Any) -> Any:
    return np.maximum(a, b) + np.log1p(np.exp(-np.abs(a - b)))


def _expm1(z: Any) -> Any:
    half = np.sin(z.imag / 2)
    real = np.expm1(z.real) * np.cos(z.imag) - 2 * half * half
    return real + 1j * (np.exp(z.real) * np.sin(z.imag))


def _log1p(z: Any) -> Any:
    x, y = z.real, z.imag
    far = np.log(np.hypot(1 + x, y))
    return np.where(np.abs(z) < 0.5, np.log1p(x * (2 + x) + y * y) / 2, far) + 1j * np.arctan2(
        y, 1 + x
    )


ANY, NEAR, SMALL, HUGE = (-1e4, 1e4), (-10.0, 10.0), (-1.0, 1.0), (-1e30, 1e30)
POSITIVE = (1e-30, 1e30)
ROWS: dict[str, Row] = {
    "add": Row(np.add, (ANY, ANY), 0.5, 0.5),
    "subtract": Row(np.subtract, (ANY, ANY), 0.5, 0.5),
    "multiply": Row(np.multiply, (ANY, ANY), 0.5, 0.5),
    "divide": Row(np.divide, (ANY, ANY), 0.5, 0.5),
    "square": Row(np.square, (ANY,), 0.5, 0.5),
    "reciprocal": Row(lambda x: 1 / x, (ANY,), 0.5, 0.5),
    "sqrt": Row(np.sqrt, (POSITIVE,), 0.5, 0.5),
    "rsqrt": Row(lambda x: 1 / np.sqrt(x), (POSITIVE,), 2, 2),
    # Without AVX-512, NumPy calls the C library's cbrt, whose largest known error is 4.
    "cbrt": Row(np.cbrt, (HUGE,), 2, 4),
    "hypot": Row(np.hypot, (ANY, ANY), 3, 2),
    "power": Row(np.power, ((0.01, 100.0), NEAR), 4, 2),
    "exp": Row(np.exp, ((-80.0, 80.0),), 3, 1),
    "exp2": Row(np.exp2, ((-120.0, 120.0),), 3, 1),
    "expm1": Row(np.expm1, (NEAR,), 3, 2),
    "log": Row(np.log, (POSITIVE,), 3, 1),
    "log2": Row(np.log2, (POSITIVE,), 2, 2),
    "log10": Row(np.log10, (POSITIVE,), 3, 2),
    "log1p": Row(np.log1p, ((-0.99, 1e3),), 2, 2),
    "logaddexp": Row(_logaddexp, ((0.0, 10.0), (0.0, 10.0)), 3, 3),
    "sin": Row(np.sin, (ANY,), 2, 2),
    "cos": Row(np.cos, (ANY,), 2, 2),
    "tan": Row(np.tan, (ANY,), 4, 2),
    "arcsin": Row(np.arcsin, (SMALL,), 4, 2),
    "arccos": Row(np.arccos, (SMALL,), 3, 2),
    "arctan": Row(np.arctan, (ANY,), 3, 2),
    "arctan2": Row(np.arctan2, (ANY, ANY), 3, 2),
    "sinh": Row(np.sinh, (NEAR,), 3, 2),
    "cosh": Row(np.cosh, (NEAR,), 3, 2),
    "tanh": Row(np.tanh, (NEAR,), 3, 2),
    "arcsinh": Row(np.arcsinh, (ANY,), 4, 3),
    "arccosh": Row(np.arccosh, ((1.0, 1e4),), 4, 3),
    "arctanh": Row(np.arctanh, ((-0.999, 0.999),), 4, 3),
    "deg2rad": Row(np.deg2rad, (ANY,), 1.5, 1.5),
    "rad2deg": Row(np.rad2deg, (ANY,), 1.5, 1.5),
    "sigmoid": Row(lambda x: 1 / (1 + np.exp(-x)), ((-30.0, 30.0),), 4, 4),
    "softplus": Row(lambda x: np.log1p(np.exp(x)), ((-30.0, 30.0),), 3, 4),
    "erf": Row(_python(math.erf), (NEAR,), 2),
    "erfc": Row(_python(math.erfc), ((-5.0, 8.0),), 4),
    "gamma": Row(_python(math.gamma), ((0.1, 30.0),), 6),
    "lgamma": Row(_python(math.lgamma), ((2.5, 1e4),), 6),
}  # fmt: skip


class ComplexRow(NamedTuple):
    """A complex function: its oracle, the powers of 10 of its argument's parts, and the guaranteed errors.

    The error is the distance of the result from the exact one, in units of the last place of its absolute value.
    """

    oracle: Callable[..., Any]
    sizes: tuple[float, float]
    complex64: float
    complex128: float


ALL, SMALL_ENOUGH = (-8.0, 8.0), (-8.0, 1.8)
COMPLEX_ROWS: dict[str, ComplexRow] = {
    "sqrt": ComplexRow(np.sqrt, ALL, 3, 3),
    "exp": ComplexRow(np.exp, SMALL_ENOUGH, 4, 3),
    "expm1": ComplexRow(_expm1, SMALL_ENOUGH, 5, 5),
    "log": ComplexRow(np.log, ALL, 4, 4),
    "log2": ComplexRow(lambda z: np.log(z) / np.log(z.real.dtype.type(2)), ALL, 5, 5),
    "log10": ComplexRow(lambda z: np.log(z) / np.log(z.real.dtype.type(10)), ALL, 5, 5),
    "log1p": ComplexRow(_log1p, ALL, 5, 5),
    "sin": ComplexRow(np.sin, SMALL_ENOUGH, 5, 4),
    "cos": ComplexRow(np.cos, SMALL_ENOUGH, 5, 4),
    "tan": ComplexRow(np.tan, SMALL_ENOUGH, 8, 8),
    "sinh": ComplexRow(np.sinh, SMALL_ENOUGH, 5, 4),
    "cosh": ComplexRow(np.cosh, SMALL_ENOUGH, 5, 4),
    "tanh": ComplexRow(np.tanh, SMALL_ENOUGH, 8, 8),
    "arcsin": ComplexRow(np.arcsin, ALL, 5, 5),
    "arccos": ComplexRow(np.arccos, ALL, 5, 5),
    "arctan": ComplexRow(np.arctan, ALL, 6, 6),
    "arcsinh": ComplexRow(np.arcsinh, ALL, 5, 5),
    "arccosh": ComplexRow(np.arccosh, ALL, 5, 5),
    "arctanh": ComplexRow(np.arctanh, ALL, 6, 6),
}
COMPLEX_TYPES = ("complex64", "complex128")
# The same for float64 from 0.001 upwards, which has no wider oracle; lgamma is checked only on "cpu".
WITHOUT_ORACLE = {"digamma": 8, "lgamma": 4}


def arguments(row: Row, dtype: str, count: int) -> list[np.ndarray]:
    """Return arguments, half of them spaced evenly and half by magnitude, so that many of them are small."""
    random = np.random.default_rng(1)
    found = []
    for low, high in row.places:
        even = random.uniform(low, high, count // 2)
        top = max(abs(low), abs(high))
        bottom = low if low > 0 else top * 1e-8
        sized = np.exp(random.uniform(math.log(bottom), math.log(top), count - count // 2))
        sized *= np.where(random.random(len(sized)) < 0.5, -1, 1) if low < 0 else 1
        values = np.concatenate([even, sized])
        found.append(random.permutation(values[(values >= low) & (values <= high)]))
    length = min(map(len, found))
    return [values[:length].astype(dtype) for values in found]


def worst(name: str, dtype: str, device: str, count: int = 20_000) -> float:
    """Return the largest error in units of the last place of the exact result."""
    row = ROWS[name]
    hosts = arguments(row, dtype, count)
    wide = np.float64 if dtype == "float32" else np.longdouble
    with np.errstate(all="ignore"):
        exact = np.asarray(row.oracle(*(h.astype(wide) for h in hosts)))
        got = getattr(gi, name)(*(gi.GpuArray(h, device=device) for h in hosts)).get()
        assert got.dtype == dtype, (name, got.dtype)
        size = np.abs(exact).astype(dtype)
        usual = np.isfinite(size) & (size >= np.finfo(dtype).tiny)
        error = np.abs(got.astype(wide) - exact)[usual] / np.spacing(size[usual])
    return float(error.max())


def complex_arguments(row: ComplexRow, dtype: str, count: int) -> np.ndarray:
    """Return arguments of all sizes and directions, a fifth of them near 1, -1, i and -i, where results are small."""
    random = np.random.default_rng(1)

    def parts(size: int, low: float, high: float) -> Any:
        return 10 ** random.uniform(low, high, size) * random.choice([-1.0, 1.0], size)

    found = parts(count, *row.sizes) + 1j * parts(count, *row.sizes)
    near = found[: count // 5]
    near[...] = random.choice([1, -1, 1j, -1j], near.size)
    near += parts(near.size, -6, 0) + 1j * parts(near.size, -6, 0)
    return found.astype(dtype)


def worst_complex(name: str, dtype: str, device: str, count: int = 20_000) -> float:
    """Return the largest distance from the exact result, in units of the last place of its absolute value."""
    row = COMPLEX_ROWS[name]
    host = complex_arguments(row, dtype, count)
    wide, real = (
        (np.complex128, np.float32) if dtype == "complex64" else (np.clongdouble, np.float64)
    )
    with np.errstate(all="ignore"):
        exact = np.asarray(row.oracle(host.astype(wide)))
        got = getattr(gi, name)(gi.GpuArray(host, device=device)).get()
        assert got.dtype == dtype, (name, got.dtype)
        size = np.abs(exact).astype(real)
        usual = np.isfinite(size) & (size >= np.finfo(real).tiny) & np.isfinite(got)
        error = np.abs(got.astype(wide) - exact)[usual] / np.spacing(size[usual])
    return float(error.max())


def measure(device: str, count: int = 20_000) -> dict[str, dict[str, float]]:
    """Return the largest errors by operation and type."""
    found: dict[str, dict[str, float]] = {}
    for name, row in ROWS.items():
        found[name] = {"float32": worst(name, "float32", device, count)}
        if row.float64 is not None:
            found[name]["float64"] = worst(name, "float64", device, count)
    return found


def measure_complex(device: str, count: int = 20_000) -> dict[str, dict[str, float]]:
    """Return the largest errors of complex functions by function and type."""
    return {
        name: {dtype: worst_complex(name, dtype, device, count) for dtype in COMPLEX_TYPES}
        for name in COMPLEX_ROWS
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default=str(gi.default_device()))
    options.add_argument("--json", type=Path, metavar="FILE")
    options.add_argument("--count", type=int, default=1_000_000)
    chosen = options.parse_args()
    found = measure(chosen.device, chosen.count)
    for name, errors in found.items():
        row = ROWS[name]
        text = "".join(
            f"  {errors.get(t, math.nan):8.2f} of {getattr(row, t) or '-'}"
            for t in ("float32", "float64")
        )
        print(f"{name:12}{text}")
    of_complex = measure_complex(chosen.device, chosen.count // 10)
    for name, errors in of_complex.items():
        bounds = COMPLEX_ROWS[name]
        text = "".join(f"  {errors[t]:8.2f} of {getattr(bounds, t)}" for t in COMPLEX_TYPES)
        print(f"{name:12}{text}  complex")
    if chosen.json:
        record = {
            "device": chosen.device.partition(":")[0],
            "arguments": chosen.count,
            "ulps": found,
            "ulps of complex numbers": of_complex,
        }
        chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

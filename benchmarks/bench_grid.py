"""Bandwidth in a grid of operations, layouts, dtypes and sizes, including odd sizes, compared with torch and CuPy.

GB/s of the bytes that must move. A row is an operation of one dtype and size, such as
``copy of X.T, float16, 4097 x 4095``. Ends with the rows in which another library is more than 5 % ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi

AHEAD = 1.05
DTYPES = {
    "float16": "float32",
    "float32": "float16",
    "float64": "float32",
    "uint8": "float32",
    "int64": "float64",
}  # and what they are cast to


class Size(NamedTuple):
    """The shapes of one size: a matrix, and arrays of three and four axes of about as many elements."""

    rows: int
    columns: int
    cube: tuple[int, int, int]
    images: tuple[int, int, int, int]  # batch, height, width, channels

    @property
    def name(self) -> str:
        return f"{self.rows} x {self.columns}"


SIZES = (
    Size(1025, 1023, (101, 103, 99), (7, 65, 67, 33)),
    Size(4096, 4096, (256, 256, 256), (16, 128, 128, 64)),
    Size(4097, 4095, (255, 257, 253), (15, 129, 131, 63)),
    Size(16385, 16383, (645, 643, 641), (63, 255, 257, 65)),
)
QUICK = (Size(65, 63, (9, 17, 25), (2, 9, 11, 3)),)

Cases = dict[str, tuple[float, Callable[[], Any]]]  # elements that move, and the call


def turned(x: Any, *axes: int) -> Any:
    return x.permute(*axes) if hasattr(x, "permute") else x.transpose(axes)


def cases(m: Any, x: Any, y: Any, out: Any, size: Size, of_cast: np.dtype[Any]) -> Cases:
    """Return the calls of a library `m` on vectors of its own; gpuinterop, torch and CuPy share these names."""
    r, c, n = size.rows, size.columns, size.rows * size.columns
    matrix, other, result = x[:n].reshape(r, c), y[:n].reshape(r, c), out[:n].reshape(r, c)
    across = out[:n].reshape(c, r)
    name, map_of = ("exp({})", m.exp) if "float" in str(x.dtype) else ("-{}", m.negative)
    found: Cases = {
        name.format("x"): (2 * n, lambda: map_of(x[:n], out=out[:n])),
        "x[1:] + y[:-1]": (3 * n, lambda: m.add(x[1:n], y[: n - 1], out=out[: n - 1])),
        name.format("X.T"): (2 * n, lambda: map_of(matrix.T)),
        "copy of X.T": (2 * n, lambda: across.__setitem__(..., matrix.T)),
        "X + Y.T": (3 * n, lambda: m.add(matrix, y[:n].reshape(c, r).T, out=result)),
        "X[1:, 1:] + 1": (2 * n, lambda: matrix[1:, 1:] + 1),
        "X[:, 1:-1] * 2": (2 * n, lambda: m.multiply(matrix[:, 1:-1], 2, out=result[:, 1:-1])),
        "X[:, ::2] + 1": (n, lambda: matrix[:, ::2] + 1),
        "X + row": (2 * n, lambda: m.add(matrix, other[0], out=result)),
        "X + column": (2 * n, lambda: m.add(matrix, other[:, :1], out=result)),
        "X > Y": (2 * n + n / x.itemsize, lambda: matrix > other),
        "cast": (n + n * of_cast.itemsize / x.itemsize, lambda: cast(m, matrix, of_cast)),
        "sum": (n, lambda: matrix.sum()),
        "sum axis 0": (n, lambda: matrix.sum(axis=0)),
        "sum axis 1": (n, lambda: matrix.sum(axis=1)),
        "max axis 0": (n, lambda: getattr(matrix, "amax", matrix.max)(axis=0)),
    }
    for name, shape, axes in (
        ("axes 0, 2, 1", size.cube, (0, 2, 1)), ("axes 2, 1, 0", size.cube, (2, 1, 0)),
        ("NHWC to NCHW", size.images, (0, 3, 1, 2)),
        ("NCHW to NHWC", tuple(size.images[i] for i in (0, 3, 1, 2)), (0, 2, 3, 1)),
        ("RGB to planes", (n // (c * 3), c, 3), (2, 0, 1)), ("planes to RGB", (3, n // (c * 3), c), (1, 2, 0)),
    ):  # fmt: skip
        found[name] = permutation(x, out, shape, axes)
    return found


def cast(m: Any, x: Any, dtype: np.dtype[Any]) -> Any:
    return x.to(getattr(m, dtype.name)) if hasattr(x, "to") else x.astype(dtype)


def permutation(
    x: Any, out: Any, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[float, Callable[[], Any]]:
    count = 1
    for extent in shape:
        count *= extent
    source = turned(x[:count].reshape(shape), *axes)
    target = out[:count].reshape(tuple(shape[i] for i in axes))
    return 2.0 * count, lambda: target.__setitem__(..., source)


def measure(bench: Benchmark, dtype: str, sizes: tuple[Size, ...], only: str) -> None:
    libraries = peers(bench.options, ("torch", "cupy"))
    wait = waiting(libraries, bench.options.device)
    n = max(size.rows * size.columns for size in sizes)
    values = (0.5, 0.25, 0) if "float" in dtype else (2, 1, 0)
    own = [gi.full(n, value, dtype=dtype, device=bench.options.device) for value in values]
    for size in sizes:
        calls: dict[str, dict[str, Call]] = {}
        moved: dict[str, float] = {}
        for who, module in {GPUINTEROP: gi, **libraries}.items():
            row = f"{dtype}, {size.name}"
            with optional({who: module}, who, row) as m:
                arrays = own if m is gi else [m.from_dlpack(x) for x in own]
                found = cases(m, *arrays, size, np.dtype(DTYPES[dtype]))
                for name, (elements, body) in found.items():
                    moved[name] = elements * own[0].itemsize
                    calls.setdefault(name, {})[who] = Call(body, wait[who])
        for name, contenders in calls.items():
            if only in name:
                row = f"{name}, {dtype}, {size.name}"
                bench.device(row, contenders, moved=moved[name], budget=0.01)


def behind(rows: dict[str, dict[str, float]]) -> list[tuple[float, str, str]]:
    """Return the rows in which another library is more than 5 % faster: the factor, the row, the library."""
    found = []
    for row, rates in rows.items():
        others = {who: rate for who, rate in rates.items() if who != GPUINTEROP}
        if GPUINTEROP in rates and others:
            best = max(others, key=lambda who: others[who])
            if others[best] > AHEAD * rates[GPUINTEROP]:
                found.append((others[best] / rates[GPUINTEROP], row, best))
    return sorted(found, reverse=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="operations whose name contains this")
    options.add_argument("--dtypes", default=",".join(DTYPES), help="separated by commas")
    chosen = options.parse_args()
    bench = Benchmark("grid", "GB/s", chosen, picture="grid")
    for dtype in chosen.dtypes.split(","):
        measure(bench, dtype, QUICK if chosen.quick else SIZES, chosen.only)
    bench.finish()
    slow = behind(bench.rows)
    print(f"{len(slow)} of {len(bench.rows)} cells are more than 5 % behind")
    for factor, row, who in slow:
        print(f"  {row}: {who} is {factor:.2f} times as fast")


if __name__ == "__main__":
    main()

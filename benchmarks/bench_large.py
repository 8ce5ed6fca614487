"""Is each operation as fast beyond 2^31 elements as at 2^28? Every operator and reduction, copies, indices, joins.

GB/s of the bytes that must move, of 2^31 + 3 elements, compared with 2^28 elements and with torch; small dtypes.
"flat" operands are contiguous vectors, "rows" are a column and a row that broadcast to a matrix. Operators write into
out= arrays, so that the allocation of results of several GiB is not measured. Ends with the rows whose
rate is less than half of that at 2^28, and with those in which torch is more than 5 % faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, parser, peers, waiting

import gpuinterop as gi
from gpuinterop.elementwise.table import ROWS
from gpuinterop.reduce.table import REDUCTIONS

SMALLER = f"{GPUINTEROP}, 2^28"
TORCH = {
    "conjugate": "conj_physical", "equal": "eq", "power": "pow", "invert": "bitwise_not",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "min": "amin", "max": "amax",
    "gamma": "", "fabs": "abs",
}  # fmt: skip
DTYPES = {"i": "int8", "b": "bool", "f": "float16"}
Cases = Iterator[tuple[str, float, Callable[[], Any]]]  # name, bytes that move, call


def function(m: Any, name: str) -> Any:
    """Return gpuinterop's function or torch's of another name, or None."""
    return getattr(m, name if m is gi else TORCH.get(name, name), None)


def some(rows: Sequence[Any], n: int) -> Sequence[Any]:
    """Return all rows, or of small arrays, which only show that the benchmark runs, every ninth."""
    return rows if n >> 20 else rows[::9]


def operators(m: Any, arrays: dict[str, Any], n: int) -> Cases:
    """Return the calls of every row of the operation table."""
    columns = 1009
    for row in some(ROWS, n):
        call = function(m, row.name)
        if call is None or row.name == "cast":
            continue
        x = arrays[next(dtype for kind, dtype in DTYPES.items() if kind in row.expressions)]
        flat = [x[i : n + i] for i in (0, 16, 32)][: row.inputs]
        if row.name == "where":
            flat[0] = arrays["bool"][:n]
        column, lines = flat[0][: n // columns].reshape(-1, 1), [a[:columns] for a in flat[1:]]
        if row.inputs == 1:
            column = m.broadcast_to(column, (n // columns, columns))
        found = call(*(a[:1] for a in flat))
        found = found if row.results > 1 else (found,)
        dtypes = [str(r.dtype).split(".")[-1] for r in found]
        results = [arrays[f"out {dtype} {i}"] for i, dtype in enumerate(dtypes)]
        written = n * sum(r.itemsize for r in found)
        moved = n * sum(a.itemsize for a in flat) + written
        outs: list[Any] = [tuple(r[:n] for r in results)]
        outs.append(tuple(r[: n // columns * columns].reshape(-1, columns) for r in outs[0]))
        for name, a, count, out in (
            ("flat", flat, moved, outs[0]), ("rows", (column, *lines), written, outs[1]),
        ):  # fmt: skip
            kept = out if row.results > 1 else out[0]
            yield f"{row.name}, {name}", count, lambda c=call, a=a, out=kept: c(*a, out=out)


def reductions(m: Any, arrays: dict[str, Any], n: int) -> Cases:
    """Return the calls of every method that reduces: all, along rows of a matrix, along its columns, two long rows."""
    side = math.isqrt(n)
    x = arrays["int8"]
    wide = {"all": x[:n], "square": x[: side * side].reshape(side, side), "tall": x[:n // 2 * 2].reshape(-1, 2),
            "wide": x[:n // 2 * 2].reshape(2, -1)}  # fmt: skip
    for name, reduction in some(list(REDUCTIONS.items()), n):
        if not reduction.doc:
            continue
        call = function(m, name)
        if call is None:
            continue
        yield f"{name}, all", 1.0 * n, lambda c=call, a=wide["all"]: c(a)
        for shape in ("square", "tall", "wide"):
            for axis in (0, 1):
                results = wide[shape].shape[1 - axis] * reduction.result(np.dtype("int8")).itemsize
                yield (
                    f"{name}, {shape}, axis {axis}",
                    1.0 * n + results,
                    lambda c=call, a=wide[shape], k=axis: c(a, k),
                )


def others(m: Any, arrays: dict[str, Any], n: int) -> Cases:
    """Return copies, casts, indices, masks, joins and products."""
    x, half, out = arrays["int8"], arrays["float16"], arrays["out"]
    side = math.isqrt(n)
    square, across = (a[: side * side].reshape(side, side) for a in (x, out))
    few = arrays["places"] % n
    yield "copy", 2.0 * n, lambda: out[:n].__setitem__(..., x[:n])
    yield (
        "copy of every second element",
        1.0 * n,
        lambda: out[: n // 2].__setitem__(..., x[: n // 2 * 2 : 2]),
    )
    yield "copy of X.T", 2.0 * n, lambda: across.__setitem__(..., square.T)
    yield (
        "copy of pairs.T",
        2.0 * n,
        lambda: out[: n // 2 * 2].reshape(2, -1).__setitem__(..., x[: n // 2 * 2].reshape(-1, 2).T),
    )
    yield "fill", 1.0 * n, lambda: out[:n].__setitem__(..., 3)
    yield "fill of every second element", 1.0 * n, lambda: out[:n:2].__setitem__(..., 3)
    yield "cast to float16", 3.0 * n, lambda: half[:n].__setitem__(..., x[:n])
    yield "cast of float16", 3.0 * n, lambda: out[:n].__setitem__(..., half[:n])
    yield "take", 10.0 * len(few), lambda: m.take(x[:n], few)
    yield "x[places]", 10.0 * len(few), lambda: x[:n][few]
    yield "x[mask], half", 2.5 * n, lambda: x[:n][arrays["bool"][:n]]
    yield "x[mask] = 1, half", 1.5 * n, lambda: out[:n].__setitem__(arrays["bool"][:n], 1)
    yield "nonzero of few", 2.0 * n, lambda: m.nonzero(arrays["few"][:n])
    yield "concatenate", 4.0 * n, lambda: m.concatenate([x[:n], x[:n]])
    yield "stack, axis 1", 4.0 * n, lambda: m.stack([x[:n], x[:n]], 1)
    pairs = arrays["float32"][: n // 2 * 2].reshape(2, -1)
    v = pairs[0]
    yield "(2, k) @ (k,)", 6.0 * n, lambda: m.matmul(pairs, v)
    yield "(k, 2) @ (2,)", 6.0 * n, lambda: m.matmul(pairs.reshape(-1, 2), v[:2])
    yield "(2, k) @ (k, 2)", 8.0 * n, lambda: m.matmul(pairs, pairs.reshape(-1, 2))


class Lazy(dict):
    """Arrays by name, made when they are first used."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def __missing__(self, name: str) -> Any:
        self[name] = found = self.make(name)
        return found


def vector(device: str, n: int, name: str) -> Any:
    """Return a vector of a few more than `n` elements of a dtype; "places" are indices, "few" is True at a few.

    "out float16 0" is an uninitialized vector of float16.
    """
    if name.startswith("out "):
        return gi.empty(n + 64, name.split()[1], device=device)
    if name == "places":
        return gi.arange(0, n, max(n >> 26, 1) + 2, dtype="int64", device=device)
    count, period = n + 64, 1 << 10
    x = gi.empty(count, {"out": "int8", "few": "bool"}.get(name, name), device=device)
    values = np.arange(period) * 29 % 61
    pattern = {"few": np.arange(period) == 5, "bool": values > 30}.get(name, values)
    x[: count // period * period].reshape(-1, period)[...] = pattern.astype(str(x.dtype))
    x[count // period * period :] = 1
    return x


def measure(bench: Benchmark, sizes: dict[str, int], only: list[str]) -> None:
    libraries = peers(bench.options, ("torch",))
    wait = waiting(libraries, bench.options.device)
    own = Lazy(lambda name: vector(bench.options.device, sizes[GPUINTEROP], name))
    contenders: dict[str, Any] = {who: (gi, own, n) for who, n in sizes.items()}
    for name in libraries:
        shared = Lazy(lambda key, m=libraries[name]: m.from_dlpack(own[key]))  # type: ignore[misc]
        contenders[name] = (libraries[name], shared, sizes[GPUINTEROP])
    for make in (others, reductions, operators):
        calls: dict[str, dict[str, Call]] = {}
        moved: dict[str, dict[str, float]] = {}
        for who, (m, given, n) in contenders.items():
            for row, count, call in make(m, given, n):
                moved.setdefault(row, {})[who] = count
                calls.setdefault(row, {})[who] = Call(
                    call, wait[who if m is not gi else GPUINTEROP]
                )
        for row, found in calls.items():
            if not only or any(name in row for name in only):
                bench.device(row, found, moved=moved[row], budget=0.01)


def slower(rows: dict[str, dict[str, float]], other: str, factor: float) -> list[str]:
    """Return a line for each row whose rate is less than `factor` times that of another contender."""
    found = [
        (row[GPUINTEROP] / row[other], name)
        for name, row in rows.items()
        if row.keys() >= {other, GPUINTEROP} and row[GPUINTEROP] < factor * row[other]
    ]
    return [f"  {name}: {ratio:.2f}" for ratio, name in sorted(found)]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", help="cases whose names contain one of these")
    chosen = options.parse_args()
    bench = Benchmark("large", "GB/s", chosen)
    small, large = (10, 12) if chosen.quick else (28, 31)
    measure(bench, {SMALLER: 1 << small, GPUINTEROP: (1 << large) + 3}, chosen.only)
    try:
        bench.finish()
    finally:
        report(bench)


def report(bench: Benchmark) -> None:
    """Print the slow rows."""
    for text, lines in (
        ("less than half of the rate at 2^28", slower(bench.rows, SMALLER, 0.5)),
        ("torch more than 5 % faster", slower(bench.rows, "torch", 1 / 1.05)),
    ):
        print(f"{text}: {len(lines)} of {len(bench.rows)} rows", *lines, sep="\n")


if __name__ == "__main__":
    main()

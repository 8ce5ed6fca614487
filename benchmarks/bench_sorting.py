"""Sorting, running sums, searching and distinct elements, compared with torch and CuPy, on "cpu" with NumPy and torch.

Microseconds of a call, on a GPU between events around several calls. The marks are ratios to the faster of the others,
which `--ratios` prints.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi

# Of gpuinterop's time to the shortest of the others, by the beginning of a row's name.
MARKS = {
    "sort rows": 0.70, "argsort rows": 0.70, "sort": 1.05, "argsort": 0.85, "cumsum axis 0": 0.15,
    "cumsum axis 1": 0.55, "cumsum float32": 1.0, "cumsum int32": 1.0, "cumsum": 1.1, "searchsorted": 1.12,
    "unique_values": 1.1, "unique_all": 0.6,
}  # fmt: skip


@lru_cache(maxsize=8)
def values(dtype: str, *shape: int) -> Any:
    random = np.random.default_rng(0)
    if dtype.startswith("int"):
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype)
    return random.standard_normal(shape).astype(dtype)


def sorts(libraries: dict[str, Any]) -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the calls of each library, by name; the second argument is the axis."""
    torch, cupy = libraries.get("torch"), libraries.get("cupy")
    calls: dict[str, dict[str, Callable[..., Any]]] = {
        "sort": {GPUINTEROP: gi.sort},
        "argsort": {GPUINTEROP: gi.argsort},
        "cumsum": {GPUINTEROP: lambda x, axis: gi.cumsum(x, axis, x.dtype)},
        "searchsorted": {GPUINTEROP: gi.searchsorted},
        "unique_values": {GPUINTEROP: lambda x, _: gi.unique_values(x)},
        "unique_all": {GPUINTEROP: lambda x, _: gi.unique_all(x)},
    }
    for name, library in (("cupy", cupy), ("numpy", libraries.get("numpy"))):
        if library is not None:
            calls["sort"][name] = lambda x, axis, xp=library: xp.sort(x, axis)
            calls["argsort"][name] = lambda x, axis, xp=library: xp.argsort(x, axis, kind="stable")
            calls["cumsum"][name] = lambda x, axis, xp=library: xp.cumsum(x, axis, x.dtype)
            calls["searchsorted"][name] = library.searchsorted
            calls["unique_values"][name] = lambda x, _, xp=library: xp.unique(x)
            calls["unique_all"][name] = lambda x, _, xp=library: xp.unique(x, True, True, True)
    if torch is not None:
        calls["sort"]["torch"] = lambda x, axis: torch.sort(x, dim=axis, stable=True)
        calls["argsort"]["torch"] = lambda x, axis: torch.argsort(x, dim=axis, stable=True)
        calls["cumsum"]["torch"] = lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype)
        calls["searchsorted"]["torch"] = torch.searchsorted
        calls["unique_values"]["torch"] = lambda x, _: torch.unique(x)
        calls["unique_all"]["torch"] = lambda x, _: torch.unique(
            x, return_inverse=True, return_counts=True
        )
    return calls


def rows(quick: bool, on_host: bool) -> dict[str, tuple[str, Any, Any]]:
    """Return by row the function, the function that makes its array, and its second argument."""
    few = (10,) if quick else (10, 20) if on_host else (10, 20, 26)
    edge, length = (64, 10) if quick else (512, 18) if on_host else (4096, 24)
    wide = 2 * edge
    found: dict[str, tuple[str, Any, Any]] = {}
    for name in ("sort", "argsort", "cumsum"):
        for dtype in ("float32", "int32", "int64", "float64"):
            for power in few if dtype in ("float32", "int64") else few[:2]:
                found[f"{name} {dtype} 2^{power}"] = name, (dtype, 1 << power), 0
    for name in ("sort", "argsort"):
        for dtype in ("float32", "int64"):
            for columns in (edge, edge // 4, edge // 64):
                shape = edge * edge // columns, columns
                found[f"{name} rows {dtype} {shape[0]} x {columns}"] = name, (dtype, *shape), -1
        found[f"{name} columns float32 {edge} x {edge}"] = name, ("float32", edge, edge), 0
    for axis in (0, 1):
        for dtype in ("float32", "int64"):
            found[f"cumsum axis {axis} {dtype} {wide} x {wide}"] = (
                "cumsum",
                (dtype, wide, wide),
                axis,
            )
    for dtype in ("float32", "int64"):
        found[f"searchsorted {dtype} 2^{length} in 2^{length - 4}"] = "searchsorted", (dtype, 1 << (length - 4)), (
            dtype, 1 << length,
        )  # fmt: skip
        for name in ("unique_values", "unique_all"):
            found[f"{name} {dtype} 2^{length}"] = name, (dtype, 1 << length), 0
    return found


def ratio_of(row: dict[str, float]) -> float:
    others = [value for who, value in row.items() if not who.startswith(GPUINTEROP)]
    return row[GPUINTEROP] / min(others) if others else 0.0


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--only", default="", help="rows whose name contains this")
    options.add_argument(
        "--ratios", action="store_true", help="print ratios to the faster library, and the marks"
    )
    chosen = options.parse_args()
    on_host = chosen.device == "cpu"
    libraries = peers(chosen, ("torch", "numpy") if on_host else ("torch", "cupy"))
    if on_host and not chosen.alone:
        libraries["numpy"] = np
    bench = Benchmark("sorting", "us", chosen)
    wait = waiting(libraries, chosen.device) | {"numpy": lambda: None}
    calls = sorts(libraries)
    for row, (name, made, second) in rows(chosen.quick, on_host).items():
        if chosen.only not in row:
            continue
        host = values(*made)
        arrays = {
            GPUINTEROP: (
                gi.asarray(np.sort(host) if name == "searchsorted" else host, device=chosen.device),
            )
        }
        other = second
        if isinstance(second, tuple):
            other = gi.asarray(values(*second), device=chosen.device)
        for who in libraries:
            with optional(libraries, who, row) as library:
                arrays[who] = (library.from_dlpack(arrays[GPUINTEROP][0]),)
        bodies = {}
        for who, function in calls[name].items():
            if who in arrays:
                (x,) = arrays[who]
                y = (
                    other
                    if not isinstance(second, tuple) or who == GPUINTEROP
                    else libraries[who].from_dlpack(other)
                )
                bodies[who] = Call(lambda f=function, a=x, b=y: f(a, b), wait[who])  # type: ignore[misc]
        bench.device(row, bodies, budget=0.06)
    if chosen.ratios:
        print(f"\n{'ratio to the faster library':44}{'ratio':>8}   mark")
        for row, found in bench.rows.items():
            mark = next((m for start, m in MARKS.items() if row.startswith(start)), None)
            print(f"{row:44}{ratio_of(found):8.2f}   {mark if '2^10' not in row else ''}")
    bench.finish()


if __name__ == "__main__":
    main()

"""Reading and writing at index arrays and masks, compared with torch and CuPy.

GB/s of the bytes that must be transferred: indices or mask once, each element that is read or written once.
float32. The indices are random, int64 and on the device; the mask selects every second element, at random.
With an index out of range gpuinterop raises, so its calls wait for the check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, optional, parser, peers, waiting

import gpuinterop as gi

MARKS = {"take": 640, "rows X[idx]": 1500}


class Data:
    """The arrays of a size, and the same memory as arrays of another library."""

    def __init__(self, device: str, n: int, rows: int) -> None:
        random = np.random.default_rng(0)

        def on_device(host: np.ndarray) -> Any:
            return gi.asarray(host, device=device)

        self.x = on_device(random.standard_normal(n, np.float32))
        self.indices = on_device(random.integers(0, n, n))
        self.narrow = self.indices.astype("int32")
        self.mask = on_device(random.random(n, np.float32) < 0.5)
        self.selected = int(self.mask.sum())
        self.values = self.x[: self.selected].copy()
        self.out = self.x.copy()
        self.matrix = on_device(random.standard_normal((rows, 64), np.float32))
        self.rows = on_device(random.integers(0, rows, rows))
        self.into = self.matrix.copy()
        self.columns = on_device(random.integers(0, 64, 32))

    def given_to(self, share: Callable[[Any], Any]) -> Any:
        other = object.__new__(Data)
        for name, value in vars(self).items():
            setattr(other, name, value if isinstance(value, int) else share(value))
        return other


def assign(x: Any, key: Any, value: Any) -> None:
    x[key] = value


def cases(d: Data) -> dict[str, tuple[float, Callable[[Any], Any]]]:
    """Return by name the bytes that must move, and the call on the arrays of any of the libraries."""
    n, chosen, rows = d.x.size, d.selected, d.matrix.nbytes
    places = 8.0 * len(d.rows)
    return {
        "take": (16.0 * n, lambda a: a.x.take(a.indices)),
        "take, int32": (12.0 * n, lambda a: a.x.take(a.narrow)),
        "x[idx] = v": (16.0 * n, lambda a: assign(a.out, a.indices, a.x)),
        "rows X[idx]": (2.0 * rows + places, lambda a: a.matrix[a.rows]),
        "rows X[idx] = V": (2.0 * rows + places, lambda a: assign(a.into, a.rows, a.matrix)),
        "columns X[:, idx]": (rows * 1.0, lambda a: a.matrix[:, a.columns]),
        "x[mask]": (n + 8.0 * chosen, lambda a: a.x[a.mask]),
        "x[mask] = 0": (n + 4.0 * chosen, lambda a: assign(a.out, a.mask, 0)),
        "x[mask] = v": (n + 8.0 * chosen, lambda a: assign(a.out, a.mask, a.values)),
        "nonzero": (n + 8.0 * chosen, lambda a: a.mask.nonzero()),
    }


def additions(libraries: dict[str, Any]) -> dict[str, Callable[[Any], Any]]:
    """Return each library's own call that adds to repeated rows."""
    found: dict[str, Callable[[Any], Any]] = {
        GPUINTEROP: lambda a: gi.add.at(a.into, a.rows, a.matrix),
        "torch": lambda a: a.into.index_add_(0, a.rows, a.matrix),
    }
    if "cupy" in libraries:
        found["cupy"] = lambda a: libraries["cupy"].add.at(a.into, a.rows, a.matrix)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--log2", type=int, default=26, help="elements, as a power of two")
    options.add_argument("--only", default="", help="cases whose name contains this")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.log2 = min(chosen.log2, 12)
    marks = MARKS if chosen.log2 == 26 and chosen.device != "cpu" else {}
    bench = Benchmark("indexing", "GB/s", chosen)
    libraries = peers(chosen, ("torch", "cupy"))
    wait = waiting(libraries, chosen.device)
    d = Data(chosen.device, 1 << chosen.log2, 1 << (chosen.log2 - 6))
    data = {GPUINTEROP: d}
    for name in libraries:
        with optional(libraries, name, "arrays") as library:
            data[name] = d.given_to(library.from_dlpack)
    calls: dict[str, tuple[float, dict[str, Callable[[Any], Any]]]] = {
        name: (moved, dict.fromkeys(data, call)) for name, (moved, call) in cases(d).items()
    }
    calls["rows add.at"] = (3.0 * d.matrix.nbytes + 8.0 * len(d.rows), additions(libraries))
    for name, (moved, functions) in calls.items():
        if chosen.only in name:
            bodies = {
                who: Call(lambda f=functions[who], a=arrays: f(a), wait[who])  # type: ignore[misc]
                for who, arrays in data.items()
            }
            bench.device(name, bodies, moved=moved, mark=marks.get(name))
    bench.finish()


if __name__ == "__main__":
    main()

"""``gpuinterop bench``: times the same calls in gpuinterop and in the installed libraries, on one device.

Every library gets the same values and must return the same result. The libraries take turns, so that a change of the
processor's clock meets all of them, and each wait for the device is inside the measured time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.cli import device_of, words_of
from gpuinterop.cli.contenders import (
    GPUINTEROP,
    JaxCall,
    first_line,
    libraries_on,
    seconds_of,
    waiting,
)
from gpuinterop.cli.terminal import progress, say
from gpuinterop.drawing.chart import bars, figure
from gpuinterop.drawing.svg import picture_file
from gpuinterop.errors.context import host_memory
from gpuinterop.errors.messages import not_one_of
from gpuinterop.testing.suite import about

SCHEMA = "gpuinterop.bench/1"
LIBRARIES = ("numpy", "torch", "cupy", "jax")
SMALL = 64  # elements, where the cost of a call counts
TURNS = 7
EPILOG = """\
The table has microseconds of a call, the median of {turns} turns, and less is better. "-" stands for a library that
lacks the call, such as PyTorch for negative strides. Each library runs as installed, with its own number of threads.

exit code: 0 done; 1 a result of gpuinterop is wrong; 2 an argument is wrong

example: gpuinterop bench --output bench.json --picture bench.svg
"""


class Row(NamedTuple):
    """A call. `run` gets the library's module and its arrays by name; `other` replaces it for some libraries."""

    title: str
    run: Callable[[Any, Any], Any]
    other: Mapping[str, Callable[[Any, Any], Any] | None] = MappingProxyType({})


ROWS = (
    Row("x + y, 64 elements", lambda m, a: a.s + a.t),
    Row("x.sum(), 64 elements", lambda m, a: a.s.sum()),
    Row("x + y", lambda m, a: a.x + a.y),
    Row("exp(x)", lambda m, a: m.exp(a.x)),
    Row("x[::-1] + y", lambda m, a: a.x[::-1] + a.y, {"torch": None}),
    Row("X + Y.T", lambda m, a: a.X + a.Y.T),
    Row("copy of X.T", lambda m, a: a.X.T.copy(), {"torch": lambda m, a: a.X.T.contiguous()}),
    Row("sigmoid, 1 / (1 + exp(-x))", lambda m, a: 1 / (1 + m.exp(-a.x))),
    Row("X.sum(0)", lambda m, a: a.X.sum(0)),
    Row("X.argmax(1)", lambda m, a: a.X.argmax(1)),
    Row("x[mask]", lambda m, a: a.x[a.mask]),
    Row("A @ B", lambda m, a: a.A @ a.B),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the device, the libraries, the size and the files."""
    parser.epilog = EPILOG.format(turns=TURNS)
    parser.add_argument("--device", metavar="DEVICE", help="instead of the default device")
    parser.add_argument(
        "--only", metavar="LIBRARY,...", help=f"compare with these of {', '.join(LIBRARIES)}"
    )
    parser.add_argument(
        "--size", type=int, metavar="N", help="elements of the large arrays [as memory allows]"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.16, metavar="S",
        help="how long to time each call of each library [%(default)s]",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the JSON to a file")
    parser.add_argument("--picture", metavar="FILE", help="also draw bars as SVG")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Measure every row; print the table and write the files."""
    device = str(device_of(arguments.device))
    only = words_of(arguments.only, "--only")
    for name in only or ():
        if name not in LIBRARIES:
            raise not_one_of("gpuinterop bench", "--only", LIBRARIES, name)
    if arguments.size is not None and arguments.size < 1:
        raise gi.ArgumentTypeError(where="--size", expected="a positive number of elements",
                                   got=str(arguments.size), fix="pass --size=1000000")  # fmt: skip
    if not 0 <= arguments.seconds < float("inf"):
        raise gi.ArgumentTypeError(where="--seconds", expected="a number of seconds, 0 or more",
                                   got=str(arguments.seconds), fix="pass --seconds=0.2")  # fmt: skip
    if arguments.picture:
        picture_file(arguments.picture, "--picture")
    for file in filter(None, (arguments.output, arguments.picture)):
        Path(file).touch()  # fail before the measurement
    size = arguments.size or fitting(device)
    record = measure(device, only or LIBRARIES, size, arguments.seconds / (TURNS + 1))
    text = json.dumps(record, indent=1)
    # The files first, because the reader of the output may close it, as `head` does.
    if arguments.output:
        Path(arguments.output).write_text(text + "\n", encoding="utf-8")
    if arguments.picture:
        Path(arguments.picture).write_text(picture(record), encoding="utf-8")
    if arguments.json:
        print(text)
    else:
        say(table(record))
    return int(any(GPUINTEROP not in row for row in record["rows"].values()))


def fitting(device: str) -> int:
    """Return a number of elements: at most a 16th of the free memory for an array of float32, and a few seconds."""
    if device == "cpu":
        free, most = host_memory()[0], 2**22
    else:
        free, most = _core.cuda_mem_info(gi.device(device).index)[0], 2**26
    return int(min(most, max(2**16, 2 ** ((free // 64).bit_length() - 1))))


def values_of(size: int) -> dict[str, Any]:
    """Return the values that every library gets, as NumPy arrays."""
    random, side = np.random.default_rng(0), int(size**0.5)
    inner = min(side, 1024)
    x, y, s, t = (random.random(n, np.float32) for n in (size, size, SMALL, SMALL))
    matrix = {"X": x[: side * side].reshape(side, side), "Y": y[: side * side].reshape(side, side)}
    small = {"A": matrix["X"][:inner, :inner].copy(), "B": matrix["Y"][:inner, :inner].copy()}
    return {"x": x, "y": y, "s": s, "t": t, "mask": x > 0.5, **matrix, **small}


def arrays_of(name: str, module: Any, device: str, values: dict[str, Any]) -> Any:
    """Return the values as arrays of a library, on the device."""
    make: dict[str, Callable[[Any], Any]] = {
        GPUINTEROP: lambda n: gi.asarray(n, device=device, copy=True),
        "numpy": np.copy,
        "torch": lambda n: module.tensor(n, device=device),
        "cupy": lambda n: module.array(n),
        "jax": lambda n: module.numpy.array(n),
    }
    return argparse.Namespace(**{key: make[name](n) for key, n in values.items()})


def on_host(result: Any) -> Any:
    """Return a library's result as a NumPy array."""
    method = next((name for name in ("cpu", "get") if hasattr(result, name)), None)
    return np.asarray(getattr(result, method)() if method else result)


def measure(device: str, names: Any, size: int, seconds: float) -> dict[str, Any]:
    """Return the record of a run: microseconds by row and library, and why others do not take part."""
    # Of other programs, before this one adds its own.
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    shown = partial(progress, "gpuinterop bench")
    libraries, absent = libraries_on(device, shown(names))
    modules = {GPUINTEROP: gi, **libraries}
    values = values_of(size)
    arrays = {name: arrays_of(name, module, device, values) for name, module in modules.items()}
    waits = waiting(libraries, device)
    found, failed = {}, {}
    for row in shown(ROWS):
        right = row.other.get("numpy", row.run)(np, argparse.Namespace(**values))  # type: ignore[misc]
        calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
        for name, module in modules.items():
            run = row.other.get(name, row.run)
            if run is None:
                continue
            where = module.numpy if name == "jax" else module
            call = JaxCall(modules.get("jax"), run, where, arrays[name])
            try:
                np.testing.assert_allclose(on_host(call()), right, rtol=1e-4)
            except Exception as error:  # the library lacks the call, or its result is wrong
                failed[f"{row.title}, {name}"] = first_line(error)
                continue
            calls[name] = call, call.wait if name == "jax" else waits.get(name, lambda: None)
        found[row.title] = in_turns(calls, seconds)
    return {"schema": SCHEMA, "unit": "us", "device": device, "size": size, "load": load, **about(), "absent": absent,
            "failed": failed, "versions": {n: m.__version__ for n, m in libraries.items()}, "rows": found}  # fmt: skip


def in_turns(
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]], seconds: float
) -> dict[str, float]:
    """Return the median microseconds of each call in turns of so many seconds; the first turn is discarded."""
    counts = {
        name: int(min(2000, max(1, seconds / seconds_of(*call, 3)))) for name, call in calls.items()
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 1):
        for name, call in calls.items():
            time = seconds_of(*call, counts[name])
            if turn:
                times[name].append(time * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


# ---- output -------------------------------------------------------------------------------------


def fastest(row: dict[str, float]) -> str:
    """Return the library with the least time; gpuinterop if it is within 5 %, which is run-to-run variation."""
    best = min(row, key=row.__getitem__)
    return GPUINTEROP if row.get(GPUINTEROP, np.inf) <= 1.05 * row[best] else best


def message(record: dict[str, Any]) -> str:
    """Return what the figures show, in a sentence."""
    rows = record["rows"].values()
    wins = sum(fastest(row) == GPUINTEROP for row in rows)
    if all(set(row) <= {GPUINTEROP} for row in rows):
        return f"Times of gpuinterop on {record['device']}"
    calls = f"{wins} of {len(rows)} calls on {record['device']}"
    return f"gpuinterop is the fastest, or within 5% of the fastest, in {calls}"


def table(record: dict[str, Any]) -> str:
    """Return the times as a table, the calls in which another library is faster, and the missing libraries."""
    names = [GPUINTEROP, *record["versions"]]
    lines = [["microseconds", *names]]
    for title, row in record["rows"].items():
        lines.append([title, *(figure(row.get(name)) or "-" for name in names)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    ]
    lost = [
        f"{best} is {row[GPUINTEROP] / row[best]:.1f} times as fast in: {title}"
        for title, row in record["rows"].items()
        if GPUINTEROP in row and (best := fastest(row)) != GPUINTEROP
    ]
    notes = [
        f"without {name}: {why}" for name, why in (record["absent"] | record["failed"]).items()
    ]
    if record["load"] > 0.5:
        notes.append(
            "other programs keep the processor busy, which slows libraries with many threads most"
        )
    head = f"large arrays: {record['size']} float32 elements"
    return "\n".join([*shown, "", message(record), *lost, head, *notes])


def picture(record: dict[str, Any]) -> str:
    """Return bars of the times as multiples of gpuinterop's, because calls take from 0.3 to 10,000 microseconds."""
    rows = {
        title: {name: time / row[GPUINTEROP] for name, time in row.items()}
        for title, row in record["rows"].items()
        if GPUINTEROP in row
    }
    return bars(message(record), "time as a multiple of gpuinterop's, less is better", rows)

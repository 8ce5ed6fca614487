"""The common parts of the benchmarks: options, contenders that take turns, a table, JSON and a picture.

Every benchmark takes ``--json FILE`` (``--json`` alone: to stdout), ``--plot SVG``, ``--quick`` and
``--device``, and writes JSON of one form, which ``Benchmark.record`` describes.

If a contender is not installed, or fails in its first call, the benchmark prints a line and omits its column. On
device "cpu" everything runs on the host with the host's clock and small sizes, which is not a measurement but
shows that a benchmark still works.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pictures

import gpuinterop as gi
from gpuinterop.cli.contenders import (
    GPUINTEROP,
    JaxCall,
    first_line,
    libraries_on,
    seconds_of,
    waiting,  # noqa: F401  # for the benchmarks
)

SCHEMA = "gpuinterop.benchmark/1"


class Options(argparse.ArgumentParser):
    """The options of every benchmark. `on_host`: whether a run on "cpu" is a measurement too."""

    def __init__(self, doc: str, *, on_host: bool = False) -> None:
        super().__init__(description=doc.strip().splitlines()[0])
        self.on_host = on_host
        text = (
            "device of the arrays" if on_host else 'device to run on; "cpu" only shows that it runs'
        )
        self.add_argument("--device", default=None, help=f"{text} (default: a GPU if there is one)")
        self.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write all numbers")
        self.add_argument("--plot", type=Path, metavar="SVG", help="draw a picture")
        self.add_argument("--quick", action="store_true", help="small sizes, few repeats")
        self.add_argument("--alone", action="store_true", help="without the other libraries")

    def parse_args(self, *given: Any, **more: Any) -> Any:
        """Return the options; with --json - print the numbers to stdout and all other output to stderr."""
        chosen = super().parse_args(*given, **more)
        chosen.stdout = sys.stdout
        if chosen.json == "-":
            sys.stdout = sys.stderr
        chosen.device = str(
            gi.default_device() if chosen.device is None else gi.device(chosen.device)
        )
        chosen.quick |= chosen.device == "cpu" and not self.on_host
        return chosen


parser = Options


class Call(NamedTuple):
    """One contender: the function to call, and a function that waits for all work that it has queued."""

    body: Callable[[], Any]
    wait: Callable[[], Any]
    events: bool = True  # whether events on gpuinterop's stream enclose its work
    per: int = 1  # the number of steps of one call
    share: float = 1.0  # of a loop's steps: less for calls that take a thousand times as long


def peers(
    options: argparse.Namespace, names: tuple[str, ...] = ("torch", "cupy", "jax")
) -> dict[str, Any]:
    """Return the libraries that work on this device, and print a line for each that does not."""
    found, absent = libraries_on(options.device, () if options.alone else names)
    for name, why in absent.items():
        print(f"without {name}: {why}", flush=True)
    return found


def jax_call(jax: Any, function: Callable[..., Any], *arguments: Any) -> Call:
    """Return a call of JAX, which waits for its last result."""
    call = JaxCall(jax, function, *arguments)
    return Call(call, call.wait, events=False)


@contextlib.contextmanager
def optional(libraries: dict[str, Any], name: str, row: str) -> Iterator[Any]:
    """Prepare another library's calls, and print a line if that fails. The library is None if it is missing."""
    try:
        yield libraries.get(name)
    except Exception as error:  # whatever a library raises
        if name in libraries:
            print(f"{row}: without {name}, {first_line(error)}", flush=True)


class Benchmark:
    """Rows of contenders, printed as one table when `finish` is called.

    `figure` selects the figure of the rows, "median" or "best" of the turns; `picture` the way in which
    ``pictures`` draws them.
    """

    def __init__(
        self, name: str, unit: str, options: argparse.Namespace, *, figure: str = "median",
        picture: str = "points",
    ) -> None:  # fmt: skip
        self.name, self.unit, self.options = name, unit, options
        self.figure, self.picture = figure, picture
        self.on_host = options.device == "cpu"
        self.rows: dict[str, dict[str, float]] = {}
        self.best: dict[str, dict[str, float]] = {}
        self.marks: dict[str, float] = {}
        self.failed = False
        self.began = time.perf_counter()

    @property
    def lower_is_better(self) -> bool:
        return "/s" not in self.unit

    # ---- measuring --------------------------------------------------------------------------------

    def usable(self, row: str, calls: dict[str, Call]) -> dict[str, Call]:
        """Return the contenders whose first call succeeds."""
        found = {}
        for who, call in calls.items():
            try:
                for _ in range(3):
                    call.body()
                call.wait()
            except Exception as error:
                print(f"{row}: {who} skipped, {first_line(error)}", flush=True)
                self.failed |= who.startswith(GPUINTEROP)
            else:
                found[who] = call
        return found

    def loop(
        self, row: str, calls: dict[str, Call], *, count: int = 1000, mark: float | None = None,
        turns: int = 7,
    ) -> None:  # fmt: skip
        """Measure the microseconds of a step in loops of `count` steps with a wait at the end."""
        count, turns = (3, 1) if self.options.quick else (count, turns)
        calls = self.usable(row, calls)
        times: dict[str, list[float]] = {who: [] for who in calls}
        # A first turn, which is discarded, raises the processor's clock and fills its caches for all contenders.
        for turn in range(turns + 1):
            for who, call in calls.items():
                repeats = max(1, round(count * call.share / call.per))
                seconds = seconds_of(call.body, call.wait, repeats)
                if turn:
                    times[who].append(seconds / call.per)
        self.keep(row, {who: [1e6 * t for t in found] for who, found in times.items()}, mark)

    def device(
        self, row: str, calls: dict[str, Call], *, moved: float | dict[str, float] | None = None,
        budget: float = 0.3, mark: float | None = None,
    ) -> None:  # fmt: skip
        """Measure the time on the device by events around a few calls: GB/s, or microseconds.

        `moved` are the bytes that move, for all contenders or for each.
        """
        turns = 1 if self.options.quick else 9
        calls = self.usable(row, calls)
        counts = {}
        for who, call in calls.items():
            once = max(self._timed(call, 1), 1e-6)
            counts[who] = 1 if self.options.quick else int(min(200, max(1, budget / turns / once)))
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _ in range(turns):
            for who, call in calls.items():
                times[who].append(self._timed(call, counts[who]))
        figures = {}
        for who, found in times.items():
            size = moved[who] if isinstance(moved, dict) else moved
            figures[who] = [1e6 * t if size is None else size / t / 1e9 for t in found]
        self.keep(row, figures, mark)

    def _timed(self, call: Call, count: int) -> float:
        if self.on_host or not call.events:
            return seconds_of(call.body, call.wait, count)
        start, end = gi.Event(timing=True), gi.Event(timing=True)
        start.record()
        for _ in range(count):
            call.body()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)), 1e-6) / 1e3 / count

    def keep(self, row: str, turns: dict[str, list[float]], mark: float | None = None) -> None:
        """Enter the figures of all turns, in the benchmark's unit."""
        best = min if self.lower_is_better else max
        self.best.setdefault(row, {}).update({who: best(found) for who, found in turns.items()})
        chosen = {"median": statistics.median, "best": best}[self.figure]
        values = {who: chosen(found) for who, found in turns.items()}
        self.rows.setdefault(row, {}).update(values)
        if mark is not None:
            self.marks[row] = mark
        print(f"{row}: " + ", ".join(f"{w} {v:.2f}" for w, v in values.items()), flush=True)

    # ---- output -------------------------------------------------------------------------------------

    def verdict(self, row: str) -> str:
        """Return the target of a row, and whether the first figure of gpuinterop reaches it."""
        mark = self.marks.get(row)
        own = next((v for who, v in self.rows[row].items() if who.startswith(GPUINTEROP)), None)
        if mark is None or own is None or self.options.quick:
            return ""
        reached = own <= mark if self.lower_is_better else own >= mark
        return f"{mark:.3g} {'reached' if reached else 'MISSED'}"

    def finish(self) -> None:
        """Print the table, write the requested files, and fail if a gpuinterop call failed."""
        seconds = time.perf_counter() - self.began
        print(f"\n{self.name} on {self.options.device}, {self.figure}, {seconds:.0f} s")
        columns = list(dict.fromkeys(who for row in self.rows.values() for who in row))
        (self._listing if self.picture == "routes" else self._table)(columns)
        record = self.record(seconds)
        text = json.dumps(record, indent=1) + "\n"
        if self.options.json == "-":
            self.options.stdout.write(text)
        elif self.options.json:
            Path(self.options.json).write_text(text, encoding="utf-8")
        if self.options.plot:
            pictures.draw(record, self.options.plot)
        if self.failed:
            sys.exit("a call of gpuinterop failed: see above")

    def _table(self, columns: list[str]) -> None:
        width = max([len(row) for row in self.rows] + [len(self.unit) + 3])
        print(f"{self.unit:{width}}" + "".join(f"{c:>14}" for c in columns) + "   mark")
        for name, row in self.rows.items():
            cells = "".join(f"{row[c]:14.2f}" if c in row else f"{'-':>14}" for c in columns)
            print(f"{name:{width}}{cells}   {self.verdict(name)}".rstrip())

    def _listing(self, columns: list[str]) -> None:
        """Print the contenders below each other, for rows with different contenders."""
        width = max(len(c) for c in columns) + 2
        for name, row in self.rows.items():
            verdict = self.verdict(name)
            print(f"{name}" + (f"   mark {verdict}" if verdict else ""))
            for who, value in row.items():
                print(f"  {who:{width}}{value:10.3f} {self.unit}")

    def record(self, seconds: float) -> dict[str, Any]:
        """Return all measurements, and the machine and versions.

        `rows` has the figures by row and contender, `best` the best of all turns, `marks` the targets of
        gpuinterop's figures.
        """
        return {
            "schema": SCHEMA,
            "name": self.name,
            "unit": self.unit,
            "figure": self.figure,
            "picture": self.picture,
            "quick": self.options.quick,
            "device": self.options.device,
            "gpu": "" if self.on_host else gpu_name(),
            "processor": processor(),
            "versions": versions(),
            "commit": commit(),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "seconds": round(seconds, 1),
            "rows": self.rows,
            "best": self.best,
            "marks": self.marks,
        }


def processor() -> str:
    """Return the name of the processor, or its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of Python, gpuinterop, and the libraries that took part."""
    found = {"python": platform.python_version(), "gpuinterop": gi.__version__}
    for name in ("numpy", "torch", "cupy", "jax", "numba", "pycuda", "tvm_ffi", "cuda.core"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if name == "pycuda" and name in sys.modules:
            version = importlib.import_module("pycuda").VERSION_TEXT
        if version:
            found[name] = str(version)
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda:
        found["CUDA of torch"] = torch.version.cuda
    return found


def commit() -> str:
    """Return the commit that was measured; GPUINTEROP_COMMIT names it for sources without their history."""
    text = os.environ.get("GPUINTEROP_COMMIT")
    if text is not None:
        return text
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent,
            capture_output=True, text=True, check=False, timeout=20,
        ).stdout.partition("\n")[0]  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""


def gpu_name() -> str:
    """Return the name and the driver of the first GPU, or "" if they cannot be read."""
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=20,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""

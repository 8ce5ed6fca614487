"""What the benchmarks share: options, contenders that take turns, a table, JSON and a picture.

A contender that is not installed, or fails when it is first called, costs a line and its column, never
the run. On device "cpu" everything runs on the host with the host's clock: no measurement, but a way
to see that a benchmark still works.
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
from pathlib import Path
from typing import Any, NamedTuple

import gpuinterop as gi

# JAX would take most of the device's memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

OURS = "gpuinterop"


def parser(doc: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    made = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    made.add_argument("--device", default="cuda:0", help='"cpu" only shows that it runs')
    made.add_argument("--json", type=Path, metavar="FILE", help="where to write all numbers")
    made.add_argument("--plot", type=Path, metavar="PNG", help="draw a picture (needs [viz])")
    made.add_argument("--quick", action="store_true", help="small sizes, few repeats")
    made.add_argument("--alone", action="store_true", help="without the other libraries")
    return made


class Call(NamedTuple):
    """One contender: what to call, and how to wait for all that it has queued."""

    body: Callable[[], Any]
    wait: Callable[[], Any]
    events: bool = True  # whether our stream's events enclose its work


def _torch(device: str) -> Any:
    torch = importlib.import_module("torch")
    if device != "cpu" and not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    return torch


def _cupy(device: str) -> Any:
    cupy = importlib.import_module("cupy")
    if device == "cpu" or not cupy.is_available():
        raise RuntimeError("CuPy sees no GPU")
    return cupy


def _jax(device: str) -> Any:
    jax = importlib.import_module("jax")
    if device != "cpu" and jax.default_backend() != "gpu":
        raise RuntimeError(f"JAX runs on {jax.default_backend()}")
    return jax


def peers(
    options: argparse.Namespace, names: tuple[str, ...] = ("torch", "cupy", "jax")
) -> dict[str, Any]:
    """The libraries that work on this device; a line for each that does not."""
    device, found = options.device, {}
    for name in () if options.alone else names:
        try:
            found[name] = {"torch": _torch, "cupy": _cupy, "jax": _jax}[name](device)
        except Exception as error:  # whatever a broken installation raises
            print(f"without {name}: {_line(error)}", flush=True)
    return found


def waiting(libraries: dict[str, Any], device: str) -> dict[str, Callable[[], Any]]:
    """How each library's own queue is waited for."""
    found: dict[str, Callable[[], Any]] = {OURS: lambda: gi.synchronize(device)}
    if "torch" in libraries:
        found["torch"] = libraries["torch"].cuda.synchronize if device != "cpu" else lambda: None
    if "cupy" in libraries:
        found["cupy"] = libraries["cupy"].cuda.get_current_stream().synchronize
    return found


def jax_call(jax: Any, function: Callable[..., Any], *arguments: Any) -> Call:
    """JAX queues on streams of its own: its last result is what can be waited for."""
    last: list[Any] = [None]

    def body() -> None:
        last[0] = function(*arguments)

    return Call(body, lambda: jax.block_until_ready(last[0]), events=False)


@contextlib.contextmanager
def optional(libraries: dict[str, Any], name: str, row: str) -> Iterator[Any]:
    """Prepare a peer's calls: what fails inside costs a line. The peer is None where it is missing."""
    try:
        yield libraries.get(name)
    except Exception as error:  # whatever a library raises
        if name in libraries:
            print(f"{row}: without {name}, {_line(error)}", flush=True)


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:120] if text else ''}"


class Benchmark:
    """Rows of contenders, printed as one table when `finish` is called."""

    def __init__(self, name: str, unit: str, options: argparse.Namespace) -> None:
        self.name, self.unit, self.options = name, unit, options
        self.on_host = gi.devices.device(options.device).type == "cpu"
        self.rows: dict[str, dict[str, float]] = {}
        self.marks: dict[str, float] = {}
        self.failed = False
        self.began = time.perf_counter()

    @property
    def lower_is_better(self) -> bool:
        return "/s" not in self.unit

    # ---- measuring --------------------------------------------------------------------------------

    def usable(self, row: str, calls: dict[str, Call]) -> dict[str, Call]:
        """Those that survive a first call."""
        found = {}
        for who, call in calls.items():
            try:
                for _ in range(3):
                    call.body()
                call.wait()
            except Exception as error:
                print(f"{row}: {who} left out, {_line(error)}", flush=True)
                self.failed |= who.startswith(OURS)
            else:
                found[who] = call
        return found

    def loop(
        self, row: str, calls: dict[str, Call], *, count: int = 1000, per: float = 1.0,
        mark: float | None = None,
    ) -> None:  # fmt: skip
        """Microseconds of a call in a loop that is waited for at its end, best of all turns.

        `per` is how many steps one call does.
        """
        count, turns = (3, 1) if self.options.quick else (count, 7)
        calls = self.usable(row, calls)
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _ in range(turns):
            for who, call in calls.items():
                call.wait()
                begin = time.perf_counter()
                for _ in range(count):
                    call.body()
                call.wait()
                times[who].append((time.perf_counter() - begin) / count / per)
        self._keep(row, {who: 1e6 * statistics.median(t) for who, t in times.items()}, mark)

    def device(
        self, row: str, calls: dict[str, Call], *, moved: float | None = None, budget: float = 0.3,
        mark: float | None = None,
    ) -> None:  # fmt: skip
        """Time on the device by events around a few calls: GB/s of `moved` bytes, or microseconds."""
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
        middle = {who: statistics.median(t) for who, t in times.items()}
        self._keep(
            row, {w: 1e6 * t if moved is None else moved / t / 1e9 for w, t in middle.items()}, mark
        )

    def _timed(self, call: Call, count: int) -> float:
        if self.on_host or not call.events:
            call.wait()
            begin = time.perf_counter()
            for _ in range(count):
                call.body()
            call.wait()
            return (time.perf_counter() - begin) / count
        start, end = gi.Event(timing=True), gi.Event(timing=True)
        start.record()
        for _ in range(count):
            call.body()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)), 1e-6) / 1e3 / count

    def _keep(self, row: str, values: dict[str, float], mark: float | None) -> None:
        self.rows.setdefault(row, {}).update(values)
        if mark is not None:
            self.marks[row] = mark
        print(f"{row}: " + ", ".join(f"{w} {v:.2f}" for w, v in values.items()), flush=True)

    # ---- telling ------------------------------------------------------------------------------------

    def verdict(self, row: str) -> str:
        """How we stand beside the mark."""
        mark, ours = self.marks.get(row), self.rows[row].get(OURS)
        if mark is None or ours is None or self.on_host or self.options.quick:
            return ""
        reached = ours <= mark if self.lower_is_better else ours >= mark
        return f"{mark:g} {'reached' if reached else 'MISSED'}"

    def finish(self) -> None:
        """Print the table, write the files asked for, and fail if one of our own calls did."""
        columns = list(dict.fromkeys(who for row in self.rows.values() for who in row))
        width = max([len(row) for row in self.rows] + [len(self.name) + len(self.unit) + 3])
        seconds = time.perf_counter() - self.began
        print(f"\n{self.name} on {self.options.device}, {seconds:.0f} s")
        print(f"{self.unit:{width}}" + "".join(f"{c:>14}" for c in columns) + "   mark")
        for name, row in self.rows.items():
            cells = "".join(f"{row[c]:14.2f}" if c in row else f"{'-':>14}" for c in columns)
            print(f"{name:{width}}{cells}   {self.verdict(name)}".rstrip())
        if self.options.json:
            self.options.json.write_text(json.dumps(self.record(seconds), indent=1) + "\n")
        if self.options.plot:
            plot(self.options.plot, f"{self.name} ({self.unit})", self.rows, self.marks)
        if self.failed:
            sys.exit("a call of gpuinterop failed: see above")

    def record(self, seconds: float) -> dict[str, Any]:
        """Everything measured, and on what."""
        return {
            "name": self.name,
            "unit": self.unit,
            "gpu": gpu_name(),
            "python": platform.python_version(),
            "seconds": round(seconds, 1),
            "rows": self.rows,
            "marks": self.marks,
        }


def gpu_name() -> str:
    """Name and driver of the GPU, "" where nothing tells."""
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=20,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""


def plot(
    path: Path, title: str, rows: dict[str, dict[str, float]], marks: dict[str, float]
) -> None:
    """A group of bars for each row, each row on a scale of its own: its best bar is full."""
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        print('no picture: matplotlib is missing (pip install "gpuinterop[viz]")')
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    columns = list(dict.fromkeys(who for row in rows.values() for who in row))
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.22 * len(rows) * (len(columns) + 1)))
    height = 0.85 / len(columns)
    for j, who in enumerate(columns):
        for i, (name, row) in enumerate(rows.items()):
            if who not in row:
                continue
            full = max([*row.values(), marks.get(name, 0.0)])
            axes.barh(i + j * height, row[who] / full, height, color=f"C{j}",
                      label=who if name == next(r for r in rows if who in rows[r]) else None)  # fmt: skip
            axes.text(row[who] / full, i + j * height, f" {row[who]:.4g}", va="center", fontsize=7)
    for i, name in enumerate(rows):
        if name in marks:
            at = marks[name] / max([*rows[name].values(), marks[name]])
            axes.plot([at, at], [i - height / 2, i + 0.85 - height / 2], "k:", linewidth=1)
    axes.set_yticks([i + 0.4 for i in range(len(rows))], list(rows))
    axes.set_xticks([])
    axes.set_xlim(0, 1.12)
    axes.set_ylim(len(rows), -0.3)
    axes.set_title(title + ("; dotted: the mark" if marks else ""))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=4, frameon=False)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)
    print(f"drawn: {path}")

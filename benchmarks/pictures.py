"""Pictures of benchmark records as SVG: ``pictures.py RECORD.json PICTURE.svg`` draws one.

gpuinterop is blue and the other libraries are grey. Every bar has its name, and lines differ in their dashes, so that
the pictures do not depend on colour.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinterop.drawing.chart import LEFT, bars, heading, round_step

GPUINTEROP = "gpuinterop"
# The contenders in the order of tables and legends.
ORDER = (
    GPUINTEROP, "torch", "cupy", "jax", "numpy", "torch graph", "torch.compile",
    *(f"{GPUINTEROP}, {n} threads".replace("1 threads", "1 thread") for n in (1, 2, 4, 8)), f"{GPUINTEROP}, pinned",
    "floor",
)  # fmt: skip
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 5", "1 2")
Line = Sequence[tuple[float, float]]
AXIS, PLOT, HEIGHT = 58, 560, 200  # the width of an axis' numbers, and the size of a plot
UNITS = {"us": "microseconds", "ms": "milliseconds"}


def note_of(unit: str, after: str = "") -> str:
    """Return the line below a title: the unit, and which direction is better."""
    return f"{UNITS.get(unit, unit)}{after}, {'more' if '/s' in unit else 'less'} is better"


def lines(title: str, note: str, panels: Mapping[str, Mapping[str, Line]], *, rate: bool) -> str:
    """Return a picture of lines over sizes, which are powers of two: rates from zero, times on a logarithmic axis."""
    every = [point for panel in panels.values() for line in panel.values() for point in line]
    canvas, y = heading(title, note, {})
    who = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    style = {}
    for own in (True, False):
        for name, dashes in zip(
            (n for n in who if n.startswith(GPUINTEROP) is own), DASHES, strict=False
        ):
            style[name] = ("own", 2.6, dashes) if own else ("line", 1.6, dashes)
    x = LEFT
    for name in who:
        canvas.line([(x, y + 16), (x + 34, y + 16)], *style[name])
        canvas.text(x + 40, y + 20, name, size=12)
        x += 62 + len(name) * 7.3
    for name, panel in panels.items():
        canvas.text(LEFT, y + 48, name, size=12, bold=True)
        place = _axes(canvas, y + 58, every, rate)
        for contender, line in panel.items():
            canvas.line([place(*point) for point in sorted(line)], *style[contender])
        y += HEIGHT + 64
    canvas.text(LEFT + AXIS + PLOT + 20, y, "", size=11)  # room for the last size
    return str(canvas)


def _axes(canvas: Any, top: float, every: Line, rate: bool) -> Any:
    """Draw the axes of a plot; return the function that places a point."""
    first, last = (round(math.log2(edge(x for x, _ in every))) for edge in (min, max))
    values = [y for _, y in every]
    if rate:
        step = round_step(max(values) / 4)
        marks = [i * step for i in range(math.ceil(max(values) / step) + 1)]
        scale = float
    else:
        powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
        marks, scale = [10.0**k for k in powers], math.log10
    low, high = scale(marks[0]), scale(marks[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - first) / max(1, last - first)
        return LEFT + AXIS + PLOT * across, top + HEIGHT * (1 - (scale(y) - low) / (high - low))

    for mark in marks:
        x, y = place(2.0**first, mark)
        canvas.line([(x, y), (x + PLOT, y)], "gap")
        canvas.text(x - 6, y + 4, f"{mark:,g}", "note", size=11, anchor="end")
    for power in range(first, last + 1, max(1, (last - first) // 7)):
        x, y = place(2.0**power, marks[0])
        name = f"2^{power}"
        if rate:  # sizes in bytes
            name = f"{2 ** (power % 10)} {('B', 'KiB', 'MiB', 'GiB')[power // 10]}"
        canvas.text(x, y + 16, name, "note", size=11, anchor="middle")
    return place


def grid(title: str, note: str, cells: Mapping[tuple[str, str], float]) -> str:
    """Return a table of ratios: dark blue from 2, light blue from 1.05, orange below 0.95."""
    names, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    canvas, y = heading(
        title, note, {n: {c: cells[n, c] for c in columns if (n, c) in cells} for n in names}
    )
    left = LEFT + 8 + max(map(len, names)) * 7.3
    for i, column in enumerate(columns):
        canvas.text(left + 44 + 88 * i, y + 18, column, "note", size=12, anchor="middle")
    y += 26
    for name in names:
        canvas.text(left - 8, y + 15, name, size=12, anchor="end")
        for i, column in enumerate(columns):
            if (value := cells.get((name, column))) is not None:
                fill, words = (
                    ("#0072b2", "#ffffff") if value >= 2 else ("#b3d7ee", "#1f2933") if value >= 1.05
                    else ("card", "text") if value >= 0.95 else ("#f0b45c", "#1f2933")
                )  # fmt: skip
                canvas.box(left + 88 * i, y, 86, 20, fill, round_=0, edge=False)
                canvas.text(
                    left + 43 + 88 * i, y + 14, f"{value:.2f}", words, size=11, anchor="middle"
                )
        y += 22
    return str(canvas)


def panels(record: dict[str, Any]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the lines of the rows "operation, 2^k", by operation and contender."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, row in record["rows"].items():
        if word := re.fullmatch(r"(.*), (?:2\^(\d+)|(\d+))", name):
            size = 2.0 ** int(word[2]) if word[2] else float(word[3])
            for who, value in row.items():
                found.setdefault(word[1], {}).setdefault(who, []).append((size, value))
    return found


def ratios(record: dict[str, Any]) -> dict[tuple[str, str, str], float]:
    """Return for each row "operation, dtype, size" gpuinterop's rate divided by that of the fastest other library."""
    found = {}
    for name, row in record["rows"].items():
        operation, dtype, size = name.rsplit(", ", 2)
        others = [rate for who, rate in row.items() if who != GPUINTEROP] or [row[GPUINTEROP]]
        found[operation, dtype, size] = row[GPUINTEROP] / max(others)
    return found


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw all rows of a record."""
    title = (
        f"{record['name']}, {record['gpu'].partition(',')[0] or record['device']}, {record['date']}"
    )
    note = note_of(record["unit"])
    if record["picture"] == "lines":
        text = lines(title, note, panels(record), rate="/s" in record["unit"])
    elif record["picture"] == "grid":
        cells = {(a, f"{b}, {c.split(' ')[0]}"): v for (a, b, c), v in ratios(record).items()}
        text = grid(title, "gpuinterop's rate divided by that of the fastest other library", cells)
    else:
        text = bars(title, note, record["rows"])
    path.write_text(text, encoding="utf-8")
    print(f"drawn: {path}")


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))

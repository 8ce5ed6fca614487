"""Bars from zero for figures of one unit, as SVG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping

from gpuinterop.drawing.svg import WIDTH_OF_LETTER, Canvas

LEFT, WIDTH = 14, 400  # of the picture's content, and of the longest bar, in pixels
BAR, STEP, HEAD = 11, 15, 24  # the heights of a bar, of a line with a bar, and of a group's title


def figure(value: float | None) -> str:
    """Return a value with about three digits, or "" for None."""
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f}"


def heading(title: str, note: str, rows: Mapping[str, Mapping[str, float]]) -> tuple[Canvas, float]:
    """Return a picture with its title, and the place below; the figures of the rows are read aloud."""
    told = "; ".join(
        f"{name}: {', '.join(f'{who} {figure(value)}' for who, value in row.items())}"
        for name, row in rows.items()
    )
    canvas, y = Canvas(title, f"{note}. {told}"), 30.0
    for line in textwrap.wrap(title, 66):
        canvas.text(LEFT, y, line, size=15, bold=True)
        y += 20
    canvas.text(LEFT, y, note, "note", size=12)
    return canvas, y + 6


def bars(
    title: str, note: str, rows: Mapping[str, Mapping[str, float]], own: str = "gpuinterop"
) -> str:
    """Return a picture with a group of bars for each row; names that start with `own` have a colour.

    `note` names the unit and says whether more is better.

    Examples
    --------
    >>> from gpuinterop.drawing.chart import bars
    >>> text = bars("Half the time", "microseconds, less is better", {"x + y": {"gpuinterop": 1, "NumPy": 2}})
    >>> text.startswith("<svg ") and "2.00" in text
    True
    """
    canvas, y = heading(title, note, rows)
    every = [value for row in rows.values() for value in row.values()]
    step = round_step(max(every, default=1) / 5)
    end = step * max(1, math.ceil(max(every, default=1) / step))
    names = [who for row in rows.values() for who in row]
    zero = LEFT + 10 + max(map(len, names), default=0) * 12 * WIDTH_OF_LETTER
    top, shapes = y + 8, len(canvas.shapes)
    for name, row in rows.items():
        y += HEAD
        canvas.text(LEFT, y - 5, name, size=12, bold=True)
        for who, value in row.items():
            length, colour = WIDTH * value / end, "own" if who.startswith(own) else "other"
            canvas.text(zero - 6, y + BAR - 1, who, "note", size=12, anchor="end")
            canvas.box(zero, y, max(length, 0.5), BAR, colour, round_=0, edge=False)
            canvas.text(zero + length + 5, y + BAR - 1, figure(value), size=11)
            y += STEP
    y += 8
    grid = Canvas("", "")
    for i in range(round(end / step) + 1):
        x = zero + WIDTH * i * step / end
        grid.line([(x, top), (x, y)], "gap")
        canvas.text(x, y + 14, f"{i * step:,g}", "note", size=11, anchor="middle")
    canvas.shapes[shapes:shapes] = grid.shapes
    canvas.text(zero + WIDTH + 30, y + 14, "", size=11)  # room for the longest bar's figure
    return str(canvas)


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is not less."""
    decade = 10.0 ** math.floor(math.log10(least or 1))
    return next(m * decade for m in (1, 2, 2.5, 5, 10) if m * decade >= least * 0.999)

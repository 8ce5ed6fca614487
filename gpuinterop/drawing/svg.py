"""Write pictures as SVG, without another library. They are legible on light and on dark pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gpuinterop.errors import ArgumentTypeError, short_repr

from .cells import Layout, Picture, draw_cells, words_of_axes

# The colours on a light page and on a dark one. The first is an attribute, for readers that ignore style sheets.
COLOURS = {
    "page": ("#ffffff", "#1b1e23"),
    "card": ("#f3f5f8", "#262b33"),
    "line": ("#5b6775", "#a9b4c0"),
    "text": ("#1f2933", "#e6eaef"),
    "note": ("#52606d", "#b4bec9"),
    "gap": ("#d5dae0", "#4a525c"),
    "own": ("#0072b2", "#4fb0e8"),
    "other": ("#a5adb7", "#78828e"),
    "fault": ("#c0262d", "#ff8a80"),
    "good": ("#1f7a3d", "#7fd69b"),
    "edge": ("#8793a0", "#6b7683"),
}
# From the first element of a view to its last. Readers who see few colours still see light become dark.
RAMP = ((255, 224, 130), (64, 190, 160), (58, 82, 170))
MARGIN = 14
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
WIDTH_OF_LETTER = 0.605  # of the font size


def picture_file(
    file: str | os.PathLike[str], where: str, expected: str = "a name that ends in .svg",
    *, also: str = "",
) -> Path:  # fmt: skip
    """Return the path of a file for a picture; another suffix than .svg, none and `also` raises."""
    path = Path(file)
    if path.suffix.lower() not in (".svg", "", also):
        raise ArgumentTypeError(where=where, expected=expected, got=short_repr(path.name),
                                fix=f"write {path.with_suffix('.svg').name}")  # fmt: skip
    return path


def ramp(part: float) -> tuple[str, str]:
    """Return the colour of an element and that of text on it; `part` is 0 for the first element, 1 for the last."""
    low, high, within = (*RAMP[:2], part * 2) if part < 0.5 else (*RAMP[1:], part * 2 - 1)
    rgb = [round(a + (b - a) * within) for a, b in zip(low, high, strict=True)]
    light = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 128
    return "#" + "".join(f"{c:02x}" for c in rgb), "#1f2933" if light else "#ffffff"


class Canvas:
    """Collects shapes, measured in pixels, and grows to hold them. `title` and `description` are read aloud."""

    def __init__(self, title: str, description: str) -> None:
        self.title, self.description = title, description
        self.shapes: list[str] = []
        self.width = self.height = 0.0

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "card",
        *, round_: float = 6, dashed: bool = False, edge: bool = True,
    ) -> None:  # fmt: skip
        """Draw a rectangle; `fill` is a name of `COLOURS` or a colour."""
        self._reach(x + width, y + height)
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}"'
            f"{_colour('fill', fill)}{_edge() if edge else ''}{dashes}/>"
        )

    def text(
        self, x: float, y: float, words: str, colour: str = "text",
        *, size: float = 13, anchor: str = "start", bold: bool = False,
    ) -> None:  # fmt: skip
        """Write a line of text on the base line `y`."""
        wide = len(words) * size * WIDTH_OF_LETTER
        self._reach(x + wide * {"start": 1, "middle": 0.5, "end": 0}[anchor], y + size * 0.4)
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        weight = ' font-weight="bold"' if bold else ""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{place}{weight}{_colour("fill", colour)}>'
            f"{escape(words)}</text>"
        )

    def badge(self, x: float, y: float, words: str, colour: str) -> None:
        """Write a short text at a point, on a disk that keeps it legible above other shapes."""
        self.shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="7"{_colour("fill", "page")}/>')
        self.text(x, y + 4, words, colour, size=11, anchor="middle", bold=True)

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, width: float = 1, dashes: str = ""
    ) -> None:
        """Draw a line through the points."""
        for point in points:
            self._reach(*point)
        path = "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.shapes.append(
            f'<path d="M{path}" fill="none" stroke-width="{width:g}"{_colour("stroke", colour)}{style}/>'
        )

    def arrow(
        self, x: float, y: float, to_x: float, to_y: float, colour: str = "line",
        *, by: tuple[float, float] | None = None, dashes: str = "",
    ) -> None:  # fmt: skip
        """Draw an arrow, bent towards the point `by`."""
        self._reach(max(x, to_x), max(y, to_y))
        from_x, from_y = by or (x, y)
        length = ((to_x - from_x) ** 2 + (to_y - from_y) ** 2) ** 0.5 or 1
        u, v = (to_x - from_x) / length * 7, (to_y - from_y) / length * 7
        bend = f"Q{from_x:g} {from_y:g} " if by else "L"
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.shapes.append(
            f'<path d="M{x:g} {y:g}{bend}{to_x - u:.4g} {to_y - v:.4g}" fill="none" stroke-width="1.7"'
            f"{_colour('stroke', colour)}{style}/>"
            f'<path d="M{to_x:.4g} {to_y:.4g}L{to_x - u - v / 2:.4g} {to_y - v + u / 2:.4g} '
            f'{to_x - u + v / 2:.4g} {to_y - v - u / 2:.4g}Z"{_colour("fill", colour)}/>'
        )

    def cell(
        self, x: float, y: float, width: float, height: float, words: str, part: float | None, below: str = ""
    ) -> None:  # fmt: skip
        """Draw a cell of memory with the element at `part` of the view; None is a gap."""
        fill, colour = ("gap", "note") if part is None else ramp(part)
        self.box(x, y, width, height, fill, round_=2)
        for line, size, middle in ((words, 12.0, 0.36 if below else 0.5), (below, 9.0, 0.78)):
            if line:
                fitting = min(size, (width - 2) / len(line) / WIDTH_OF_LETTER)
                base = y + height * middle + fitting * 0.36
                self.text(
                    x + width / 2, base, line, colour, size=round(fitting, 1), anchor="middle"
                )

    def __str__(self) -> str:
        width, height = round(self.width + MARGIN), round(self.height + MARGIN)
        dark = "".join(
            f".gi-{name}-{what}{{{what}:{pair[1]}}}"
            for name, pair in COLOURS.items()
            for what in ("fill", "stroke")
            if f"gi-{name}-{what}" in "".join(self.shapes) or (name, what) == ("page", "fill")
        )
        title, description = escape(self.title), escape(self.description)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" style="max-width:100%;height:auto" role="img" aria-label="{title}" '
            f'font-family="{FONT}">\n'
            f"<title>{title}</title>\n<desc>{description}</desc>\n"
            f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>\n"
            f'<rect width="{width}" height="{height}" rx="8"{_colour("fill", "page")}/>\n'
            + "\n".join(self.shapes)
            + "\n</svg>\n"
        )


def _colour(what: str, name: str) -> str:
    pair = COLOURS.get(name)
    return f' {what}="{name}"' if pair is None else f' class="gi-{name}-{what}" {what}="{pair[0]}"'


def _edge() -> str:
    return f' stroke="{COLOURS["edge"][0]}"'


# ---- memory -------------------------------------------------------------------------------------

COLUMNS, WIDEST, HEIGHT = 16, 720, 28


def draw_memory(
    title: str, facts: list[str], layout: Layout, verdict: list[str], fault_axis: int | None, shared: bool
) -> str:  # fmt: skip
    """Return the SVG of the memory of an array."""
    picture = draw_cells(layout, min(COLUMNS, int(WIDEST / _width_of_cell(layout))))
    axes = list(words_of_axes(layout, [step.axis for step in picture.steps]))
    c = Canvas(title, ". ".join([*facts, *(line for _, line in axes), *verdict]))
    c.text(MARGIN, 28, title, bold=True)
    for i, fact in enumerate(facts):
        c.text(MARGIN, 48 + 18 * i, fact, "note", size=12)
    y = 60.0 + 18 * (len(facts) - 1)
    if picture.rows:
        y = _draw_rows(c, layout, picture, y, fault_axis)
    else:
        c.text(MARGIN, y + 16, "no cells: the array is empty", "note")
    notes = [*picture.notes, *(["grey: no element of the array"] if picture.gaps else [])]
    lines = [(line, "fault" if axis == fault_axis else "note") for axis, line in axes]
    lines += [(line, "note") for line in notes]
    lines += [(line, "good" if shared else "fault") for line in verdict]
    for i, (line, colour) in enumerate(lines):
        c.text(MARGIN, y + 40 + 18 * i, line, colour, size=12)
    return str(c)


def _width_of_cell(layout: Layout) -> float:
    return max(34, 12 * WIDTH_OF_LETTER * layout.width_of_label + 10)


def _draw_rows(
    c: Canvas, layout: Layout, picture: Picture, y: float, fault_axis: int | None
) -> float:
    """Draw the cells and the steps of the axes; return the lower edge."""
    left = MARGIN + 14 + 7.3 * len(f"+{picture.offsets[-1]}")
    width = _width_of_cell(layout)
    order = {number: place for place, number in enumerate(picture.drawn)}
    tops = []
    for row, (cells, offset) in enumerate(zip(picture.rows, picture.offsets, strict=True)):
        arcs = sum(1 for step in picture.steps if step.start[0] == step.end[0] == row)
        y += 16 + 14 * arcs
        tops.append(y)
        c.text(left - 8, y + 18, f"+{offset}", "note", size=12, anchor="end")
        for column, cell in enumerate(cells):
            x = left + column * width
            if cell is None:
                c.cell(x, y, width, HEIGHT, "", None)
                continue
            part = order[cell.number] / max(len(order) - 1, 1)
            below = f"x{cell.elements}" if cell.elements > 1 else ""
            c.cell(x, y, width, HEIGHT, layout.label(cell.number), part, below)
        if picture.cut[row]:
            c.text(left + len(cells) * width + 8, y + 18, "...", "note")
        y += HEIGHT
    _draw_steps(c, picture, left, width, tops, fault_axis)
    return y


def _draw_steps(
    c: Canvas, picture: Picture, left: float, width: float, tops: list[float], fault_axis: int | None
) -> None:  # fmt: skip
    """Draw an arrow for each step: an arc above a row, or from one row to another."""
    arcs: dict[int, int] = {}  # the number of arcs above each row; a longer one is higher
    for step in sorted(picture.steps, key=lambda step: abs(step.start[1] - step.end[1])):
        (row, column), (to_row, to_column) = step.start, step.end
        x, to_x = (left + (place + 0.5) * width for place in (column, to_column))
        y, to_y = tops[row], tops[to_row]
        middle = (x + to_x) / 2, (y + to_y + HEIGHT) / 2
        if row == to_row:
            arcs[row] = arcs.get(row, 0) + 1
            if x == to_x:
                x, to_x = x - 9, x + 9
            bend = middle[0], y - 26 * arcs[row]
            badge = middle[0], y - 13 * arcs[row] - 10
        else:
            y, to_y = (y + HEIGHT, to_y) if row < to_row else (y, to_y + HEIGHT)
            far = 0 if abs(row - to_row) == 1 else width * 1.3  # beside the elements between
            bend = middle[0] + far, middle[1]
            # Beside the arrow, between its row and the next, where no element is.
            part = 8 / abs(to_y - y)
            along = x + 2 * part * (1 - part) * (bend[0] - x) + part * part * (to_x - x)
            badge = along + (11 if to_x < x else -11), y + (8 if y < to_y else -8)
        colour = "fault" if step.axis == fault_axis else "line"
        c.arrow(x, y, to_x, to_y, colour, by=bend)
        c.badge(*badge, str(step.axis), colour)

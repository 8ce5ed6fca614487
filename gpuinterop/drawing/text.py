"""Draw memory as text for a terminal of 80 columns."""

from __future__ import annotations

from .cells import Layout, Picture, draw_cells

WIDTH, MORE = 80, " .."


def draw_rows(layout: Layout) -> tuple[Picture, list[str]]:
    """Return the picture of a layout that fits a terminal, and its lines."""
    shared = any(stride == 0 for _, _, stride in layout.moving())
    wide = layout.width_of_label + (len(f"x{layout.size}") if shared else 0)
    margin = len(f"+{layout.extent} ")
    picture = draw_cells(layout, max((WIDTH - margin - len(MORE)) // (wide + 1), 1))
    lines = []
    for row, (cells, offset) in enumerate(zip(picture.rows, picture.offsets, strict=True)):
        labels = [
            "."
            if c is None
            else layout.label(c.number) + (f"x{c.elements}" if c.elements > 1 else "")
            for c in cells
        ]
        wide = max(wide, *map(len, labels))
        for step in picture.steps:
            (start_row, start), (end_row, end) = step.start, step.end
            if start_row == end_row == row and start != end:
                lines.append(
                    _arrow(
                        margin + start * (wide + 1) + wide // 2,
                        margin + end * (wide + 1) + wide // 2,
                        step.axis,
                    )
                )
        lines.append(
            f"{f'+{offset}':>{margin - 1}} "
            + " ".join(f"{label:>{wide}}" for label in labels)
            + MORE * picture.cut[row]
        )
    return picture, lines


def _arrow(start: int, end: int, axis: int) -> str:
    low, high = sorted((start, end))
    shaft = "-" * (high - low - 1)
    return " " * low + (f"|{shaft}>" if start < end else f"<{shaft}|") + f" axis {axis}"

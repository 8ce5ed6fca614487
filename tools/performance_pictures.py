"""Draw the pictures of docs/reference/performance.md from the records in benchmarks/results."""

from __future__ import annotations

from typing import Any

import performance_page as page
import pictures
from performance_targets import CONVERSIONS

IMAGES = page.ROOT / "docs" / "images"


def drawn(found: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the data of a record's picture: the figures of its table, and the strictest targets."""
    rows, marks = dict(found[name]["rows"]), {}
    if name == "converters":  # its table has rows of two records, and names for readers
        first = {}
        for mark in CONVERSIONS:
            row = found[mark.record]["rows"][mark.row]
            rows.pop(mark.row, None)
            first[plain(mark.title)] = {plain(page.spelt(who)): value for who, value in row.items()}
        rows = first | {title.replace(" -> ", " to "): row for title, row in rows.items()}
    for mark in page.MARKS:
        record = found[mark.record]
        here = page.scaled(mark, record["rows"][mark.row], page.is_rate(record))
        title = plain(mark.title) if mark in CONVERSIONS else mark.row
        if title in rows:
            marks[title] = here[0] if here else mark.value
    return {**found[name], "rows": rows, "marks": marks, "mark": "mark in this run"}


def plain(text: str) -> str:
    return text.replace("`", "")


def stale_pictures() -> list[str]:
    """Return the names of pictures that are missing or drawn from other numbers."""
    found = page.records()
    return [
        name for name in page.PICTURES
        if not (IMAGES / f"{name}.png").is_file()
        or pictures.digest(drawn(found, name)).encode() not in (IMAGES / f"{name}.png").read_bytes()
    ]  # fmt: skip


def draw() -> None:
    found = page.records()
    IMAGES.mkdir(exist_ok=True)
    for name in stale_pictures():
        pictures.draw(drawn(found, name), IMAGES / f"{name}.png")

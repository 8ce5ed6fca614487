"""Print the median and the 90th percentile of the words in a sentence, for each page and for all pages together.

``readability.py [PAGE OR FOLDER...]``: by default docs/ without the decisions, README.md and CHANGELOG.md. Code
blocks, tables and headings do not count. An inline piece of code is one word. A list item ends a sentence. Status 1
means that a page has longer sentences than the limits.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEDIAN, HIGH = 16, 28


def prose(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a page."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.M | re.S)
    lines = [line for line in text.splitlines() if not line.startswith(("#", "|", "!["))]
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines)):
        yield re.sub(r"^\s*(?:[-*]|\d+\.) ", "", " ".join(block.split()))


def sentences(text: str) -> list[int]:
    """Return the number of words of each sentence."""
    lengths = []
    for block in prose(text):
        plain = re.sub(r"`+[^`]+`+", "Code", block)
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain).replace("**", "")
        for sentence in re.split(r"(?<=[.?!])[)\"]*\s+", plain):
            words = re.findall(r"[\w'/.-]*\w[\w'/.-]*", sentence)
            if len(words) > 1:
                lengths.append(len(words))
    return lengths


def scores(lengths: list[int]) -> tuple[float, float]:
    if len(lengths) < 2:
        return (0, 0)
    return statistics.median(lengths), statistics.quantiles(lengths, n=10, method="inclusive")[8]


def pages(arguments: list[str]) -> Iterator[Path]:
    chosen = [Path(one) for one in arguments] or [
        ROOT / name for name in ("docs", "README.md", "CHANGELOG.md")
    ]
    for path in chosen:
        found = sorted(path.rglob("*.md")) if path.is_dir() else [path]
        yield from (p for p in found if not {"adr", "project"} & set(p.parts))


def main(arguments: list[str]) -> int:
    everything: list[int] = []
    long = 0
    print(f"{'page':46} {'words':>6} {'median':>7} {'90 %':>6}")
    for page in pages(arguments):
        lengths = sentences(page.read_text(encoding="utf-8"))
        median, high = scores(lengths)
        too_long = median > MEDIAN or high > HIGH
        long += too_long
        name = (
            str(page.resolve().relative_to(ROOT)) if ROOT in page.resolve().parents else str(page)
        )
        print(f"{name:46} {sum(lengths):6} {median:7.1f} {high:6.1f}{'  long' if too_long else ''}")
        everything += lengths
    median, high = scores(everything)
    print(f"{'all':46} {sum(everything):6} {median:7.1f} {high:6.1f}")
    return int(bool(long))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the docs tests read from a Markdown page: code blocks and links."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The pages of docs/project are made from the files of the root.
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "project"),
    ],
    key=lambda p: p.relative_to(ROOT).as_posix(),
)


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    needs: tuple[
        str, ...
    ]  # words after the language: libraries, or "gpu", without which it cannot run
    text: str
    text_before: str  # what stands between the heading above and the block, other blocks included


def blocks(page: Path) -> list[Block]:
    found, start, info, lines, text_before = [], 0, "", [], []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"```(.*)$", line)
        if fence and not start:
            start, info, lines = number + 1, fence.group(1), []
        elif fence:
            words = info.split() or [""]
            text = "\n".join(lines) + "\n"
            found.append(Block(start, words[0], tuple(words[1:]), text, "\n".join(text_before)))
            text_before += lines
            start = 0
        elif start:
            lines.append(line)
        else:
            text_before = [] if line.startswith("#") else [*text_before, line]
    assert not start, f"{title(page)}: the block at line {start} has no end"
    return found


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.*)$", prose(page), flags=re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }

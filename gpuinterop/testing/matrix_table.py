"""The result of a run as data: cells, JSON in and out, and a drawing in letters.

docs/how-to/test-conversions.md describes the schema, "gpuinterop.matrix/1". A later version has another
number, and `Matrix.from_json` refuses unknown schemas.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

from gpuinterop.errors import ArgumentTypeError, ExchangeError, GpuInteropError

SCHEMA = "gpuinterop.matrix/1"
LETTERS = {"shared": "S", "copied": "C", "refused": "R", "wrong": "W", "none": "-", "": " "}
WIDTH = 160  # of the text, where no terminal is; wider tables are printed in blocks
# A place in the drawing with several cases shows the first of these outcomes that occurs.
_WORST = ("wrong", "refused", "copied", "shared", "none")


@dataclass
class Cell:
    """A case and its outcome; a fault has the name of the check, the expected and the actual value."""

    library: str
    direction: str  # "to" the library or "from" it
    device: str  # "cpu" or "cuda:N"
    layout: str
    dtype: str
    stream: str  # "default", or "side": a slow producer on a side stream
    outcome: str  # "shared", "copied", "refused", "none" or "wrong"
    forecast: str = ""  # the outcome that explain predicted; "" if it was not called
    reason: str = ""
    fix: str = ""
    faults: list[dict[str, str]] = field(default_factory=list)

    def fault(self, check: str, expected: object, got: object) -> None:
        self.faults.append({"check": check, "expected": str(expected), "got": str(got)})

    def expect(self, holds: bool, check: str, expected: object, got: object) -> None:
        if not holds:
            self.fault(check, expected, got)

    def refuse(self, error: GpuInteropError) -> None:
        """Record the reason and the fix of a refusal, and check that no part of its message is missing."""
        for part in ("where", "expected", "got", "fix"):
            present = bool(getattr(error, part))
            self.expect(present, "error", f"a message with its {part}", repr(str(error)))
        self.reason, self.fix = error.expected, error.fix

    def __str__(self) -> str:
        case = f"{self.direction} {self.library}, {self.layout} {self.dtype} on {self.device}"
        lines = [f"{case} ({self.stream} stream): {self.outcome}"]
        lines += [f"  {f['check']}: expected {f['expected']}, got {f['got']}" for f in self.faults]
        return "\n".join(lines)


@dataclass(frozen=True)
class Library:
    """A library of the run. `why` is the reason if it was not tried, otherwise ""."""

    name: str
    version: str = ""
    why: str = ""
    broken: bool = False  # it is installed, but it or its converter cannot be imported


@dataclass(repr=False)
class Matrix:
    """All cases of a run. Prints as a table."""

    cells: list[Cell] = field(default_factory=list)
    libraries: list[Library] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)  # versions and the date

    @property
    def wrong(self) -> list[Cell]:
        """The cases in which a promise was broken."""
        return [cell for cell in self.cells if cell.outcome == "wrong"]

    @property
    def ok(self) -> bool:
        """Whether the run has cases and none is wrong."""
        return bool(self.cells) and not self.wrong

    def select(self, **wanted: str) -> list[Cell]:
        """Return the cells with these values: ``matrix.select(library="torch", layout="reversed")``."""
        known = [f.name for f in fields(Cell)]
        for name in wanted:
            if name not in known:
                raise ArgumentTypeError(where="Matrix.select", expected=f"fields among {', '.join(known)}",
                                        got=f"{name}=...", fix="pass some of these")  # fmt: skip
        return [c for c in self.cells if all(getattr(c, k) == v for k, v in wanted.items())]

    def outcome(self, **wanted: str) -> str:
        """Return the worst outcome of the selected cells, or "" if there are none."""
        return _worst({cell.outcome for cell in self.select(**wanted)})

    # ---- JSON ---------------------------------------------------------------------------------

    def to_json(self, indent: int | None = None) -> str:
        """Return the run as JSON."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=indent)

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file."""
        Path(path).write_text(self.to_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, text: str) -> Matrix:
        """Return the run whose JSON `to_json` wrote.

        Raises
        ------
        ExchangeError
            Not JSON, or JSON of another schema.
        """
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable(f"invalid JSON: {error}") from None
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        if found != SCHEMA:
            raise _unreadable(f"schema {found!r}")
        try:
            cells = [Cell(**row) for row in data["cells"]]
            libraries = [Library(**row) for row in data["libraries"]]
            return cls(cells, libraries, list(data["devices"]), dict(data["about"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(f"a part is missing or unknown: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Matrix:
        """Read a saved run."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise _unreadable(f"invalid text: {error}") from None

    # ---- text ---------------------------------------------------------------------------------

    def _tables(self) -> Iterator[tuple[str, _Grid]]:
        """Return the title and the letters of each table."""
        for place in self.devices:
            tables = {
                ", float32": (self.select(device=place, dtype="float32"), "layout"),
                ", C-contiguous": (self.select(device=place, layout="C"), "dtype"),
                ", a slow producer on a side stream": (
                    self.select(device=place, stream="side"), "layout",
                ),
            }  # fmt: skip
            for title, (cells, column) in tables.items():
                if cells:
                    yield place + title, _letters(cells, column)

    def __repr__(self) -> str:
        return f"<Matrix of {len(self.cells)} cases, {len(self.wrong)} wrong>"

    def __str__(self) -> str:
        """Return tables of layouts and dtypes by libraries, for each device."""
        tables = [line for title, grid in self._tables() for line in (title, _aligned(grid), "")]
        return "\n".join([*tables, self._tail()])

    def _repr_html_(self) -> str:
        """Return the tables and the text around them as HTML, for notebooks."""
        parts = []
        for title, (heads, rows) in self._tables():
            lines = [["", *heads], *([name, *letters] for name, letters in rows.items())]
            body = "".join(
                f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines
            )
            parts.append(f"<table><caption>{escape(title)}</caption>{body}</table>")
        return "".join(parts) + f"<pre>{escape(self._tail())}</pre>"

    def _tail(self) -> str:
        """Return the legend, the number of each outcome, and the wrong cases."""
        counts = {word: sum(c.outcome == word for c in self.cells) for word in LETTERS if word}
        absent = counts.pop("none")
        words = [f"{n} {word}" for word, n in counts.items()]
        parts = [
            "S shared, C copied with copyif=True, R refused, W wrong, - not applicable\n"
            + ", ".join(words + [f"{absent} not applicable"] * bool(absent))
        ]
        untried = [f"{lib.name} ({lib.why})" for lib in self.libraries if lib.why]
        if untried:
            parts.append("not tried: " + ", ".join(untried))
        parts += [str(cell) for cell in self.wrong[:20]]
        if len(self.wrong) > 20:
            parts.append(f"... and {len(self.wrong) - 20} more wrong cases")
        return "\n".join(parts)


def _short(name: str) -> str:
    """Return a column head: a layout, or a dtype as f32, i8, bf16, f8e4; C-order, because C stands for copied."""
    if name in ("C", "F"):
        return f"{name}-order"
    word = re.fullmatch(r"(b?)(float|uint|int|complex)(\d+)(?:_(e\d)\w*)?", name)
    return f"{word[1]}{word[2][0]}{word[3]}{word[4] or ''}" if word else name


def _worst(outcomes: Container[str]) -> str:
    return next((word for word in _WORST if word in outcomes), "")


_Grid = tuple[
    list[str], dict[str, list[str]]
]  # the heads of the columns, and the letters of each row


def _letters(cells: list[Cell], column: str) -> _Grid:
    """Return a row for each library and direction, with a letter for each layout or dtype."""
    columns = list(dict.fromkeys(getattr(c, column) for c in cells))
    found: dict[str, dict[str, set[str]]] = {}
    for c in cells:
        row = found.setdefault(f"{c.direction:4} {c.library}", {})
        row.setdefault(getattr(c, column), set()).add(c.outcome)
    rows = {
        name: [LETTERS[_worst(outcomes.get(c, ()))] for c in columns]
        for name, outcomes in found.items()
    }
    return [_short(name) for name in columns], rows


def _aligned(grid: _Grid) -> str:
    """Return the table as text; of columns that are too many for the terminal, in blocks below each other."""
    heads, rows = grid
    label = max(map(len, rows), default=0)
    blocks: list[list[str]] = []
    most = width = shutil.get_terminal_size((WIDTH, 24)).columns
    for i, head in enumerate(heads):
        width += 1 + len(head)
        if width > most:
            blocks.append([" " * label + " ", *(name.ljust(label) + " " for name in rows)])
            width = label + 2 + len(head)
        column = [head, *(letters[i] for letters in rows.values())]
        blocks[-1] = [
            f"{line} {cell:{len(head)}}" for line, cell in zip(blocks[-1], column, strict=True)
        ]
    return "\n\n".join("\n".join(map(str.rstrip, block)) for block in blocks)


def _unreadable(got: str) -> ExchangeError:
    return ExchangeError(
        where="gpuinterop.testing.Matrix",
        expected=f"JSON of the schema {SCHEMA}",
        got=got,
        fix="write it with this version: python -m gpuinterop matrix --output FILE",
    )

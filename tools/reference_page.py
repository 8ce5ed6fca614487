"""Build docs/reference.md: the programs in tools/reference.md, with tables of names from docstrings."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.elementwise import table as operation_table
from gpuinterop.reduce.table import REDUCTIONS

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "tools" / "reference.md"
OPERANDS = {
    "x": np.array([0.25, 0.5], "float32"),
    "y": np.array([2, -3], "float32"),
    "i": np.array([6, 5]),
    "j": np.array([3, 1]),
    "b": np.array([True, False]),
    "c": np.array([True, True]),
}
SPECIAL = {"arccosh": "1 + x", "isnan": "x / 0 - x / 0", "isinf": "x / 0"}


def summary(thing: Any) -> str:
    """Return the first line of a docstring, for a table cell."""
    line = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return re.sub(r"``?([^`]*)``?", r"`\1`", line).replace("|", "\\|")


def function(name: str) -> Any:
    """Return the function of a top-level name; some modules have the name of the function in them."""
    found = getattr(gi, name)
    return getattr(found, name) if isinstance(found, ModuleType) else found


def names(wanted: list[str]) -> str:
    rows = [f"| `{name}` | {summary(function(name))} |" for name in wanted]
    return "\n".join(["| | |", "| --- | --- |", *rows])


def example(row: operation_table.Row) -> str:
    """Return a call of the operation with operands of `OPERANDS`."""
    if row.name in SPECIAL:
        return f"gi.{row.name}({SPECIAL[row.name]})"
    whole = row.name.startswith("bitwise") or row.name in (
        "gcd",
        "invert",
        "left_shift",
        "right_shift",
    )
    one, two = "ij" if whole else "bc" if row.name.startswith("logical") else "xy"
    return f"gi.{row.name}({one})" if row.inputs == 1 else f"gi.{row.name}({one}, {two})"


def shown(values: Any) -> str:
    if isinstance(values, tuple):
        return ", ".join(shown(v) for v in values)
    return (
        "["
        + ", ".join(v if isinstance(v, str) else f"{v:.4g}" for v in map(plain, values.tolist()))
        + "]"
    )


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, bool) else value + 0


def elementwise() -> str:
    """Return a row for each operation: its names, its description, a call and the result."""
    operands = {name: gi.asarray(value, device="cpu") for name, value in OPERANDS.items()}
    others: dict[str, list[str]] = {}
    for alias, name in operation_table.ALIASES.items():
        others.setdefault(name, []).append(alias)
    lines = ["| | | example | result |", "| --- | --- | --- | --- |"]
    for row in sorted(operation_table.ROWS, key=lambda row: row.name):
        if row.name not in gi.__all__ or row.name in ("where", "clip", "round"):
            continue
        call = example(row)
        with np.errstate(all="ignore"):
            result = shown(eval(call, {"gi": gi}, operands))  # the table's own text
        known = [row.name, *(n for n in sorted(others.get(row.name, [])) if n in gi.__all__)]
        called = ", ".join(f"`{name}`" for name in known)
        lines.append(
            f"| {called} | {row.doc.rstrip('.').replace('|', chr(92) + '|')} | `{call}` | {result} |"
        )
    return "\n".join(lines)


def reductions() -> str:
    """Return a row for each reduction: its names, its description, a call with the page's x and the result."""
    x = gi.asarray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu")
    lines = ["| | | example | result |", "| --- | --- | --- | --- |"]
    for row in REDUCTIONS.values():
        if row.name not in gi.__all__:
            continue
        called = ", ".join(f"`{name}`" for name in (row.name, *row.aliases) if name in gi.__all__)
        result = shown(getattr(gi, row.name)(x, axis=0))
        lines.append(
            f"| {called} | {summary(function(row.name))} | `gi.{row.name}(x, axis=0)` | {result} |"
        )
    return "\n".join(lines)


def members(methods: bool) -> str:
    """Return a table of an array's methods or attributes."""
    lines = ["| | |", "| --- | --- |"]
    for name in sorted(dir(gi.CudaNdarray), key=str.lower):
        member = getattr(gi.CudaNdarray, name, None)  # None for a name that raises MissingNameError
        if member is not None and not name.startswith("_") and callable(member) == methods:
            lines.append(f"| `{name}` | {summary(member)} |")
    return "\n".join(lines)


def page() -> str:
    text = TEMPLATE.read_text(encoding="utf-8")
    text = re.sub(r"\{\{names (.*)\}\}", lambda found: names(found[1].split()), text)
    for name, part in (
        ("elementwise", elementwise()),
        ("reductions", reductions()),
        ("attributes", members(False)),
        ("methods", members(True)),
    ):
        text = text.replace("{{" + name + "}}", part)
    return text

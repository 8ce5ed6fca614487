"""``gpuinterop demo``: one array shared with every library that is installed, on the default device.

Ends with a table of what was shared, copied and refused. The exit code is 0 when everything that the
table calls shared was seen to be shared, by writing on one side and reading on the other.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.converters import registry

# Layouts that libraries disagree about.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "x": lambda x: x,
    "x.T": lambda x: x.T,
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[:, ::-1]": lambda x: x[:, ::-1],
}
PLAIN = "x"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which device, which libraries."""
    parser.add_argument("--device", help="instead of the default device")
    parser.add_argument("--only", metavar="LIBRARY,...", help="these libraries only")


@dataclass
class Row:
    """What happened with one library."""

    library: str
    version: str
    cells: dict[str, str] = field(default_factory=dict)
    seen: str = ""  # which writes were seen on the other side
    refusal: gi.GpuInteropError | None = None
    refused_view: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Show it, and count what was promised but not seen."""
    device = gi.device(arguments.device) if arguments.device else gi.default_device()
    wanted = arguments.only.split(",") if arguments.only else registry.names()
    libraries = [gi_row for gi_row in map(registry.backend, wanted) if gi_row.package]
    here = [b for b in libraries if device.type in b.devices and b.installed()]

    print(f"gpuinterop {gi.__version__} on {device}\n")
    print("1. One memory: write on one side, read on the other")
    rows, broken = [], 0
    for library in here:
        row = Row(library.name, version_of(library.package))
        try:
            broken += share(row, device)
        except gi.GpuInteropError as error:
            row.seen = "refused"
            refuse(row, PLAIN, error)
        print(f"   {row.library:11} {row.seen}")
        rows.append(row)

    print("\n2. A strided view is shared where the library can hold it, and refused where not")
    for row in rows:
        for name in list(VIEWS)[1:]:
            convert(row, name, device)
    show_refusal(rows, device)

    print(
        "\n3. What was shared, copied and refused (copied: refused first, then with copyif=True)\n"
    )
    print(table(rows))
    absent = [b for b in libraries if device.type in b.devices and not b.installed()]
    if absent:
        print("\n   not installed: " + ", ".join(b.install or b.package for b in absent))
    return int(bool(broken))


def version_of(package: str) -> str:
    """The version that is installed, without importing the package."""
    for name in importlib.metadata.packages_distributions().get(package.split(".")[0], ()):
        return importlib.metadata.version(name)
    return "?"


def fresh(device: Any) -> Any:
    """A new array, 3 x 4, with a different value in each place."""
    return gi.CudaNdarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)


# ---- one memory ---------------------------------------------------------------------------------


def share(row: Row, device: Any) -> int:
    """Write on each side and read on the other; return how many writes were not seen."""
    x = fresh(device)
    other = gi.to(x, row.library)
    failures = 0
    x[1, 2] = 100.0
    gi.synchronize()
    if element(row.library, other) == 100.0:
        row.seen = "our write seen there"
    else:
        row.seen, failures = "OUR WRITE NOT SEEN THERE", 1
    if set_element(row.library, other, 200.0):
        gi.synchronize()
        if x[1, 2].item() == 200.0:
            row.seen += ", its write seen here"
        else:
            row.seen, failures = row.seen + ", ITS WRITE NOT SEEN HERE", failures + 1
    else:
        row.seen += "; it does not write (immutable)"
    back = gi.from_any(other)
    if not gi.shares_memory(x, back):
        row.seen, failures = row.seen + ", THE WAY BACK COPIED", failures + 1
    else:
        row.seen += ", and back again"
    row.cells[PLAIN] = "shared" if not failures else "BROKEN"
    return failures


def element(library: str, array: Any) -> float:
    """Element [1, 2], read by the other library."""
    if library == "tvm_ffi":  # its tensors have no indexing of their own
        array = gi.from_any(array) if gi.default_device().type == "cuda" else np.from_dlpack(array)
    return float(array[1, 2])


def set_element(library: str, array: Any, value: float) -> bool:
    """Write element [1, 2] by the other library; False where its arrays are immutable."""
    if library == "jax":
        return False
    if library == "tvm_ffi":
        array = gi.from_any(array) if gi.default_device().type == "cuda" else np.from_dlpack(array)
    array[1, 2] = value
    return True


# ---- strided views ------------------------------------------------------------------------------


def convert(row: Row, name: str, device: Any) -> None:
    """Share the view, or take the refusal and then the copy."""
    if PLAIN not in row.cells:
        return
    view = VIEWS[name](fresh(device))
    try:
        other = gi.to(view, row.library)
        row.cells[name] = "shared"
    except gi.GpuInteropError as error:
        refuse(row, name, error)
        try:
            other = gi.to(view, row.library, copyif=True)
        except gi.GpuInteropError:
            return
        row.cells[name] = "copied"
    if not np.array_equal(np.asarray(gi.from_any(other)), np.asarray(view)):
        row.cells[name] = "WRONG"


def refuse(row: Row, name: str, error: gi.GpuInteropError) -> None:
    """Remember the refusal, the first one for the text."""
    row.cells[name] = "refused"
    if row.refusal is None:
        row.refusal, row.refused_view = error, name


def show_refusal(rows: list[Row], device: Any) -> None:
    """Print one refusal in full, then what copyif made of it."""
    for row in rows:
        if row.refusal is not None and row.refused_view != PLAIN:
            call = f"gpuinterop.to({row.refused_view}, {row.library!r})"
            after = f"{call[:-1]}, copyif=True)"
            print(f"   >>> {call}")
            print_error(row.refusal)
            print(f"   >>> {after}    # {row.cells[row.refused_view]}")
            return
    # Every library here takes every view; our own reshape still cannot make one of this.
    try:
        fresh(device).T.reshape(12, copy=False)
    except gi.GpuInteropError as error:
        print("   >>> x.T.reshape(12, copy=False)")
        print_error(error)
    print("   >>> x.T.reshape(12)    # copied")


def print_error(error: gi.GpuInteropError) -> None:
    """A message, indented."""
    print(f"   {type(error).__name__}:", str(error).replace("\n", "\n   "))


# ---- the table ----------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """One line a library, one column a layout."""
    head = ["library", "version", *VIEWS]
    body = [
        [row.library, row.version, *(row.cells.get(name, "-") for name in VIEWS)] for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = ["   " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, ["-" * width for width in widths], *body]]  # fmt: skip
    counts = {word: sum(row.cells.get(name) == word for row in rows for name in VIEWS) for word in
              ("shared", "copied", "refused")}  # fmt: skip
    lines.append("\n   " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    return "\n".join(lines)

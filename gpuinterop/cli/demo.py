"""``gpuinterop demo``: one array shared with every library that is installed, on the default device.

Ends with a table of the outcomes: shared, copied or refused. They are those of the compatibility suite, which
writes on each side of a shared array and reads on the other. The exit code is 0 if none of them is wrong. A library
that fails is a line of the table; the demo continues with the others. ``--json`` prints them as `matrix` does.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.cli import device_of, words_of
from gpuinterop.cli.terminal import progress, say
from gpuinterop.testing import Bridge, Cell, Library, Matrix
from gpuinterop.testing.suite import about, cases, gather, named, try_case

# Layouts of the suite that some libraries share and others do not, with the views that they are.
VIEWS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "C": ("x", lambda x: x),
    "F": ("x.T", lambda x: x.T),
    "sliced": ("x[::2, ::2]", lambda x: x[::2, ::2]),
    "mirrored": ("x[:, ::-1]", lambda x: x[:, ::-1]),
}
WORDS = {"copied": "refused, copied", "wrong": "WRONG"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the device and the libraries."""
    parser.epilog = (
        "exit code: 0 all shared arrays share memory; 1 one does not, or a library failed; "
        "2 an\nargument is wrong\n\nexample: gpuinterop demo --only numpy,torch --device cpu\n"
    )
    parser.add_argument("--device", metavar="DEVICE", help="instead of the default device")
    parser.add_argument("--only", metavar="LIBRARY,...", help="only these libraries")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return 1 if a promise was broken or a library failed."""
    # JAX would take three quarters of the GPU's memory at its first use and starve the others.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Libraries warn that arrays of twelve elements do not fill a GPU.
    warnings.simplefilter("ignore")
    words = words_of(arguments.only, "--only")
    only = None if words is None else named(words, "--only")
    device = device_of(arguments.device)
    shown = partial(progress, "gpuinterop demo")
    bridges, rows = gather(only, [str(device)], shown)
    if not (bridges or only or arguments.device):  # a GPU, and no library with arrays there
        device = gi.device("cpu")
        bridges, rows = gather(None, ["cpu"], shown)
    every = [c for c in cases(bridges, [str(device)], VIEWS, ["float32"]) if c.stream == "default"]
    chosen = [case for case in every if case.direction == "to"]
    cells = [try_case(case) for case in shown(chosen)]
    if not bridges:
        raise gi.ConversionTypeError(
            where="gpuinterop demo", expected=f"a library that is installed and has arrays on {device}",
            got=", ".join(f"{row.name} ({row.why})" for row in rows if row.why),
            fix="omit --only, or pass another --device",
        )  # fmt: skip
    found = Matrix(cells, rows, [str(device)], about())
    if arguments.json:
        print(found.to_json(indent=1))
        return int(not found.ok)
    print(f"gpuinterop {gi.__version__} on {device}: one array, and its views, for every library\n")
    say(table(found))
    show_refusal(bridges, cells, device)
    print(next_steps(rows))
    return int(not found.ok)


def table(found: Matrix) -> str:
    """Return a table with a row for each library and a column for each view, and totals."""
    lines = [["library", "version", *(view for view, _ in VIEWS.values())]]
    words: list[str] = []
    for row in found.libraries:
        outcomes = [cell.outcome for cell in found.select(library=row.name)]
        if outcomes:
            cells = [WORDS.get(outcome, outcome) for outcome in outcomes]
            lines.append([row.name, row.version, *cells])
            words += [word for cell in cells for word in cell.split(", ")]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    aligned = ["  ".join(map(str.ljust, line, widths)) for line in lines]
    totals = ", ".join(f"{words.count(word)} {word}" for word in ("shared", "refused", "copied"))
    absent: dict[str, list[str]] = {}
    for row in found.libraries:
        absent.setdefault(row.why, []).append(row.name)
    left_out = [f"{why}: {', '.join(names)}" for why, names in absent.items() if why]
    faults = [line for cell in found.wrong for line in str(cell).splitlines()]
    return "\n".join(f"   {line}".rstrip() for line in [*aligned, "", totals, *left_out, *faults])


def next_steps(rows: list[Library]) -> str:
    """Return what to do after the demo: install a library to try, and start Python."""
    try_it = f"{sys.executable}, and in it: import gpuinterop as gi; gi.draw(gi.zeros((4, 6)))"
    if any(row.name == "torch" and row.why == "not installed" for row in rows):
        made = "MAKELEVEL" in os.environ  # which make sets for its commands
        install = 'make demo WITH="torch"' if made else "pip install torch"
        if len(gi.devices()) == 1:  # no GPU, for which the usual build has gigabytes of CUDA
            pip = f"{sys.executable} -m pip install torch --index-url https://download.pytorch.org/whl/cpu"
            install = f"{pip} && make demo" if made else pip
        return f"\nnext: {install}\nthen: {try_it}"
    return f"\nnext: {try_it}"


def show_refusal(bridges: list[Bridge], cells: list[Cell], device: Any) -> None:
    """Print one refusal in full, then the outcome with copyif=True."""
    x = gi.CudaNdarray(np.zeros((3, 4), np.float32), device=device)
    for cell in cells:
        if cell.outcome in ("copied", "refused") and cell.layout != "C":
            view, make = VIEWS[cell.layout]
            bridge = next(b for b in bridges if b.name == cell.library)
            show(
                f"gpuinterop.to({view}, {cell.library!r})",
                partial(bridge.convert_to, make(x), False),
            )
            print(f"   >>> gpuinterop.to({view}, {cell.library!r}, copyif=True)")
            copied = cell.outcome == "copied"
            print("   a copy" if copied else "   also refused: a copy does not help")
            return
    # These libraries accept all views. No library can share strides that are not multiples of the itemsize.
    packed = np.zeros(3, [("tag", "u1"), ("value", "f4")])["value"]
    call = "gpuinterop.from_any(numpy.zeros(3, [('tag', 'u1'), ('value', 'f4')])['value'])"
    show(call, lambda: gi.from_any(packed))
    print(f"   >>> gpuinterop.from_any(..., copyif=True)\n   {gi.from_any(packed, copyif=True)!r}")


def show(call: str, convert: Callable[[], Any]) -> None:
    """Print a call and its error, indented."""
    try:
        convert()
    except gi.GpuInteropError as error:
        print(f"\n   >>> {call}")
        say(f"   {type(error).__name__}: " + str(error).replace("\n", "\n   "))

"""``gpuinterop matrix``: runs the compatibility suite. Exit code 1 if an outcome is wrong."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from gpuinterop.cli import device_of, layouts_in_help, nearest, words_of
from gpuinterop.cli.terminal import progress, say
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.exchange import registry
from gpuinterop.testing import Matrix, matrix
from gpuinterop.testing.suite import bridges_named, named

EPILOG = """\
A case is not applicable where the library has no such array, as PyTorch has none with negative strides.

exit code: 0 no outcome is wrong; 1 one is, or nothing was tried; 2 an argument is wrong

example: gpuinterop matrix --only torch,jax --dtypes float32 --output matrix.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the cases to try, or the saved run to show."""
    parser.epilog = f"{layouts_in_help()}\n{EPILOG}"
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="print this saved run instead of a new one"
    )
    parser.add_argument(
        "--only", metavar="LIBRARY,...", help="these libraries instead of all installed"
    )
    parser.add_argument(
        "--bridge", action="append", default=[], metavar="MODULE:NAME", help="also try this Bridge"
    )
    parser.add_argument(
        "--device", metavar="DEVICE", action="append", help="instead of the CPU and the first GPU"
    )
    parser.add_argument("--layouts", metavar="LAYOUT,...", help="only these layouts")
    parser.add_argument("--dtypes", metavar="DTYPE,...", help="only these element types")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the JSON to a file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Run the suite or read a saved run; print the table."""
    if arguments.output:
        Path(arguments.output).touch()  # fail before the run, which takes minutes
    wanted = {
        "library": words_of(arguments.only, "--only"),
        "device": arguments.device,
        "layout": words_of(arguments.layouts, "--layouts"),
        "dtype": words_of(arguments.dtypes, "--dtypes"),
    }
    found = _part_of(arguments.file, wanted) if arguments.file else _tried(arguments.bridge, wanted)
    if arguments.output:
        found.save(arguments.output)
    if arguments.json:
        print(found.to_json(indent=1))
    else:
        say(found)
    return int(not found.ok)


def _tried(bridges: list[str], wanted: dict[str, list[str] | None]) -> Matrix:
    for device in wanted["device"] or ():
        device_of(device)
    only = wanted["library"]
    libraries = None if only is None else named(only, "--only")
    if bridges:
        libraries = (libraries or []) + bridges_named(bridges)
    return matrix(
        libraries, wanted["device"], layouts=wanted["layout"], dtypes=wanted["dtype"],
        progress=partial(progress, "gpuinterop matrix"),
    )  # fmt: skip


def _part_of(file: str, wanted: dict[str, list[str] | None]) -> Matrix:
    """Return the part of a saved run that the options choose."""
    if not Path(file).exists():
        near = nearest(file, registry.names())
        raise ArgumentTypeError(
            where="gpuinterop matrix", expected="a file with a saved run", got=f"no file {file!r}",
            fix=f"for a library: --only {near}" if near else "save a run: gpuinterop matrix --output FILE",
        )  # fmt: skip
    saved = Matrix.load(file)

    def chosen(field: str, value: str) -> bool:
        names = wanted[field]
        return names is None or value in names

    cells = [c for c in saved.cells if all(chosen(field, getattr(c, field)) for field in wanted)]
    if saved.cells and not cells:
        raise ArgumentTypeError(
            where="gpuinterop matrix",
            expected="options that select cases of the saved run",
            got=", ".join(f"{field} {names}" for field, names in wanted.items() if names),
            fix="omit the options for all cases",
        )
    rows = [row for row in saved.libraries if chosen("library", row.name)]
    devices = [device for device in saved.devices if chosen("device", device)]
    return Matrix(cells, rows, devices, saved.about)

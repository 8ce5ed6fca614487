"""``gpuinterop matrix``: runs the compatibility suite. Exit code 1 if an outcome is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuinterop.cli import layouts_in_help, words_of
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.testing import Matrix, matrix
from gpuinterop.testing.suite import bridges_named, named

EPILOG = """\
exit code: 0 no outcome is wrong; 1 one is, or nothing was tried; 2 an argument is wrong

example: gpuinterop matrix --only torch,jax --dtypes float32 --output matrix.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the cases to try, or the saved run to show."""
    parser.epilog = f"{layouts_in_help()}\n{EPILOG}"
    parser.add_argument("file", nargs="?", metavar="FILE", help="show this saved run; try nothing")
    parser.add_argument(
        "--only", metavar="LIBRARY,...", help="these libraries instead of all installed"
    )
    parser.add_argument(
        "--bridge", action="append", default=[], metavar="MODULE:NAME", help="also try this Bridge"
    )
    parser.add_argument("--device", action="append", help="instead of the CPU and the first GPU")
    parser.add_argument("--layouts", metavar="NAME,...", help="these layouts only")
    parser.add_argument("--dtypes", metavar="NAME,...", help="these element types only")
    parser.add_argument("--output", "-o", metavar="FILE", help="write the JSON to a file as well")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the drawing")


def run(arguments: argparse.Namespace) -> int:
    """Run the suite or read a saved run; print the table."""
    if arguments.output:
        # Checked first, because the run takes minutes.
        folder = Path(arguments.output).absolute().parent
        with _named("--output", "a file in a folder", f"make it first: mkdir -p {folder}"):
            folder.stat()
    if arguments.file:
        fix = "correct the name; without one the conversions are tried here"
        with _named("FILE", "a run that --output has saved", fix):
            found = Matrix.load(arguments.file)
        found = _part_of(found, arguments)
    else:
        found = _tried(arguments)
    print(found.to_json(indent=1) if arguments.json else found)
    if arguments.output:
        with _named("--output", "a file that can be written", "name another"):
            found.save(arguments.output)
    return int(not found.ok)


@contextmanager
def _named(option: str, expected: str, fix: str) -> Iterator[None]:
    """Report a file that cannot be read or written as a wrong argument."""
    try:
        yield
    except OSError as error:
        raise ArgumentTypeError(
            where=f"gpuinterop matrix: {option}",
            expected=expected,
            got=str(error),
            fix=fix,
        ) from None


def _tried(arguments: argparse.Namespace) -> Matrix:
    words = words_of(arguments.only, "--only")
    libraries = None if words is None else named(words, "--only")
    if arguments.bridge:
        libraries = (libraries or []) + bridges_named(arguments.bridge)
    return matrix(
        libraries,
        arguments.device,
        layouts=words_of(arguments.layouts, "--layouts"),
        dtypes=words_of(arguments.dtypes, "--dtypes"),
    )


def _part_of(saved: Matrix, arguments: argparse.Namespace) -> Matrix:
    """Return the part of a saved run that the options choose."""
    if arguments.bridge:
        raise ArgumentTypeError(
            where="gpuinterop matrix: --bridge",
            expected="no FILE, because a saved run tries nothing",
            got=arguments.file,
            fix="omit the file, or choose from it with --only",
        )
    only = words_of(arguments.only, "--only")
    there = [row.name for row in saved.libraries] + [cell.library for cell in saved.cells]
    libraries = only and _chosen("--only", named(only, "--only", there), there)
    devices = _chosen("--device", arguments.device, saved.devices)
    layouts = _chosen(
        "--layouts", words_of(arguments.layouts, "--layouts"), [c.layout for c in saved.cells]
    )
    dtypes = _chosen(
        "--dtypes", words_of(arguments.dtypes, "--dtypes"), [c.dtype for c in saved.cells]
    )
    cells = [
        cell
        for cell in saved.cells
        if (libraries is None or cell.library in libraries)
        and (devices is None or cell.device in devices)
        and (layouts is None or cell.layout in layouts)
        and (dtypes is None or cell.dtype in dtypes)
    ]
    rows = [row for row in saved.libraries if libraries is None or row.name in libraries]
    return Matrix(cells, rows, devices or saved.devices, saved.about)


def _chosen(option: str, wanted: list[str] | None, there: list[str]) -> list[str] | None:
    for name in wanted or ():
        if name not in there:
            raise ArgumentTypeError(
                where=f"gpuinterop matrix: {option}",
                expected=f"names that the saved run has: {', '.join(dict.fromkeys(there))}",
                got=repr(name),
                fix=f"omit {option} for all",
            )
    return wanted

"""``gpuinterop matrix``: the compatibility suite on one screen. Exit code 1 when something is wrong."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuinterop.converters import registry
from gpuinterop.errors import GpuInteropError
from gpuinterop.testing import Matrix, matrix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to try, or which saved run to show."""
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


def _words(text: str | None) -> list[str] | None:
    return [word.strip() for word in text.split(",") if word.strip()] if text else None


def run(arguments: argparse.Namespace) -> int:
    """Try, or read, and draw."""
    try:
        if arguments.output:
            # Before minutes of work, not after them.
            Path(arguments.output).absolute().parent.stat()
        found = Matrix.load(arguments.file) if arguments.file else _tried(arguments)
    except (GpuInteropError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    print(found.to_json(indent=1) if arguments.json else found)
    if arguments.output:
        try:
            found.save(arguments.output)
        except OSError as error:
            print(error, file=sys.stderr)
            return 2
    return int(not found.ok)


def _tried(arguments: argparse.Namespace) -> Matrix:
    libraries = _words(arguments.only)
    if libraries:
        libraries = [
            word if ":" in word else registry.backend(word, "--only").name for word in libraries
        ]
    if arguments.bridge:
        libraries = (libraries or []) + arguments.bridge
    return matrix(
        libraries,
        arguments.device,
        layouts=_words(arguments.layouts),
        dtypes=_words(arguments.dtypes),
    )

"""The command line: ``gpuinterop COMMAND``, also ``python -m gpuinterop COMMAND``.

A command is a file in this folder with ``add_arguments(parser)`` and ``run(arguments) -> int``, and a
row in `COMMANDS`. Only the file of the given command is imported.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from gpuinterop.errors import ArgumentTypeError, GpuInteropError, short_repr

COMMANDS = {
    "doctor": "examine driver, devices, contexts, libraries and memory; exit code 1 for a warning",
    "matrix": "try every conversion of the installed libraries, and print a table of the outcomes",
    "explain": "predict whether a conversion shares, copies or refuses, and why",
    "demo": "share one array with every library that is installed",
    "run": "run a program that was written for Theano",
    "version": "print the versions of gpuinterop, Python and NumPy, and the machine",
}

# The library with which commands try the converter "array_api", which serves many libraries.
STRICT = "array_api_strict"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # paths may have letters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    name = next((word for word in words if not word.startswith("-")), "")
    parser = argparse.ArgumentParser(
        prog="gpuinterop", description="Share memory between the arrays of GPU libraries."
    )
    parser.add_argument(
        "--version",
        action="store_const",
        const="version",
        dest="command",
        help="the same as version",
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for row, about in COMMANDS.items():
        command = commands.add_parser(
            row, help=about, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if row == name:
            _module(row).add_arguments(command)
    chosen = parser.parse_args(words)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        code: int = _module(chosen.command).run(chosen)
        if sys.stdout is not None:  # None in a process that was started without a standard output
            sys.stdout.flush()
    except OSError as error:  # of a file that an option names, or of the output
        _discard_unwritten_output()
        if isinstance(
            error, BrokenPipeError
        ):  # the reader has closed it, as in `gpuinterop demo | head`
            return 1
        print(f"gpuinterop {chosen.command}: {error}", file=sys.stderr)
        return 2
    except GpuInteropError as error:
        # An argument is wrong, such as a device that does not exist; the message has the fix.
        print(error, file=sys.stderr)
        return 2
    return code


def _discard_unwritten_output() -> None:
    # The interpreter flushes once more at exit; that must not fail again.
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def words_of(text: str | None, option: str) -> list[str] | None:
    """Return the names in an option's value, or None without the option."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ArgumentTypeError(
            where=option,
            expected="names separated by commas",
            got=short_repr(text),
            fix=f"omit {option} for all",
        )
    return words


def layouts_in_help() -> str:
    """Return the legend of the layouts, for the end of a command's help."""
    from gpuinterop.testing.layouts import LAYOUTS  # noqa: PLC0415

    rows = "\n".join(f"  {layout.name:12} {layout.made_by}" for layout in LAYOUTS.values())
    return f"layouts, and how NumPy makes one:\n{rows}\n"


def _module(command: str) -> Any:
    return importlib.import_module(f"{__name__}.{command}")

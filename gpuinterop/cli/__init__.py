"""The command line: ``gpuinterop COMMAND``, also ``python -m gpuinterop COMMAND``.

A command is a file in this folder with ``add_arguments(parser)`` and ``run(arguments) -> int``, and a
row in `COMMANDS`. Only the file of the command that was asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from gpuinterop.errors import GpuInteropError

COMMANDS = {
    "doctor": "examine driver, devices, contexts, libraries and memory; exit code 1 for a warning",
    "matrix": "try every conversion of the installed libraries, and draw what came of it",
    "explain": "say what a conversion would do: share, copy or refuse, and why",
    "demo": "share one array with every library that is installed",
    "version": "print the versions of the package and of what it builds on",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = next((word for word in words if not word.startswith("-")), "")
    parser = argparse.ArgumentParser(
        prog="gpuinterop", description="GPU arrays of different libraries as one memory."
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
        command = commands.add_parser(row, help=about, description=about)
        if row == name:
            _module(row).add_arguments(command)
    chosen = parser.parse_args(words)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        code: int = _module(chosen.command).run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`gpuinterop demo | head`). The interpreter flushes once more at
        # exit, so what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except GpuInteropError as error:
        # The question was wrong, such as a device that is not here; the message says what to write.
        print(_in_words_of_the_command_line(str(error)), file=sys.stderr)
        return 2
    return code


# What messages recommend to a program, and the same for a shell.
_SAID = {
    'use device="cpu"': "write --device cpu",
    "gpuinterop.devices()": "gpuinterop doctor",
}


def _in_words_of_the_command_line(message: str) -> str:
    for python, shell in _SAID.items():
        message = message.replace(python, shell)
    return message


def _module(command: str) -> Any:
    return importlib.import_module(f"{__name__}.{command}")

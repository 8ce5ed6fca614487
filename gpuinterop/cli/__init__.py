"""The command line: ``gpuinterop COMMAND``, also ``python -m gpuinterop COMMAND``.

A command is a file in this folder with ``add_arguments(parser)`` and ``run(arguments) -> int``, and a
row in `COMMANDS`. Only the file of the given command is imported.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from gpuinterop.errors import ArgumentTypeError, GpuInteropError

COMMANDS = {
    "doctor": "examine driver, devices, contexts, libraries and memory; exit code 1 for a warning",
    "matrix": "try every conversion of the installed libraries, and print a table of the outcomes",
    "explain": "predict whether a conversion shares, copies or refuses, and why",
    "demo": "share one array with every library that is installed",
    "version": "print the versions of the package and of what it builds on",
}

# The library with which commands try the converter "array_api", which serves many libraries.
STRICT = "array_api_strict"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:
        print("gpuinterop: the output cannot be written: stdout is closed", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):  # paths may have letters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
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
        command = commands.add_parser(
            row,
            help=about,
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if row == name:
            _module(row).add_arguments(command)
    chosen = parser.parse_args(_joined(words))
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        code: int = _module(chosen.command).run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `gpuinterop demo | head`.
        _discard_output()
        return 1
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _discard_output()
        print(
            f"gpuinterop {chosen.command}: the output cannot be written: {error}", file=sys.stderr
        )
        return 2
    except GpuInteropError as error:
        # An argument is wrong, such as a device that does not exist; the message has the fix.
        print(_for_shell(str(error)), file=sys.stderr)
        return 2
    return code


# The errors of a file system that is full.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _discard_output() -> None:
    # The interpreter flushes once more at exit; that must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _joined(words: Sequence[str]) -> list[str]:
    """Join a value that looks like an option, such as -16,4, to the option before it."""
    joined: list[str] = []
    for word in words:
        before = joined[-1] if joined else ""
        if re.match(r"-\d", word) and re.fullmatch(r"--\w[\w-]*", before):
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def words_of(text: str | None, option: str) -> list[str] | None:
    """Return the names in an option's value, or None without the option."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ArgumentTypeError(
            where=option,
            expected="names separated by commas",
            got=repr(text),
            fix=f"omit {option} for all",
        )
    return words


def layouts_in_help() -> str:
    """Return the legend of the layouts, for the end of a command's help."""
    from gpuinterop.testing.layouts import legend  # noqa: PLC0415

    rows = "\n".join(f"  {name:12} {made_by}" for name, made_by in legend())
    return f"layouts, and how NumPy makes one:\n{rows}\n"


# Python code in the fixes of messages, and the shell command to use instead.
_IN_SHELL = {
    'use device="cpu"': "write --device cpu",
    "gpuinterop.devices()": "gpuinterop doctor",
}


def _for_shell(message: str) -> str:
    for python, shell in _IN_SHELL.items():
        message = message.replace(python, shell)
    return message


def _module(command: str) -> Any:
    return importlib.import_module(f"{__name__}.{command}")

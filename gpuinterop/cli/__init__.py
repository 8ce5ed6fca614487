"""The command line: ``gpuinterop COMMAND``, also ``python -m gpuinterop COMMAND``.

A command is a file in this folder with ``add_arguments(parser)`` and ``run(arguments) -> int``, and a
row in `COMMANDS`. Only the file of the given command is imported.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from gpuinterop.cli.terminal import say
from gpuinterop.errors import ArgumentTypeError, GpuInteropError, short_repr

COMMANDS = {
    "doctor": "examine driver, devices, contexts, libraries and memory",
    "matrix": "try every conversion of the installed libraries, and print a table of the outcomes",
    "explain": "predict whether a conversion shares, copies or refuses, and why",
    "draw": "draw the memory of a view of an array: its elements, gaps, steps and owner",
    "demo": "share one array with every library that is installed",
    "bench": "time calls in gpuinterop and in the installed libraries",
    "run": "run a program that was written for Theano",
    "version": "print the versions of gpuinterop, Python and NumPy, and the machine",
    "completion": "print a script with which bash or zsh completes commands and options",
}

HELP = """\
usage: gpuinterop COMMAND [OPTION ...]

Share memory between the arrays of GPU libraries.

commands:
{rows}
  help        print this list, or the help of a command: gpuinterop help COMMAND

exit codes of all commands: 0 done; 1 done, and there is a finding, such as a refused conversion; 2 a mistake in the
command line, or a file that cannot be read or written; 130 interrupted

example: gpuinterop doctor
"""

# The library with which commands try the converter "array_api", which serves many libraries.
STRICT = "array_api_strict"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # paths may have letters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    name, *words = words or [""]
    if name == "help" and words:  # gpuinterop help COMMAND
        name, words = words[0], ["--help"]
    name = {"-h": "help", "--help": "help", "--version": "version"}.get(name, name)
    try:
        code = _run(name, words)
        if sys.stdout is not None:  # None in a process that was started without a standard output
            sys.stdout.flush()
    except OSError as error:  # of a file that an option names, or of the output
        _discard_unwritten_output()
        if isinstance(error, BrokenPipeError):  # its reader closed it: `gpuinterop demo | head`
            return 1
        print(f"gpuinterop {name}: {error}", file=sys.stderr)
        return 2
    except GpuInteropError as error:
        # An argument is wrong, such as a device that does not exist; the message has the fix.
        say(error, sys.stderr)
        return 2
    except KeyboardInterrupt:
        if name == "run":  # Python prints the program's traceback and ends with the signal
            raise
        say(f"gpuinterop {name}: interrupted", sys.stderr)
        return 130
    return code


def _run(name: str, words: list[str]) -> int:
    if name in ("", "help"):
        rows = "\n".join(f"  {row:11} {about}" for row, about in COMMANDS.items())
        print(HELP.format(rows=rows), end="")
        return 0 if name else 2
    if name not in COMMANDS:
        raise ArgumentTypeError(
            where="gpuinterop", expected=f"a command: {', '.join(COMMANDS)} or help", got=name,
            fix=f"call gpuinterop {nearest(name, COMMANDS) or 'help'}",
        )  # fmt: skip
    parser = parser_of(name)
    chosen, unknown = parser.parse_known_args(words)
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        near = nearest(unknown[0].partition("=")[0], known)
        parser.error(f"unknown argument {unknown[0]}" + (f"; did you mean {near}?" if near else ""))
    return int(_module(name).run(chosen))


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = argparse.ArgumentParser(
        prog=f"gpuinterop {name}", description=COMMANDS[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    _module(name).add_arguments(parser)
    return parser


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is closest to an unknown one, or ""."""
    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")


def _discard_unwritten_output() -> None:
    # The interpreter flushes once more at exit; that must not fail again.
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def device_of(text: str | None) -> Any:
    """Return the device that ``--device`` names, or the default device without the option."""
    from gpuinterop.devices import default_device, resolve_device  # noqa: PLC0415

    if text is None:
        return default_device()
    try:
        return resolve_device(text, "--device")
    except GpuInteropError as error:
        raise error.changed(fix=error.fix.replace('device="cpu"', "--device cpu")) from None


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

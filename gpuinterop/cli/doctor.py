"""``gpuinterop doctor``: reports what is installed and whether it works. Exit code 1 for a warning."""

from __future__ import annotations

import argparse

from gpuinterop.cli.terminal import say, show_seconds
from gpuinterop.doctor import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the amount of detail, the trial and the format."""
    parser.epilog = (
        "exit code: 0 no problems, or only hints; 1 there is a warning; 2 an argument is wrong\n\n"
        "example: gpuinterop doctor --verbose > report.txt\n"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print every detail")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="omit the trial, which imports and uses installed libraries",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    with show_seconds("gpuinterop doctor"):
        report = doctor(trial=not arguments.quick)
    if arguments.json:
        print(report.to_json(indent=1))
    else:
        say(report.text(arguments.verbose))
    return int(not report.ok)

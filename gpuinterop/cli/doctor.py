"""``gpuinterop doctor``: what is here, and is it well? Exit code 1 when something is broken."""

from __future__ import annotations

import argparse

from gpuinterop.doctor import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How much, and for whom."""
    parser.epilog = (
        "exit code: 0 all is well, or there are hints only; 1 there is a warning\n\n"
        "example: gpuinterop doctor --verbose > report.txt\n"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="everything that is known")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="import no library: no trial of those that are installed",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    report = doctor(trial=not arguments.quick)
    print(report.to_json(indent=1) if arguments.json else report.text(arguments.verbose))
    return int(not report.ok)

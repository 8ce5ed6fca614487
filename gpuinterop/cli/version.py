"""``gpuinterop version``: prints versions, for the first line of a bug report."""

from __future__ import annotations

import argparse
import json
import platform

import numpy as np

from gpuinterop._version import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``."""
    parser.epilog = (
        "exit code: 0 printed; 2 an argument is wrong\n\nexample: gpuinterop version --json\n"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print one line."""
    if getattr(arguments, "json", False):  # `gpuinterop --version` has no such option
        versions = {
            "gpuinterop": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
        }
        print(json.dumps(versions, indent=1))
        return 0
    print(
        f"gpuinterop {__version__} (Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.machine()})"
    )
    return 0

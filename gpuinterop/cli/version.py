"""``gpuinterop version``: what a bug report begins with."""

from __future__ import annotations

import argparse
import platform

import numpy as np

from gpuinterop._version import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(arguments: argparse.Namespace) -> int:
    """Print one line."""
    print(
        f"gpuinterop {__version__} (Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.machine()})"
    )
    return 0

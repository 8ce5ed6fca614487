"""``gpuinterop run SCRIPT``: run a program that was written for Theano."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import textwrap
from pathlib import Path

from gpuinterop.theano.flags import KNOWN

EPILOG = """exit code: that of the program; 2 a wrong flag, no such program, or PyTensor is not installed

THEANO_FLAGS and .theanorc are read:
{flags}.
Programs in Python 2 and the modules next to them are translated in memory. Needs PyTensor, and so Python 3.12 or later:
pip install 'gpuinterop[pytensor]'.

With THEANO_FLAGS=device=gpu,floatX=float32 in the environment,
example: gpuinterop run check1.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the script and its arguments."""
    parser.epilog = EPILOG.format(flags=textwrap.fill(", ".join(KNOWN), 110))
    parser.add_argument(
        "--python2", action="store_true", help="translate a program that is valid Python 3, too"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="use gpuinterop even if a theano package is installed",
    )
    parser.add_argument(
        "--product-precision",
        choices=("exact", "tf32x3", "tf32"),
        help="how float32 matrices are multiplied on a GPU",
    )
    parser.add_argument("script", help="the program; - reads it from the standard input")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the program")


def run(arguments: argparse.Namespace) -> int:
    """Run the script; return its exit code."""
    if arguments.script != "-":
        Path(arguments.script).stat()  # a missing program is reported before a missing package
    if arguments.replace or importlib.util.find_spec("theano") is None:
        importlib.import_module("gpuinterop.pytensor")  # its error names what is missing
    from gpuinterop.product.functions import set_product_precision  # noqa: PLC0415
    from gpuinterop.theano.runner import run as run_script  # noqa: PLC0415

    if arguments.product_precision:
        set_product_precision(arguments.product_precision)
    return run_script(arguments.script, arguments.arguments, arguments.python2, arguments.replace)

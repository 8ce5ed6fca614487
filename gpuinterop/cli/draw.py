"""``gpuinterop draw``: draws the memory of a view of an array, as text or as an SVG file."""

from __future__ import annotations

import argparse
import json

import gpuinterop as gi
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.cli.explain import forms_of, numbers_of, target_of
from gpuinterop.cli.terminal import say, show_seconds
from gpuinterop.cli.views import GRAMMAR, add_expression, parse, view_of
from gpuinterop.errors.context import reraise_from

EPILOG = f"""\
{GRAMMAR}
exit code: 0 drawn; 2 an argument is wrong, or a file cannot be written

example: gpuinterop draw --shape 4,6 "x[::2, ::-1]" --to torch
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the expression and the options."""
    parser.epilog = EPILOG
    add_expression(parser)
    parser.add_argument(
        "--shape", default="4,6", metavar="N,...", help="axis lengths of x; '' for 0-d [4,6]"
    )
    parser.add_argument(
        "--dtype", default="float32", metavar="DTYPE", help="element type of x [float32]"
    )
    parser.add_argument(
        "--to", metavar="LIBRARY", help="say what a conversion to the library would do, and why"
    )
    parser.add_argument("--svg", metavar="FILE", help="write the picture to a file, as SVG")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the drawing."""
    shape = numbers_of(arguments.shape, "--shape")
    dtype = as_supported_dtype(arguments.dtype, "--dtype")
    tree = parse(arguments.expression)
    target = None if arguments.to is None else target_of(arguments.to)
    with reraise_from("--shape"):
        x = gi.empty(shape, dtype, device="cpu")
    with show_seconds("gpuinterop draw"):  # importing a library may take seconds
        drawing = gi.draw(view_of(tree, x), target)
    if arguments.svg:
        with reraise_from("--svg"):
            drawing.save(arguments.svg)
    if arguments.json:
        print(json.dumps(forms_of(drawing), indent=1))
    elif not arguments.svg:
        say(drawing)
    return 0

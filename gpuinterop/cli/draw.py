"""``gpuinterop draw``: draws the memory of a view of an array, as text or as an SVG file.

The view is an expression of x in Python's syntax. Python parses it and nothing evaluates it: the command applies the
views that it knows.
"""

from __future__ import annotations

import argparse
import ast
import json
from typing import Any

import gpuinterop as gi
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.cli.explain import numbers_of
from gpuinterop.cli.terminal import say
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.errors.context import reraise_from

VIEWS = {
    "transpose", "reshape", "swapaxes", "squeeze", "expand_dims", "broadcast_to", "diagonal"
}  # fmt: skip
MODULES = {"np", "numpy", "gi", "gpuinterop"}
LONGEST = 200  # letters of an expression

EPILOG = f"""\
An expression is x, x[index], x.T, a view such as x.reshape(3, 8), or a view of these. The views are
{", ".join(sorted(VIEWS))}.

exit code: 0 drawn; 2 an argument is wrong, or a file cannot be written

example: gpuinterop draw --shape 4,6 "x[::2, ::-1]" --to torch
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the expression and the options."""
    parser.epilog = EPILOG
    parser.add_argument(
        "expression", nargs="?", default="x", metavar="EXPRESSION",
        help="a view of the C-ordered array x, in quotes [x]",
    )  # fmt: skip
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
    tree = _parse(arguments.expression)
    with reraise_from("--shape"):
        x = gi.empty(shape, dtype, device="cpu")
    drawing = gi.draw(_view(tree, x), arguments.to)
    if arguments.svg:
        drawing.save(arguments.svg)
    if arguments.json:
        print(json.dumps({"text": str(drawing), "svg": drawing.svg}, indent=1))
    elif not arguments.svg:
        say(drawing)
    return 0


def _parse(expression: str) -> ast.expr:
    try:
        if len(expression) <= LONGEST:
            return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise _refused(expression)


def _refused(part: ast.AST | str) -> ArgumentTypeError:
    text = part if isinstance(part, str) else ast.unparse(part)
    return ArgumentTypeError(
        where="gpuinterop draw",
        expected=f"x, an index of it, .T, or a view: {', '.join(sorted(VIEWS))}",
        got=(text if len(text) <= 80 else f"{text[:80]}...") or "no expression",
        fix='write for example "x[::2, ::-1]" or "x.T", in quotes',
    )


def _view(node: ast.expr, x: Any) -> Any:
    """Return the view of `x` that an expression describes."""
    match node:
        case ast.Name(id="x"):
            return x
        case ast.Attribute(value=value, attr="T"):
            return _view(value, x).T
        case ast.Subscript(value=value, slice=key):
            return _view(value, x)[_key(key)]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=module), attr=name),
            args=[array, *rest],
            keywords=[],
        ) if module in MODULES and name in VIEWS:
            return _call(name, _view(array, x), rest)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=rest, keywords=[]) if (
            name in VIEWS
        ):
            return _call(name, _view(value, x), rest)
    raise _refused(node)


def _call(name: str, array: Any, arguments: list[ast.expr]) -> Any:
    values = [_literal(argument) for argument in arguments]
    if name == "reshape":  # a copy has nothing to draw
        return array.reshape(*values, copy=False)
    try:
        return getattr(array, name)(*values)
    except TypeError as error:
        if isinstance(error, gi.GpuInteropError):
            raise
        raise ArgumentTypeError(
            where="gpuinterop draw", expected=f"arguments of {name}", got=f"{values}: {error}",
            fix=f"write them as x.{name} takes them in Python",
        ) from None  # fmt: skip


def _key(node: ast.expr) -> Any:
    match node:
        case ast.Tuple(elts=parts):
            return tuple(_key(part) for part in parts)
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(
                *(None if part is None else _literal(part) for part in (lower, upper, step))
            )
    return _literal(node)


def _literal(node: ast.expr) -> Any:
    """Return an int, None, ``...`` or a tuple of ints."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise _refused(node) from None
    if not all(
        type(part) in (int, type(None), type(...))
        for part in (value if type(value) is tuple else (value,))
    ):
        raise _refused(node)
    return value

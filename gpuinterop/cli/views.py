"""The expression of a command: a view of the array x, in Python's syntax.

Python parses it and nothing evaluates it: the views that this file knows are applied.
"""

from __future__ import annotations

import argparse
import ast
import re
from typing import Any

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError

VIEWS = {
    "transpose", "reshape", "swapaxes", "squeeze", "expand_dims", "broadcast_to", "diagonal"
}  # fmt: skip
MODULES = {"np", "numpy", "gi", "gpuinterop"}
LONGEST = 200  # letters of an expression
GRAMMAR = f"""\
An expression is x, x[index], x.T, a view such as x.reshape(3, 8), or a view of these. The views are
{", ".join(sorted(VIEWS))}.
"""


def add_expression(parser: argparse.ArgumentParser) -> None:
    """Add the expression; of several words, as a shell makes them of spaces without quotes, `parse` makes one."""
    parser.add_argument(
        "expression", nargs="*", metavar="EXPRESSION", help="a view of the array x, in quotes [x]"
    )


def parse(words: list[str]) -> ast.expr:
    """Return the tree of an expression; x without words."""
    expression = " ".join(words) if words else "x"
    try:
        if len(expression) <= LONGEST:
            return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise _refused(expression)


def _refused(part: ast.AST | str) -> ArgumentTypeError:
    text = part if isinstance(part, str) else ast.unparse(part)
    fix = 'write for example "x[::2, ::-1]" or "x.T", in quotes'
    if re.fullmatch(r"\(?\d[\d\s,)]*", text):
        numbers = re.findall(r"\d+", text)
        lengths = ",".join(numbers if len(numbers) > 1 else ("3", "4"))
        fix = f"write axis lengths with commas, as in --shape {lengths}"
    return ArgumentTypeError(
        where="EXPRESSION",
        expected=f"x, an index of it, .T, or a view: {', '.join(sorted(VIEWS))}",
        got=(text if len(text) <= 80 else f"{text[:80]}...") or "no expression",
        fix=fix,
    )


def view_of(node: ast.expr, x: Any) -> Any:
    """Return the view of `x` that an expression describes."""
    match node:
        case ast.Name(id="x"):
            return x
        case ast.Attribute(value=value, attr="T"):
            return view_of(value, x).T
        case ast.Subscript(value=value, slice=key):
            return view_of(value, x)[_key(key)]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=module), attr=name),
            args=[array, *rest],
            keywords=[],
        ) if module in MODULES and name in VIEWS:
            return _call(name, view_of(array, x), rest)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=rest, keywords=[]) if (
            name in VIEWS
        ):
            return _call(name, view_of(value, x), rest)
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
            where="EXPRESSION", expected=f"arguments of {name}", got=f"{values}: {error}",
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

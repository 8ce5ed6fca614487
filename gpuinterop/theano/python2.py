"""Python 2 programs as Python 3: syntax by fissix, and the division of integers."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import operator
import re
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gpuinterop.errors import MissingLibraryError

from .old_libraries import restore

# Names of Python 2 that valid Python 3 can contain.
NAMES = frozenset(
    "ConfigParser Queue StringIO basestring cPickle cmp execfile file has_key iteritems itervalues izip long "
    "raw_input reduce unichr unicode urllib2 xrange".split()
)


def compiled(
    text: str, name: str, python2: bool = False, *, module: bool = False
) -> tuple[types.CodeType, dict[str, Any]]:
    """Compile source code of Python 3 or, if that fails or `python2` is true, of Python 2. Raises SyntaxError.

    Returns also the functions that a translated program calls, none for Python 3. In a `module` of a package, imports
    may be relative.
    """
    restore()
    if not python2:
        with suppress(SyntaxError):
            tree = ast.parse(text, name)
            if not any(map(_is_python2, ast.walk(tree))):
                return compile(tree, name, "exec"), {}
    try:
        after = _translated(text, name, module)
    except SyntaxError:
        if python2:
            with suppress(SyntaxError):
                return compile(text, name, "exec"), {}
        raise
    try:
        tree = ast.parse(after, name)
    except TabError:  # in Python 2 a tab ended at a multiple of eight columns
        tree = ast.parse(re.sub(r"(?m)^[ \t]+", lambda m: m[0].expandtabs(), after), name)
    if text.count("\n") != after.count("\n"):
        _renumber(tree, text.splitlines(), after.splitlines())
    tree = _OldMethods().visit(tree)
    if not any(_imports_division(statement) for statement in tree.body):
        tree = _Division().visit(tree)
    return compile(ast.fix_missing_locations(tree), name, "exec"), dict(_FUNCTIONS)


def _is_python2(node: ast.AST) -> bool:
    """Return whether a node is a print statement that is valid Python 3: ``print`` alone, or ``print >>file, x``."""
    match node:
        case ast.Expr(ast.Name("print")) | ast.BinOp(ast.Name("print"), ast.RShift()):
            return True
    return False


def _translated(text: str, name: str, module: bool = False) -> str:
    """Return Python 2 source code as Python 3."""
    try:
        from fissix.pgen2.parse import ParseError
        from fissix.pgen2.tokenize import TokenError
        from fissix.refactor import RefactoringTool, get_fixers_from_package
    except ImportError as error:
        raise MissingLibraryError(
            where="gpuinterop run",
            expected="the package fissix, because the program is not in Python 3",
            got=str(error),
            fix="pip install 'gpuinterop[pytensor]'",
        ) from error

    # "import" makes imports relative. "future" deletes the import that changes the division. `_execute` translates.
    left_out = (".fix_future", ".fix_execfile") + (() if module else (".fix_import",))
    fixers = [f for f in get_fixers_from_package("fissix.fixes") if not f.endswith(left_out)]
    try:
        return str(RefactoringTool(fixers).refactor_string(text.rstrip("\n") + "\n", name))
    except ParseError as error:
        line, column = error.context[1]
    except TokenError as error:
        line, column = error.args[1]
    shown = [*text.splitlines(), ""][line - 1]
    raise SyntaxError("neither Python 3 nor Python 2", (name, line, column + 1, shown))


def _renumber(tree: ast.AST, before: list[str], after: list[str]) -> None:
    """Give the nodes the line numbers of the Python 2 program: a translation can add and remove lines."""
    numbers: dict[int, int] = {}
    for _, i1, i2, j1, j2 in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        for j in range(j1, j2):
            numbers[j + 1] = max(1, min(i1 + j - j1 + 1, i2))
    for node in ast.walk(tree):
        for field in ("lineno", "end_lineno"):
            if hasattr(node, field):
                setattr(node, field, numbers[getattr(node, field)])


def _imports_division(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module == "__future__"
        and any(alias.name == "division" for alias in statement.names)
    )


class _OldMethods(ast.NodeTransformer):
    """Lets classes have the special methods of Python 2, and `sort` the arguments of its lists and NumPy's arrays."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        node.decorator_list.append(ast.copy_location(ast.Name("__old_class__", ast.Load()), node))
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match node:  # fissix takes the axis for a function that compares
            case ast.Call(
                ast.Attribute(x, "sort"), [], [ast.keyword("key", ast.Call(ast.Name("cmp_to_key"), [order]))]
            ):  # fmt: skip
                return _call("__sort__", x, order, node)
        return node


class _Division(ast.NodeTransformer):
    """Replaces ``a / b`` and ``a /= b`` by calls of the functions below."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return (
            _call("__divide__", node.left, node.right, node)
            if isinstance(node.op, ast.Div)
            else node
        )

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        # A second node for the target, which is read here.
        read = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        for part in ast.walk(read):
            ast.copy_location(part, node)
        value = _call("__divide_in_place__", read, node.value, node)
        return ast.copy_location(ast.Assign([node.target], value), node)


def _call(name: str, left: ast.expr, right: ast.expr, node: ast.AST) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(function, [left, right], []), node)


def _compare(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def _execute(path: Any, names: Any = None, local: Any = None) -> None:
    """Run a file in Python 2 as execfile did, by default in the caller's variables."""
    if names is None:
        caller = sys._getframe(1)
        names, local = caller.f_globals, caller.f_locals
    code, functions = compiled(
        importlib.util.decode_source(Path(path).read_bytes()), str(path), python2=True
    )
    names.update(functions)
    exec(code, names, local)


def _divide(a: Any, b: Any) -> Any:
    """Divide as Python 2 did: integers, arrays and symbolic variables of integers are rounded down."""
    return a // b if _is_integer(a) and _is_integer(b) else a / b


def _divide_in_place(a: Any, b: Any) -> Any:
    if _is_integer(a) and _is_integer(b):
        a //= b
    else:
        a /= b
    return a


def _is_integer(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return isinstance(value, int)
    with suppress(TypeError):
        return np.dtype(dtype).kind in "iu"
    return False


def _sort(x: Any, order: Any) -> Any:
    """Sort a list by a function that compares two elements, or an array along an axis."""
    return x.sort(key=functools.cmp_to_key(order)) if callable(order) else x.sort(order)


def _old_class(cls: Any) -> Any:
    """Give a class the special methods of Python 3 that do what its own do."""
    for name in ("div", "rdiv", "idiv"):
        if f"__{name}__" in vars(cls):
            setattr(cls, f"__{name.replace('div', 'truediv')}__", vars(cls)[f"__{name}__"])
    if "__cmp__" in vars(cls):
        for name in ("lt", "le", "eq", "ne", "gt", "ge"):
            setattr(cls, f"__{name}__", _comparison(getattr(operator, name)))
    return cls


def _comparison(operation: Any) -> Any:
    return lambda self, other: operation(self.__cmp__(other), 0)


# What translated programs call.
_FUNCTIONS = {
    "cmp": _compare, "execfile": _execute, "file": open, "__divide__": _divide, "__divide_in_place__": _divide_in_place,
    "__sort__": _sort, "__old_class__": _old_class,
}  # fmt: skip

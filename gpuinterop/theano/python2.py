"""Python 2 programs as Python 3: syntax by fissix, and the division of integers."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
import string
import sys
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gpuinterop.errors import MissingLibraryError

# Names of Python 2 that valid Python 3 can contain.
NAMES = frozenset(
    "ConfigParser Queue StringIO basestring cPickle clock cmp execfile file has_key iteritems itervalues izip long "
    "raw_input reduce unichr unicode urllib2 xrange".split()
)

# The names of `_divide` and `_divide_in_place` in a translated program.
DIVISIONS = ("__divide__", "__divide_in_place__")


def compiled(
    text: str, name: str, python2: bool = False, *, module: bool = False
) -> tuple[types.CodeType, dict[str, Any]]:
    """Compile source code of Python 3 or, if that fails or `python2` is true, of Python 2. Raises SyntaxError.

    Returns also the functions that a translated program calls, none for Python 3. In a `module` of a package, imports
    may be relative.
    """
    if not python2:
        with suppress(SyntaxError):
            return compile(text, name, "exec"), {}
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
    tree = _Modules(tree).visit(tree)
    if not any(_imports_division(statement) for statement in tree.body):
        tree = _Division().visit(tree)
    _restore_names()
    functions = dict(zip(DIVISIONS, (_divide, _divide_in_place), strict=True))
    return compile(ast.fix_missing_locations(tree), name, "exec"), {
        "cmp": _compare,
        "execfile": _execute,
        "file": open,
        **functions,
    }


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


class _Modules(ast.NodeTransformer):
    """Lets calls of old modules work: pickles of Python 2, axes of NumPy's sort, and names that NumPy has dropped."""

    def __init__(self, tree: ast.AST) -> None:
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
        aliases = (alias for node in imports for alias in node.names)
        self.modules = {alias.asname or alias.name: alias.name for alias in aliases}

    def name_of(self, node: ast.expr) -> str:
        """Return the full name of a module's attribute."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return f"{self.modules.get(node.value.id)}.{node.attr}"
        return ""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if not node.keywords and self.name_of(node.func) in ("pickle.load", "pickle.loads"):
            # Strings of Python 2 are bytes; those of an array are its data.
            node.keywords.append(ast.keyword("encoding", ast.Constant("latin1")))
        match node:  # fissix takes the axis for a function that compares
            case ast.Call(
                ast.Attribute(attr="sort"),
                [],
                [ast.keyword("key", ast.Call(ast.Name("cmp_to_key"), [axis]))],
            ):
                if isinstance(axis, (ast.Constant, ast.UnaryOp)):
                    node.args, node.keywords = [axis], []
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        module, _, name = self.name_of(node).partition(".")
        if module == "numpy" and name in ("complex", "float", "int", "object", "str"):
            return ast.copy_location(ast.Name(name, ast.Load()), node)  # what it was in NumPy
        return node


class _Division(ast.NodeTransformer):
    """Replaces ``a / b`` and ``a /= b`` by calls of the functions below."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _call(0, node.left, node.right, node) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        # A second node for the target, which is read here.
        read = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        for part in ast.walk(read):
            ast.copy_location(part, node)
        return ast.copy_location(ast.Assign([node.target], _call(1, read, node.value, node)), node)


def _call(number: int, left: ast.expr, right: ast.expr, node: ast.AST) -> ast.expr:
    function = ast.copy_location(ast.Name(DIVISIONS[number], ast.Load()), node)
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


def _restore_names() -> None:
    """Give modules the names that Python 3 dropped: methods of str as functions of string, and others."""
    vars(time)["clock"] = time.process_time
    methods = {name for name in dir(str) if not name.startswith("_")} - set(dir(string))
    vars(string).update(
        {name: getattr(str, name) for name in methods},
        join=lambda words, sep=" ": sep.join(words), atof=float, atoi=int, atol=int, letters=string.ascii_letters,
        lowercase=string.ascii_lowercase, uppercase=string.ascii_uppercase,
    )  # fmt: skip


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

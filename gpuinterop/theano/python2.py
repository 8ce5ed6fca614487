"""Python 2 programs as Python 3: syntax by fissix, and the division of integers."""

from __future__ import annotations

import ast
import builtins
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

from .old_builtins import BUILTINS, sort_key
from .old_libraries import restore

# Names of Python 2 that valid Python 3 can contain.
NAMES = frozenset(
    "ConfigParser Queue StringIO cPickle has_key iteritems itervalues izip urllib2".split()
) | (BUILTINS.keys() - vars(builtins).keys())


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
        after, numbers = _translated(text, name, module)
    except SyntaxError:
        if python2:
            with suppress(SyntaxError):
                return compile(text, name, "exec"), {}
        raise
    try:
        tree = ast.parse(after, name)
    except TabError:  # in Python 2 a tab ended at a multiple of eight columns
        tree = ast.parse(re.sub(r"(?m)^[ \t]+", lambda m: m[0].expandtabs(), after), name)
    except SyntaxError as error:
        line = numbers[min(error.lineno or 1, len(numbers)) - 1]
        raise SyntaxError(error.msg, (name, line, None, _line(text, line))) from None
    _renumber(tree, numbers)
    tree = _OldMethods().visit(tree)
    if not any(_imports_division(statement) for statement in tree.body):
        tree = _Division().visit(tree)
    return compile(ast.fix_missing_locations(tree), name, "exec"), {"__builtins__": _BUILTINS}


def _is_python2(node: ast.AST) -> bool:
    """Return whether a node is a print statement that is valid Python 3: ``print`` alone, or ``print >>file, x``."""
    match node:
        case ast.Expr(ast.Name("print")) | ast.BinOp(ast.Name("print"), ast.RShift()):
            return True
    return False


# Fixers of fissix that are not used. "future" would delete the import that changes the division, "import" makes imports
# relative. The others recognise built-in functions by their names, and change a program's own functions and
# parameters of these names too; programs get the functions of Python 2 instead.
_LEFT_OUT = (
    "future import apply basestring execfile filter input intern itertools itertools_imports long map raw_input reduce "
    "reload sorted standarderror xrange zip"
)


@functools.cache
def _translator(module: bool) -> Any:
    """Return fissix with the fixers for a program, or for a module of a package."""
    from fissix.fixes import fix_types
    from fissix.refactor import RefactoringTool, get_fixers_from_package

    fix_types._TYPE_MAPPING["StringType"] = "str"  # instead of bytes
    left_out = {f"fissix.fixes.fix_{name}" for name in _LEFT_OUT.split()}
    if module:
        left_out.remove("fissix.fixes.fix_import")
    return RefactoringTool(
        [f for f in get_fixers_from_package("fissix.fixes") if f not in left_out]
    )


def _translated(text: str, name: str, module: bool = False) -> tuple[str, list[int]]:
    """Return Python 2 source code as Python 3, and for each of its lines the number in the original."""
    try:
        from fissix.pgen2.parse import ParseError
        from fissix.pgen2.tokenize import TokenError
    except ImportError as error:
        raise MissingLibraryError(
            where="gpuinterop run",
            expected="the package fissix, because the program is not in Python 3",
            got=str(error),
            fix="pip install 'gpuinterop[pytensor]'",
        ) from error
    try:
        tree = _translator(module).refactor_string(text.rstrip("\n") + "\n", name)
        return str(tree), _numbers(tree)
    except ParseError as error:
        line, column = error.context[1]
    except TokenError as error:
        line, column = error.args[1]
    shown = _line(text, line)
    raise SyntaxError("neither Python 3 nor Python 2", (name, line, column + 1, shown))


def _line(text: str, number: int) -> str:
    return [*text.splitlines(), ""][number - 1]


def _numbers(tree: Any) -> list[int]:
    """Return the original number of each line: a token keeps its own, and those that fissix adds have none."""
    numbers = [0]
    for leaf in tree.leaves():
        numbers += [0] * leaf.prefix.count("\n")
        numbers[-1] = numbers[-1] or leaf.lineno
        numbers += [0] * leaf.value.count("\n")
    for i, number in enumerate(numbers):
        numbers[i] = number or (numbers[i - 1] + 1 if i else 1)
    return numbers


def _renumber(tree: ast.AST, numbers: list[int]) -> None:
    """Give the nodes the line numbers of the Python 2 program, and no columns, which differ from those of its lines."""
    located: Any
    for located in ast.walk(tree):
        if hasattr(located, "lineno"):
            located.lineno = numbers[located.lineno - 1]
            located.end_lineno = max(located.lineno, numbers[located.end_lineno - 1])
            located.col_offset = located.end_col_offset = -1


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
        match node:
            case ast.Call(ast.Attribute(x, "sort")) if node.args or node.keywords:
                node.func = ast.copy_location(ast.Name("__sort__", ast.Load()), node)
                node.args.insert(0, x)
        return node


class _Division(ast.NodeTransformer):
    """Replaces ``a / b`` and ``a /= b`` by calls of the functions below."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return (
            _call("__divide__", node, node.left, node.right)
            if isinstance(node.op, ast.Div)
            else node
        )

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        match node.target:
            case ast.Subscript(x, index):
                key = ast.Subscript(ast.Name("__key__", ast.Load()), index, ast.Load())
                call = _call("__divide_item__", node, x, ast.copy_location(key, node), node.value)
                return ast.copy_location(ast.Expr(call), node)
        # A second node for the target, which is read here.
        read = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        for part in ast.walk(read):
            ast.copy_location(part, node)
        value = _call("__divide_in_place__", node, read, node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def _call(name: str, node: ast.AST, *arguments: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(function, list(arguments), []), node)


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


class _Key:
    """Returns what is written in brackets: slices too."""

    def __getitem__(self, key: Any) -> Any:
        return key


def _divide_item(x: Any, key: Any, value: Any) -> None:
    x[key] = _divide_in_place(x[key], value)


def _is_integer(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return isinstance(value, int)
    with suppress(TypeError):
        return np.dtype(dtype).kind in "iu"
    return False


def _sort(x: Any, *arguments: Any, **options: Any) -> Any:
    """Call the method, whose arguments are other ones if it is that of a list."""
    if getattr(type(x), "sort", None) is not list.sort:
        return x.sort(*arguments, **options)
    options |= dict(zip(("cmp", "key", "reverse"), arguments, strict=False))
    x.sort(
        key=sort_key(options.get("cmp"), options.get("key")), reverse=options.get("reverse", False)
    )
    return None


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
_BUILTINS = {
    **BUILTINS, "execfile": _execute, "__divide__": _divide, "__divide_in_place__": _divide_in_place, "__key__": _Key(),
    "__divide_item__": _divide_item, "__sort__": _sort, "__old_class__": _old_class,
}  # fmt: skip

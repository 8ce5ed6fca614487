"""Write the stubs: gpuinterop/_core.pyi for the core, gpuinterop/__init__.pyi for the lazy names.

The build of the core runs it, with the file of the core: ``make_stub.py _core.abi3.so``. Without an argument
it describes the core that Python imports. git ignores the stubs.

nanobind's stub generator describes the functions and classes that nanobind binds. It cannot describe
the hand-written slots of the Array type: core_slots.pyi has their signatures, the module their
docstrings. The tool fails on a slot without a signature, or a signature without a slot. The stub repeats only the
docstrings of class members, which users reach through arrays, streams and events; those of functions are in
native/ and in help().
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from nanobind.stubgen import StubGen
from stub_tables import CLASSES, SUPPRESSED, UNDECLARED

ROOT = Path(__file__).parents[1]
BUILDING = __name__ == "__main__" and len(sys.argv) > 1
if BUILDING:  # a core that is built and not yet installed
    sys.path.insert(0, str(ROOT))
    spec = spec_from_file_location("gpuinterop._core", sys.argv[1])
    sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])

import gpuinterop  # noqa: E402
import gpuinterop.ndarray  # noqa: E402 - adds the reductions to the core's class
from gpuinterop import _core as core  # noqa: E402
from gpuinterop.elementwise.table import ALIASES, ROWS, Row  # noqa: E402
from gpuinterop.exchange import registry  # noqa: E402
from gpuinterop.reduce.table import REDUCTIONS, Reduction  # noqa: E402

SLOTS = ROOT / "tools" / "core_slots.pyi"
FACE_SLOTS = ROOT / "tools" / "face_slots.pyi"
HEAD = '"""Types of the native core. Written by `make stub` from tools/core_slots.pyi."""\n'


def name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return getattr(node, "name", "")


def with_docstring(node: ast.stmt, thing: Any) -> ast.stmt:
    """Return the declaration with the docstring that the module has for it."""
    text = inspect.getdoc(thing) if name_of(node)[:1] != "_" else None
    if text and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        body = [ast.Expr(ast.Constant(text))]
        node.body = body + ([] if isinstance(node, ast.FunctionDef) else node.body)
    return node


def merged_class(node: ast.ClassDef, cls: type) -> ast.ClassDef:
    """Return the class as written by hand, in the module's order and with its docstrings."""
    written: dict[str, list[ast.stmt]] = {}
    for member in node.body:
        written.setdefault(name_of(member), []).append(member)
    for row in REDUCTIONS.values() if cls is core.Array else ():
        if row.doc:
            written[row.name] = ast.parse(reduction_method(row)).body
    buffers = ["__buffer__"] if "__buffer__" in written else []  # an attribute from Python 3.12 on
    offered = [name for name in vars(cls) if name not in UNDECLARED] + buffers
    missing = [name for name in offered if name not in written]
    stale = [name for name in written if name not in offered]
    if missing or stale:
        sys.exit(
            f"{SLOTS.name}: class {cls.__name__}: missing {missing}, not in the module {stale}"
        )
    node.body = []
    for name in offered:  # of overloads, the last one carries the docstring
        *first, last = written[name]
        node.body += [*first, with_docstring(last, vars(cls).get(name))]
    doc = ast.Expr(ast.Constant(inspect.getdoc(cls)))
    node.body = [doc, *node.body]
    return node


def is_question(row: Reduction) -> bool:
    """Return whether the result is of another dtype than float32 also for float32."""
    return row.result(np.dtype(np.float32)) != np.float32


def reduction_method(row: Reduction) -> str:
    """Return the overloads of a reduction's method, without and with `out`."""
    types = {
        "out": "None = None",
        "ddof": "float = 0",
        "keepdims": "bool = False",
        "where": "Any = True",
    }
    words = row.parameters.split()
    fresh = [w if w == "*" else f"{w}: {types.get(w, 'Any = None')}" for w in words]
    at = words.index("out")
    given = [*fresh[:at], "*", "out: A", *(w for w in fresh[at + 1 :] if w != "*")]
    result = "GpuArray" if is_question(row) else "Self"
    return "".join(
        f"@overload\ndef {row.name}(self, {', '.join(parameters)}) -> {returned}: ...\n"
        for parameters, returned in ((fresh, result), (given, "A"))
    )


def reduction_family(row: Reduction) -> str:
    """Return the protocol in face_slots.pyi with the signature of a reduction."""
    if "dtype" in row.parameters:
        return "_Spread" if "ddof" in row.parameters else "_Sum"
    return "_Question" if is_question(row) else "_Extreme"


def corrected_class(written: ast.ClassDef, bound: ast.ClassDef) -> ast.ClassDef:
    """Return the class as nanobind describes it, with the types of some members written by hand."""
    corrections = {name_of(member): member for member in written.body}
    for i, member in enumerate(bound.body):
        hand = corrections.pop(name_of(member), None)
        if isinstance(hand, ast.FunctionDef) and isinstance(member, ast.FunctionDef):
            bound.body[i] = merged_function(hand, member)
    if corrections:
        sys.exit(f"{SLOTS.name}: class {bound.name}: not in the module {sorted(corrections)}")
    return bound


def without_refusals(cls: ast.ClassDef) -> ast.ClassDef:
    """Return the class without overloads that accept any arguments, because those only raise errors."""
    for member in list(cls.body):
        if (
            isinstance(member, ast.FunctionDef)
            and ast.unparse(member.args) == "self, *args, **kwargs"
        ):
            cls.body.remove(member)
            (taken,) = [node for node in cls.body if name_of(node) == member.name]
            if isinstance(taken, ast.FunctionDef):
                taken.decorator_list = []
    return cls


def merged_function(written: ast.FunctionDef, bound: ast.FunctionDef) -> ast.FunctionDef:
    """Return the function with the types written by hand; names and defaults must be the module's."""
    for part in (written, bound):
        names = [a.arg for a in [*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs]]
        defaults = [
            ast.unparse(d) for d in [*part.args.defaults, *filter(None, part.args.kw_defaults)]
        ]
        if part is written:
            expected = (names, defaults)
        elif (names, defaults) != expected:
            sys.exit(f"{SLOTS.name}: {part.name} takes {names} with defaults {defaults}")
    written.body = bound.body
    return written


class Generics(ast.NodeTransformer):
    """Adds type arguments, which strict type checkers require; nanobind writes `dict` if the C++ type has none."""

    OPEN = {  # noqa: RUF012
        "dict": "dict[str, Any]",
        "list": "list[Any]",
        "tuple": "tuple[Any, ...]",
        "Sequence": "Sequence[Any]",
    }

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        if not isinstance(node.value, ast.Name):
            node.value = self.visit(node.value)
        node.slice = self.visit(node.slice)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self.OPEN.get(node.id)
        return ast.parse(text, mode="eval").body if text else node


def core_stub() -> str:
    generator = StubGen(module=core, include_private=True, quiet=True)
    generator.put(core)
    bound = ast.parse(generator.get())
    slots = ast.parse(SLOTS.read_text(encoding="utf-8"))
    written: dict[str, list[ast.stmt]] = {}
    # Besides imports and aliases, classes that only the types need.
    head = [
        node
        for node in slots.body
        if not hasattr(node, "name")
        or (isinstance(node, ast.ClassDef) and not hasattr(core, node.name))
    ]
    for node in slots.body:
        if node not in head:
            written.setdefault(name_of(node), []).append(node)

    imports = {ast.unparse(node) for node in head if isinstance(node, (ast.Import, ast.ImportFrom))}
    body: list[ast.stmt] = []
    for node in bound.body:
        if isinstance(node, ast.Expr):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.add(ast.unparse(node))
            continue
        if isinstance(node, ast.ClassDef):
            node = without_refusals(node)
            node.body = [each for each in node.body if name_of(each) != "__signature__"]
        hands = written.pop(name_of(node), [])
        hand = hands[0] if len(hands) == 1 else None
        if len(hands) > 1:  # overloads
            body += [Generics().visit(one) for one in hands[:-1]]
            node = hands[-1]
        elif isinstance(hand, ast.ClassDef) and isinstance(node, ast.ClassDef):
            cls = getattr(core, hand.name)
            bound_here = "nanobind" in type(cls).__module__
            node = corrected_class(hand, node) if bound_here else merged_class(hand, cls)
        elif isinstance(hand, ast.FunctionDef) and isinstance(node, ast.FunctionDef):
            node = merged_function(hand, node)
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Expr(ast.Constant(...))]
        body.append(Generics().visit(node))
    if written:
        sys.exit(f"{SLOTS.name}: not in the module: {sorted(written)}")

    text = "\n".join(map(declaration, body))
    for line, code in SUPPRESSED.items():
        text = text.replace(line, f"{line}  # type: ignore[{code}]")
    used = [line for line in sorted(imports) if is_used(line, text, head)]
    used = [line for line in used if not any(repeats(line, other) for other in used)]
    other = [
        declaration(n) for n in head if not isinstance(n, (ast.Import, ast.ImportFrom, ast.Expr))
    ]
    return "\n".join([HEAD, *used, "", *other, "", text]) + "\n"


def declaration(node: ast.stmt) -> str:
    """Return the text of a declaration in the style of stubs: one without a docstring takes one line."""
    text = re.sub(r":\n +\.\.\.", ": ...", ast.unparse(ast.fix_missing_locations(node)))
    return re.sub(r"\n\n(?= +(?:@|def ))", "\n", text)


def repeats(line: str, other: str) -> bool:
    """Return whether another import statement binds all names of this one, and more."""
    module, _, names = line.partition(" import ")
    where, _, more = other.partition(" import ")
    return module == where and set(names.split(", ")) < set(more.split(", "))


def is_used(statement: str, text: str, head: list[ast.stmt]) -> bool:
    """Return whether a name that the import statement binds occurs below it."""
    (node,) = ast.parse(statement).body
    names = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    trees = [ast.parse(text), *(n for n in head if not isinstance(n, (ast.Import, ast.ImportFrom)))]
    return any(
        isinstance(part, ast.Name) and part.id in names for tree in trees for part in ast.walk(tree)
    )


def face_stub() -> str:
    """Declare the module or the signature of each lazy name of the package for type checkers."""
    text = FACE_SLOTS.read_text(encoding="utf-8")
    by_hand = check_signatures(ast.parse(text)) | {"to"}
    rows = {row.name: row for row in ROWS}
    rows |= {alias: rows[name] for alias, name in ALIASES.items()}
    reductions = {
        n: row for row in REDUCTIONS.values() if row.doc for n in (row.name, *row.aliases)
    }
    imports = [
        "from gpuinterop import converters as converters, fft as fft, linalg as linalg",
        "from gpuinterop import pytensor as pytensor, random as random",
        "from gpuinterop import testing as testing, theano as theano",
        "from gpuinterop._version import __version__ as __version__",
    ]
    made: list[str] = []
    modules = ""
    for module, names in gpuinterop._MODULES.items():
        words = sorted(set(names.split()) - by_hand)
        both = [name for name in words if module == f"gpuinterop.{name}"]
        words = [name for name in words if name not in both]
        modules += "".join(map(callable_module, both))
        operators = [name for name in words if name in rows]
        made += [f"{name}: {'_Add' if name == 'add' else family(rows[name])}" for name in operators]
        reduced = [name for name in words if name in reductions]
        made += [f"{name}: {reduction_family(reductions[name])}" for name in reduced]
        written = [name for name in words if name not in (*operators, *reduced)]
        if written and set(written) == set(getattr(import_module(module), "__all__", ())):
            imports.append(f"from {module} import *")
        elif len(written) == 1:
            imports.append(f"from {module} import {written[0]} as {written[0]}")
        elif written:
            lines = "".join(f"    {name} as {name},\n" for name in written)
            imports.append(f"from {module} import (\n{lines})")
    head, first, rest = text.partition("# The classes of")
    parts = [head + "\n".join(imports), "", "__all__: list[str]", "", first + rest]
    parts += ["# ---- modules that can be called like their function " + "-" * 45, "", modules]
    parts += ["# ---- conversions by name " + "-" * 69, "", conversions(), ""]
    parts += ["# ---- the table's operations " + "-" * 66, "", *sorted(made)]
    return "\n".join(parts) + "\n"


def conversions() -> str:
    """Return the overloads of `to`: the name of the library determines the class.

    A type checker accepts other names only by keyword, so that it finds a mistyped name.
    """
    modules = sorted({cls.partition(".")[0] for cls in CLASSES.values() if "." in cls} - {"np"})
    own = {"gpuinterop": "_Array", "cudandarray": "CudaNdarray"}
    names_of = {cls: [name] for name, cls in own.items()}
    for row in registry.backends():
        names_of.setdefault(CLASSES.get(row.name, "Any"), []).extend([row.name, *row.aliases])
    overloads = [
        f"def to(x: Any, library: Literal{names}, copyif: bool = False, **options: Any) -> {cls}: ..."
        for cls, names in names_of.items()
    ]
    overloads.append(
        "def to(x: Any, *, library: str, copyif: bool = False, **options: Any) -> Any: ..."
    )
    return "\n".join(
        [*(f"import {name}" for name in modules), "", *(f"@overload\n{f}" for f in overloads)]
    )


def callable_module(name: str) -> str:
    """Declare a module that can be called like the function of its name, as a class with the module's names."""
    module = import_module(f"gpuinterop.{name}")
    cls, lines = f"_{name.capitalize()}Module", []
    for each in sorted(module.__all__):
        value = getattr(module, each)
        if inspect.isroutine(value):
            lines.append(f"    {each} = staticmethod(_{name}.{each})")
        elif inspect.isclass(value):
            lines.append(f"    {each}: type[_{name}.{each}]")
        else:
            kind = type(value).__name__
            lines.append(f"    {each}: {Generics.OPEN.get(kind, kind)}")
    lines.append(f"    __call__ = staticmethod(_{name}.{name})")
    body = "\n".join(lines)
    return f"import gpuinterop.{name} as _{name}\n\nclass {cls}:\n{body}\n\n{name}: {cls}\n\n"


def check_signatures(slots: ast.Module) -> set[str]:
    """Return the public names declared by hand, after a check that their parameters are those of the package."""
    functions: dict[str, set[str]] = {}
    protocols = {node.name: node for node in slots.body if isinstance(node, ast.ClassDef)}
    for node in slots.body:
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, set()).update(parameters_of(node))
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            calls = protocols[ast.unparse(node.annotation)].body
            functions[name_of(node)] = set().union(*map(parameters_of, calls)) - {"self"}
    unknown = functions.keys() - set(gpuinterop.__all__)
    if unknown:
        sys.exit(f"{FACE_SLOTS.name}: not in the package: {sorted(unknown)}")
    for name, said in functions.items():
        function = getattr(gpuinterop, name)
        # NumPy's functions differ between its versions, and any of them can build the core.
        if BUILDING and function.__module__ == "gpuinterop.numpy_api.names":
            continue
        taken = set(inspect.signature(function).parameters)
        if said != taken:
            sys.exit(f"{FACE_SLOTS.name}: {name} takes {sorted(taken)}, not {sorted(said)}")
    return set(functions)


def parameters_of(node: ast.FunctionDef) -> set[str]:
    arguments = node.args
    rest = [a for a in (arguments.vararg, arguments.kwarg) if a]
    return {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]}


def family(row: Row) -> str:
    """Return the protocol in face_slots.pyi with the signature of an operator."""
    count = {1: "_Unary", 2: "_Binary"}[row.inputs]
    if row.results == 2:
        return count + "Pair"
    return count + ("Other" if gives_bools(row) or computes_in_double(row) else "")


def gives_bools(row: Row) -> bool:
    """Return whether the results of an operation are bools for operands of every dtype."""
    return all(types.endswith("->?") for types in row.rule.types if "O" not in types)


def computes_in_double(row: Row) -> bool:
    """Return whether the result of float32 is float64, as that of float_power is."""
    loops = {types[0] for types in getattr(row.numpy, "types", ())}
    return "d" in loops and "f" not in loops


STUBS = {
    ROOT / "gpuinterop" / "_core.pyi": core_stub,
    ROOT / "gpuinterop" / "__init__.pyi": face_stub,
}


if __name__ == "__main__":
    for path, make in STUBS.items():
        path.write_text(make(), encoding="utf-8")

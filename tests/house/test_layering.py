"""A module imports only lower layers, or its own folder; a C++ file includes likewise.

Imports inside functions count, and so does `import_module` with a name that can be read.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gpuinterop"

LAYERS = {
    "_version": 0,
    "errors": 0,
    "dtypes": 1,
    "cuda_libraries": 1,
    "foreign_handles": 1,
    "option_values": 1,
    "scalars": 1.5,
    "_core": 0,
    "warm": 2.1,
    "device_spec": 2.3,
    "streams": 2.6,
    "devices": 3,
    "copy_tracking": 3,
    "layout": 3,
    "installed_libraries": 3,
    "doctor_rules": 3.5,
    "error_context": 3.5,
    "jit": 4,
    "views": 4,
    "kernel_protocols": 4,
    "sources": 4,
    "ops": 5,
    "ndarray": 6,
    "creation": 6.5,
    "pinned": 6.5,
    "converters": 7,
    "explain": 8,
    "sharing": 8,
    "doctor": 8,
    "testing": 9,
    "cli": 9.5,
    "__main__": 10,
    "__init__": 10,  # lazy over all
}
# The package's face may be used from outside only: inside, a module names the file it means.
FACE = "__init__"

# What looks upward all the same: by name, when it is needed, and for the reason given.
LAZY = {
    (
        "sources",
        "converters",
    ): "foreign arrays are taken everywhere; converters are built on arrays",
    ("ops", "ndarray"): "results have the classes that the operators are part of",
}

# Folders of native/. The two of one number know nothing of each other.
NATIVE = {"array": 0, "cuda": 1, "exchange": 2, "ops": 2, "python": 3}
# What includes a higher folder all the same: where an array's memory and copies depend on its device.
# Only sources may, so that headers stay in order.
UPWARD = {
    ("array/array.cpp", "ops/graph.hpp"),
    ("array/buffer.cpp", "cuda/memory.hpp"),
    ("array/copy.cpp", "cuda/cuda.hpp"),
    ("array/copy.cpp", "ops/copy.hpp"),
    ("array/copy.cpp", "ops/graph.hpp"),
}


def layer_name(path: Path) -> str:
    """The entry of LAYERS that a file belongs to: its folder, or its own name."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported(tree: ast.AST, path: Path) -> list[tuple[int, str, bool]]:
    """(line, dotted name below gpuinterop, by import_module) of every import of this package."""
    package = ["gpuinterop", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for node in ast.walk(tree):
        by_name = isinstance(node, ast.Call)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                prefix = package[: len(package) - node.level + 1]
                base = ".".join([*prefix, *([node.module] if node.module else [])])
            else:
                base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in BY_NAME:
            names = [module_named(node, package, path)]
        else:
            continue
        ours = [name for name in names if name.split(".")[0] == "gpuinterop"]
        found += [(node.lineno, name, by_name) for name in ours]
    return found


BY_NAME = {"import_module", "__import__"}


def module_named(call: ast.Call, package: list[str], path: Path) -> str:
    """The module that import_module is called with; "" where only the running program knows."""
    own = {"__package__": ".".join(package), "__name__": ".".join([*package, path.stem])}
    if path.stem == "__init__":
        own["__name__"] = own["__package__"]
    name = call.args[0] if call.args else None
    if isinstance(name, ast.JoinedStr):
        parts = [ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else part.value
                 for part in name.values]  # fmt: skip
        # A name below our own package stays there, whatever its last part is.
        return own.get(parts[0], parts[0]) + "".join(parts[1:])
    return name.value if isinstance(name, ast.Constant) else ""


def target_layer(name: str) -> str:
    """The entry of LAYERS that an imported dotted name belongs to."""
    parts = name.split(".")
    if len(parts) == 1:
        return FACE
    if parts[1] in LAYERS:
        return parts[1]
    known = (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file()
    return parts[1] if known else FACE


def violations(path: Path, source: str, used: set[tuple[str, str]]) -> list[str]:
    """Lines like "ops/copy.py:12 (5 ops) imports ndarray (6)"."""
    here = layer_name(path)
    relative = path.relative_to(PACKAGE).as_posix()
    if here not in LAYERS:
        return [f"{relative}: {here} has no layer; give it one in tests/house/test_layering.py"]
    lines = []
    for line, name, by_name in imported(ast.parse(source), path):
        there = target_layer(name)
        if there == here or (here in ("__main__", "testing", "cli") and there == FACE):
            continue
        if by_name and (here, there) in LAZY:
            used.add((here, there))
            continue
        if there not in LAYERS or LAYERS[there] >= LAYERS[here]:
            number = LAYERS.get(there, "no layer")
            lines.append(f"{relative}:{line} ({LAYERS[here]} {here}) imports {there} ({number})")
    return lines


def test_layers_are_kept():
    lines: list[str] = []
    used: set[tuple[str, str]] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        lines += violations(path, path.read_text(encoding="utf-8"), used)
    print("\n".join(lines))
    assert not lines, "\n" + "\n".join(lines)
    assert used == LAZY.keys(), "an exception that nothing needs"


def includes(source: str) -> list[str]:
    """What a C++ text includes of its own project and by which headers it knows Python and CUDA."""
    return re.findall(
        r'^ *# *include +["<]((?:[a-z_]+/[a-z_]+\.hpp)|Python\.h|cuda\.h)', source, flags=re.M
    )


def upward(name: str, source: str) -> set[tuple[str, str]]:
    """The includes of a file of native/ that are not of lower folders or of its own."""
    here = name.split("/")[0]
    found = [header for header in includes(source) if "/" in header]
    return {
        (name, header)
        for header in found
        if header.split("/")[0] != here and NATIVE[header.split("/")[0]] >= NATIVE[here]
    }


def test_layers_of_the_core_are_kept():
    native = PACKAGE.parent / "native"
    found = set()
    for path in sorted(native.rglob("*.[ch]pp")):
        name = path.relative_to(native).as_posix()
        found |= upward(name, path.read_text(encoding="utf-8"))
    assert found == UPWARD
    assert {name.split("/")[0] for name in NATIVE} == {
        p.name for p in native.iterdir() if p.is_dir()
    }


def test_layouts_and_dtypes_know_neither_python_nor_cuda():
    native = PACKAGE.parent / "native"
    waiting = [f"array/{stem}.{end}" for stem in ("layout", "dtype") for end in ("hpp", "cpp")]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            path = native / name
            waiting += includes(path.read_text(encoding="utf-8")) if path.exists() else []
    assert reached.isdisjoint({"Python.h", "cuda.h"}), reached


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("ops/a.cpp", '#include "python/error_translation.hpp"\n', {("ops/a.cpp", "python/error_translation.hpp")}),
        ("ops/a.hpp", '#include <cstring>\n#include "exchange/import.hpp"\n',
         {("ops/a.hpp", "exchange/import.hpp")}),
        ("ops/a.cpp", '#include "ops/b.hpp"\n#include "cuda/cuda.hpp"\n#include <dlpack/dlpack.h>', set()),
    ],
)  # fmt: skip
def test_the_rule_of_includes(file, source, expected):
    assert upward(file, source) == expected


def test_contributing_draws_the_same_layers():
    page = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = page.partition("## Layers")[2].split("```")[1]
    drawn = re.findall(r"^([\d.]+) +(\w+(?:, \w+)*)", picture, flags=re.M)
    found = {name: float(number) for number, names in drawn for name in names.split(", ")}
    assert found == LAYERS


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        (
            "ops/copy.py",
            "from gpuinterop import ndarray",
            ["ops/copy.py:1 (5 ops) imports ndarray (6)"],
        ),
        ("ops/copy.py", "from ..ndarray import x", ["ops/copy.py:1 (5 ops) imports ndarray (6)"]),
        (
            "ops/copy.py",
            "def f():\n    import gpuinterop.converters.torch",
            ["ops/copy.py:2 (5 ops) imports converters (7)"],
        ),
        ("ops/copy.py", "from .elementwise import f", []),
        ("ops/copy.py", "from gpuinterop.errors import E\nimport numpy", []),
        (
            "ops/copy.py",
            "from gpuinterop import zeros",
            ["ops/copy.py:1 (5 ops) imports __init__ (10)"],
        ),
        (
            "cuda_libraries.py",
            "from gpuinterop.dtypes import x",
            ["cuda_libraries.py:1 (1 cuda_libraries) imports dtypes (1)"],
        ),
        ("errors.py", "import gpuinterop", ["errors.py:1 (0 errors) imports __init__ (10)"]),
        ("cli/demo.py", "import gpuinterop as gi", []),
        (
            "ops/copy.py",
            "def f():\n    return import_module('gpuinterop.converters.torch')",
            ["ops/copy.py:2 (5 ops) imports converters (7)"],
        ),
        (
            "ops/copy.py",
            "importlib.import_module('gpuinterop.ndarray')\n__import__('gpuinterop.cli.demo')",
            ["ops/copy.py:2 (5 ops) imports cli (9.5)"],
        ),
        ("ops/copy.py", "import_module(f'{__package__}.blas'); import_module(name)", []),
        ("cli/__init__.py", "import_module(f'{__name__}.{command}')", []),
        (
            "copy_tracking.py",
            "import_module(f'{__package__}.{name}')",
            ["copy_tracking.py:1 (3 copy_tracking) imports __init__ (10)"],
        ),
        (
            "stray.py",
            "",
            ["stray.py: stray has no layer; give it one in tests/house/test_layering.py"],
        ),
    ],
)
def test_the_rule_itself(file, source, expected):
    assert violations(PACKAGE / file, source, set()) == expected

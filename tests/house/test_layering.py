"""A module imports from its own layer or a lower one, and no imports form a circle; C++ includes likewise.

The picture in CONTRIBUTING.md says which layer a module is in. Imports inside functions count, and so does
`import_module` with a name that can be read. Names that come from a table at run time do not: public
names, converters, commands and cases of other packages are loaded on request.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpuinterop"
ALLOWED_UPWARD = {("array_inputs", "converters"), ("ops", "ndarray")}


class Import(NamedTuple):
    line: int
    target: str  # a module of the package, dotted
    by_name: bool  # by import_module
    typing_only: bool = False  # below `if TYPE_CHECKING:`, which never runs


def read_picture(page: str) -> tuple[dict[str, int], set[tuple[str, str]]]:
    """Return the layer of each name in a page's picture, and the upward edges that it names."""
    picture = next(block for block in page.split("```")[1::2] if "\n8 " in block)
    layers, number = {}, -1
    for line in picture.splitlines():
        start = re.match(r"(\d)? +((?:\w+, )*\w+)(?:  .*)?$", line)
        if start and start[1]:
            number = int(start[1])
            layers |= dict.fromkeys(start[2].split(", "), number)
    return layers, set(re.findall(r"^upward: (\w+) -> (\w+)", picture, flags=re.M))


PICTURE = read_picture((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
LAYERS, UPWARD_EDGES = dict(PICTURE[0]), PICTURE[1]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def entry_of(module: str) -> str:
    """The name in the picture that a module belongs to: its folder, or its own name."""
    return module.split(".")[1] if "." in module else "__init__"


def named_by_call(call: ast.Call, package: list[str], module: str) -> str:
    """The module that import_module is called with; "" where the name is computed."""
    own = {"__package__": ".".join(package), "__name__": module}
    name = call.args[0] if call.args else None
    if isinstance(name, ast.JoinedStr):
        parts = [ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else part.value
                 for part in name.values]  # fmt: skip
        return own.get(parts[0], "") + "".join(parts[1:])
    return name.value if isinstance(name, ast.Constant) else ""


def imports_of(path: Path, source: str) -> Iterator[Import]:
    """Every import of this package's modules in a file, those inside functions included."""
    module = module_name(path)
    package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        by_name = False
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*prefix, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
            "import_module",
            "__import__",
        ):
            by_name, names = True, [named_by_call(node, package, module)]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "gpuinterop":
                yield Import(node.lineno, module_in(name), by_name, id(node) in typing_only)


def module_in(name: str) -> str:
    """The module that has a dotted name: `gpuinterop.errors.ShapeError` is in gpuinterop.errors."""
    while name not in MODULES and name != "gpuinterop._core":
        name = name.rpartition(".")[0]
    return name


def violations(path: Path, source: str, used: set[tuple[str, str]]) -> list[str]:
    """Lines such as "ops/copy.py:12: ops (4) imports ndarray (5)"; allowed edges go to `used`."""
    importer = entry_of(module_name(path))
    file = path.relative_to(PACKAGE).as_posix()
    if importer not in LAYERS:
        return [f"{file}: {importer} is not in the picture of CONTRIBUTING.md"]
    lines = []
    for line, target, by_name, _ in imports_of(path, source):
        edge = importer, entry_of(target)
        if by_name and edge in UPWARD_EDGES:
            used.add(edge)
        elif edge[1] not in LAYERS or LAYERS[edge[1]] > LAYERS[importer]:
            layer = LAYERS.get(edge[1], "not in the picture")
            lines.append(
                f"{file}:{line}: {importer} ({LAYERS[importer]}) imports {edge[1]} ({layer})"
            )
    return lines


def test_each_module_imports_its_own_layer_or_lower_ones():
    lines: list[str] = []
    used: set[tuple[str, str]] = set()
    for path in MODULES.values():
        lines += violations(path, path.read_text(encoding="utf-8"), used)
    assert not lines, "\n" + "\n".join(lines)
    assert used == UPWARD_EDGES == ALLOWED_UPWARD


def test_no_imports_form_a_circle():
    graph = {
        module: {
            found.target
            for found in imports_of(path, path.read_text(encoding="utf-8"))
            if found.target != module
            and not found.typing_only
            and (entry_of(module), entry_of(found.target)) not in UPWARD_EDGES
        }
        for module, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_the_picture_has_every_module_and_nine_layers_at_most():
    entries = {entry_of(module) for module in MODULES} | {"_core"}
    assert LAYERS.keys() == entries
    assert set(LAYERS.values()) <= set(range(9))


def test_the_decision_draws_the_same_picture():
    page = (ROOT / "docs/adr/0021-the-second-house.md").read_text(encoding="utf-8")
    assert read_picture(page) == PICTURE


# Folders of native/. exchange and ops have one number and include nothing of each other.
NATIVE = {"array": 0, "cuda": 1, "exchange": 2, "ops": 2, "python": 3}
# Sources (never headers) that include a higher folder, because an array's memory and copies depend on its device.
NATIVE_UPWARD = {
    ("arrays/array.cpp", "captures/recorder.hpp"),
    ("devices/buffer.cpp", "devices/memory.hpp"),
    ("elementwise/copy.cpp", "devices/cuda.hpp"),
    ("elementwise/copy.cpp", "elementwise/calls.hpp"),
    ("elementwise/copy.cpp", "elementwise/host_program.hpp"),
    ("elementwise/copy.cpp", "elementwise/overlap.hpp"),
    ("elementwise/copy.cpp", "captures/recorder.hpp"),
    ("arrays/loans.cpp", "devices/device_state.hpp"),
    ("arrays/loans.cpp", "devices/stream.hpp"),
}


def includes(source: str) -> list[str]:
    """The headers of this project, Python.h and cuda.h that a C++ text includes."""
    return re.findall(
        r'^ *# *include +["<]((?:[a-z_]+/[a-z_]+\.hpp)|Python\.h|cuda\.h)', source, flags=re.M
    )


def upward_includes(name: str, source: str) -> set[tuple[str, str]]:
    """The includes of a file of native/ that lie neither in lower folders nor in its own."""
    folder = name.split("/")[0]
    found = [header for header in includes(source) if "/" in header]
    return {
        (name, header)
        for header in found
        if header.split("/")[0] != folder and NATIVE[header.split("/")[0]] >= NATIVE[folder]
    }


def test_each_folder_of_the_core_includes_lower_ones():
    native = ROOT / "native"
    found = set()
    for path in sorted(native.rglob("*.[ch]pp")):
        name = path.relative_to(native).as_posix()
        found |= upward_includes(name, path.read_text(encoding="utf-8"))
    assert found == NATIVE_UPWARD
    assert NATIVE.keys() == {path.name for path in native.iterdir() if path.is_dir()}


def test_the_core_calls_the_package_through_hooks_and_for_errors_only():
    imports = re.compile(r'(?:PyImport_\w+|import_)\(\s*"gpuinterop\.(\w+)')
    found = {
        (path.name, module)
        for path in (ROOT / "native").rglob("*.[ch]pp")
        for module in imports.findall(path.read_text(encoding="utf-8"))
    }
    assert found == {("error_translation.cpp", m) for m in ("errors", "error_messages")}


def test_layouts_and_dtypes_include_neither_python_nor_cuda():
    waiting = [f"array/{stem}.{end}" for stem in ("layout", "dtype") for end in ("hpp", "cpp")]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            path = ROOT / "native" / name
            waiting += includes(path.read_text(encoding="utf-8")) if path.exists() else []
    assert reached.isdisjoint({"Python.h", "cuda.h"}), reached

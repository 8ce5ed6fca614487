"""A module imports from a lower layer, its own folder, or a folder of its layer to its left; C++ includes likewise.

The picture in CONTRIBUTING.md says which layer a folder or module is in, and what stands to its left. Imports
inside functions count, and so does `import_module` with a name that can be read. Names that come from a table at
run time do not: public names, converters, commands and cases of other packages are loaded on request.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpuinterop"
NATIVE = ROOT / "native"
DECISION = ROOT / "docs/adr/0024-the-third-house.md"
MOST_MODULES_IN_ROOT = 7
MOST_SOURCES = 20  # of a folder; headers and tests aside


class Import(NamedTuple):
    line: int
    target: str  # a module of the package, dotted
    typing_only: bool = False  # below `if TYPE_CHECKING:`, which never runs


def read_picture(page: str) -> dict[str, tuple[int, int]]:
    """Return the layer and the place in it, from the left, of each name in a page's picture."""
    picture = next(block for block in page.split("```")[1::2] if "\n7  " in block)
    places: dict[str, tuple[int, int]] = {}
    for line in picture.splitlines():
        row = re.match(r"(\d)  ((?:\w+, )*\w+)(?:  .*)?$", line)
        if row:
            places |= {name: (int(row[1]), i) for i, name in enumerate(row[2].split(", "))}
    return places


def read_table_of_includes(page: str) -> dict[str, set[str]]:
    """Return the folders that each folder of native/ includes, from the table of the decision."""
    table = page.partition("| folder of native/ | includes |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|$", table, flags=re.M)
    return {folder: set(re.findall(r"`(\w+)`", text)) for folder, text in rows}


PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLACES = read_picture(PAGE)
LAYERS = {name: layer for name, (layer, _) in PLACES.items()}
INCLUDES = read_table_of_includes(DECISION.read_text(encoding="utf-8"))


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
            names = [named_by_call(node, package, module)]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "gpuinterop":
                yield Import(node.lineno, module_in(name), id(node) in typing_only)


def module_in(name: str) -> str:
    """The module that has a dotted name: `gpuinterop.errors.ShapeError` is in gpuinterop.errors."""
    while name not in MODULES and name != "gpuinterop._core":
        name = name.rpartition(".")[0]
    return name


def is_upward(importer: str, imported: str) -> bool:
    """Whether one entry of the picture is above the other, or beside it on the right."""
    return importer != imported and PLACES[imported] > PLACES[importer]


def upward_imports() -> dict[tuple[str, str], str]:
    """The pairs of modules of which the first imports the second from above, with the place."""
    found = {}
    for module, path in MODULES.items():
        for line, target, _ in imports_of(path, path.read_text(encoding="utf-8")):
            if is_upward(entry_of(module), entry_of(target)):
                found[module, target] = f"{path.relative_to(ROOT)}:{line} imports {target}"
    return found


def graph_of_imports() -> dict[str, set[str]]:
    """The modules that each module imports when its code runs, those imported inside functions too."""
    return {
        module: {
            found.target
            for found in imports_of(path, path.read_text(encoding="utf-8"))
            if found.target != module and not found.typing_only
        }
        for module, path in MODULES.items()
    }


def test_the_picture_has_every_module_and_eight_layers():
    assert PLACES.keys() == {entry_of(module) for module in MODULES} | {"_core"}
    assert set(LAYERS.values()) == set(range(8))


def test_no_module_imports_upwards():
    found = upward_imports()
    assert not found, "\n" + "\n".join(found.values())


def test_no_imports_form_a_circle():
    TopologicalSorter(graph_of_imports()).prepare()  # raises CycleError, which names the modules


def test_the_decision_draws_the_same_picture():
    page = DECISION.read_text(encoding="utf-8")
    assert read_picture(page) == PLACES


def sources_of(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.suffix in (".py", ".cpp")]


def test_the_tree_of_the_decision_names_every_source():
    tree = DECISION.read_text(encoding="utf-8").partition("## The tree")[2].split("```")[1]
    whole = {"pytensor", "dask", "ray", "collectives", "cli", "testing", "theano"}  # one line each
    assert whole <= set(re.findall(r"\b(\w+)/ ", tree))
    words = set(re.findall(r"[\w.*]+", tree))
    sources = [p for top in (PACKAGE, NATIVE) for p in top.rglob("*.*")]
    missing = [
        path.relative_to(ROOT).as_posix()
        for path in sources
        if path.suffix in (".py", ".cpp", ".hpp", ".cuh")
        and path.stem != "__init__"
        and path.relative_to(ROOT).parts[1] not in whole
        and not {path.name, f"{path.stem}.*"} & words
        and not (path.suffix == ".cuh" and path.stem in words)
    ]
    assert not missing, "add them to the tree of docs/adr/0024"


def test_the_root_and_each_folder_have_few_sources():
    root = [name for name in sources_of(PACKAGE) if name != "__init__.py"]
    assert len(root) <= MOST_MODULES_IN_ROOT, root
    folders = [path for top in (PACKAGE, NATIVE) for path in top.rglob("*") if path.is_dir()]
    most = {str(path.relative_to(ROOT)): len(sources_of(path)) for path in folders}
    assert not {name: count for name, count in most.items() if count > MOST_SOURCES}


def includes(source: str) -> list[str]:
    """The headers of this project, Python.h and cuda.h that a C++ text includes."""
    return re.findall(
        r'^ *# *include +["<]((?:[a-z_]+/[a-z_]+\.hpp)|Python\.h|cuda\.h)', source, flags=re.M
    )


def unlisted_includes() -> set[tuple[str, str]]:
    """The includes of the files in the folders of native/ that the table does not have."""
    found = set()
    for path in sorted(NATIVE.glob("*/*.[ch]pp")):
        folder = path.parent.name
        allowed = {folder, *INCLUDES.get(folder, ())}
        for header in includes(path.read_text(encoding="utf-8")):
            if "/" in header and header.split("/")[0] not in allowed:
                found.add((path.relative_to(NATIVE).as_posix(), header))
    return found


def test_each_folder_of_the_core_includes_the_folders_of_the_table():
    assert unlisted_includes() == set()
    assert INCLUDES.keys() == {path.name for path in NATIVE.iterdir() if path.is_dir()}
    TopologicalSorter(INCLUDES).prepare()  # the table has no circle either


def test_the_core_calls_the_package_through_hooks_and_for_errors_only():
    imports = re.compile(r'(?:PyImport_\w+|import_)\(\s*"gpuinterop\.(\w+)')
    found = {
        (path.name, module)
        for path in NATIVE.rglob("*.[ch]pp")
        for module in imports.findall(path.read_text(encoding="utf-8"))
    }
    assert found == {("error_translation.cpp", "errors")}


def test_layouts_and_dtypes_include_neither_python_nor_cuda():
    waiting = [f"arrays/{stem}.{end}" for stem in ("layout", "dtype") for end in ("hpp", "cpp")]
    assert all((NATIVE / name).exists() for name in waiting)
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            path = NATIVE / name
            waiting += includes(path.read_text(encoding="utf-8")) if path.exists() else []
    assert reached.isdisjoint({"Python.h", "cuda.h"}), reached

"""Rules that are read off the files: the length of functions, who reads what, and what stands in a table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gpuinterop as gi
import gpuinterop.testing

ROOT = Path(__file__).parents[2]
LONGEST = 60  # lines of a function
INTERNAL_IMPORTS = Path(__file__).with_name("internal_imports.txt")
PUBLIC = {*gi.__all__, "array_api", "collectives", "errors", "pytensor", "random", "theano"}
# The names of modules whose other names are internal. A converter's module may have functions for its users.
LISTED = {
    "cli": ("main",),
    "converters": (*gi.converters.__all__, "plan", "cupy", "numba", "pycuda"),
    "fft": gi.fft.__all__,
    "linalg": gi.linalg.__all__,
    "testing": gi.testing.__all__,
}

# Who sets the stream of a buffer, compares with it, or shows its number.
READERS_OF_STREAMS = {
    "devices/buffer.hpp", "devices/cuda.hpp", "devices/graph_memory.cpp", "devices/external_streams.cpp",
    "devices/memory.cpp", "devices/deferred_release.cpp", "devices/stream.cpp", "exchange/export_structs.cpp",
    "exchange/import_release.cpp", "reduce/launch_plan.cpp", "arrays/attributes.cpp",
}  # fmt: skip


def sources(*folders: str, ends: tuple[str, ...] = (".py",)) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ends:
                yield path, path.read_text(encoding="utf-8")


def functions(path: Path, text: str) -> Iterator[tuple[str, int]]:
    """The functions of a file, by name or first line, with their lengths in lines."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.end_lineno - node.lineno + 1
        return
    # clang-format begins and ends a function at the left edge. A `register_` function is a table of bindings.
    other = r"(namespace|struct|class|enum|union|extern|void register_)|.*(= |\] *)\{$"
    first = number = 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[\w}].*\{$", line) and not re.match(other, line):
            first, name = number, line
        elif line.startswith("}") and first:
            yield name, number - first + 1
            first = 0


def test_a_function_fits_a_screen():
    """A file is one subject, however long; a function has at most 60 lines."""
    found = sources(
        "gpuinterop", "native", "tools", "benchmarks", "examples", ends=(".py", ".cpp", ".hpp")
    )
    lengths = [
        (path.relative_to(ROOT), *row) for path, text in found for row in functions(path, text)
    ]
    assert len(lengths) > 2000  # both languages are read
    assert not [row for row in lengths if row[2] > LONGEST]


def test_test_modules_have_names_of_their_own():
    # pytest imports them by name alone, so two of one name would hide each other.
    names = [path.name for path in (ROOT / "tests").rglob("*.py")]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"__init__.py", "conftest.py"}


def test_tests_name_no_path_of_a_machine():
    """A path that a test needs to be missing is in a folder of its own, because a machine may have any other."""
    system = ("/bin/", "/dev/", "/etc/", "/proc/", "/sys/", "/usr/")
    absolute = []
    for path, text in sources("tests"):
        nodes = [*ast.walk(ast.parse(text))]
        parts = {
            id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values
        }
        texts = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in parts]
        found = [t for t in texts if isinstance(t, str) and re.fullmatch(r"(/[\w.-]{2,})+", t)]
        absolute += [f"{path.name}: {t}" for t in found if not t.startswith(system)]
    assert absolute == []


def test_the_table_of_environment_variables_names_all_that_are_read():
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", page, flags=re.M)
    assert len(named) == len(set(named))
    read: set[str] = set()
    for _, text in sources("gpuinterop", "native", ends=(".py", ".cpp", ".hpp")):
        for name, open_end in re.findall(r"[\"'](GPUINTEROP_[A-Z0-9_]+)(\{)?", text):
            # One name is completed with that of a library.
            ends = ["NVRTC", "CUBLAS", "CUBLASLT", "CUSOLVER", "CUFFT"] if open_end else [""]
            read |= {name + end for end in ends}
    assert set(named) == read >= {"GPUINTEROP_LIBCUDA", "GPUINTEROP_LIBNVRTC"}


def test_buffer_streams_are_read_only_by_listed_files():
    """A stored handle may belong to a destroyed stream; `cuda::live_stream` and `cuda::last_use_stream` check that."""
    at_rest = re.compile(r"\b(?:b|buffer)(?:\.get\(\))?(?:->|\.)stream\b|\blast_stream\(")
    found = sources("native", ends=(".cpp", ".hpp"))
    readers = {
        str(path.relative_to(ROOT / "native")) for path, text in found if at_rest.search(text)
    }
    assert readers == READERS_OF_STREAMS


def is_public(name: str) -> bool:
    """Whether users may write this dotted name, by the lists of names of the public modules."""
    package, first, second = (*name.split("."), "", "")[:3]
    if package != "gpuinterop" or not first or first.startswith("__"):
        return True
    if first in LISTED:
        generated = ("__", "to_", "from_") if first == "converters" else "__"
        return second in {*LISTED[first], ""} or second.startswith(generated)
    if (
        first in ("devices", "doctor", "errors")
        and (ROOT / f"gpuinterop/{first}/{second}.py").exists()
    ):
        return False
    return first in PUBLIC


def internal_names(tree: ast.AST) -> set[str]:
    """The private names of the package that a program imports, or reads through an imported module."""
    names: dict[str, str] = {}  # a local name: what it stands for
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"[\w.]+", dotted):
            local, _, rest = dotted.partition(".")
            found.add(f"{names.get(local, '')}.{rest}")
    return {name for name in found if not is_public(name)}


def test_only_listed_tests_use_private_names():
    """A test of public names stays when the inside changes. The list may lose lines, and gain none."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path, text in sources("tests")
        if internal_names(ast.parse(text))
    }
    lines = INTERNAL_IMPORTS.read_text(encoding="utf-8").splitlines()
    allowed = [line.partition("  ")[0] for line in lines]
    assert all(line.partition("  ")[2].strip() for line in lines), "a line ends with the reason"
    assert not found - set(allowed), "test it by public names"
    assert not set(allowed) - found, f"remove these lines from {INTERNAL_IMPORTS.name}"
    assert allowed == sorted(allowed)

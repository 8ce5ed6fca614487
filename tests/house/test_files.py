"""Rules that are read off the files: their length, who reads what, and what stands in a table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gpuinterop as gi
from gpuinterop import cuda_libraries

ROOT = Path(__file__).parents[2]
REPORT, LIMIT = 400, 600
INTERNAL_IMPORTS = Path(__file__).with_name("internal_imports.txt")
PUBLIC = {*gi.__all__, "converters", "errors", "pytensor", "testing", "theano"}

# Outside native/cuda/: who sets the stream of a buffer, compares with it, or shows its number.
READERS_OF_STREAMS = {
    "cuda/cuda.hpp", "cuda/graph_memory.cpp", "cuda/external_streams.cpp", "cuda/memory.cpp",
    "cuda/deferred_release.cpp", "cuda/stream.cpp", "exchange/export.cpp", "exchange/import_release.cpp",
    "ops/launch_plan.cpp", "python/array_attributes.cpp",
}  # fmt: skip


def sources(*folders: str, ends: tuple[str, ...] = (".py",)) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ends:
                yield path, path.read_text(encoding="utf-8")


def test_no_file_is_too_long(capsys):
    """A file stays readable in one sitting: past 400 lines it is reported, past 600 it fails."""
    folders = ("gpuinterop", "native", "tests", "tools", "benchmarks", "examples")
    found = sources(*folders, ends=(".py", ".cpp", ".hpp", ".cuh"))
    lengths = {path.relative_to(ROOT): len(text.splitlines()) for path, text in found}
    with capsys.disabled():
        for path, n in sorted(lengths.items(), key=lambda row: -row[1]):
            if n > REPORT:
                print(f"\n  {n} lines: {path}", end="")
    assert not [path for path, n in lengths.items() if n > LIMIT]


def test_test_modules_have_names_of_their_own():
    # pytest imports them by name alone, so two of one name would hide each other.
    names = [path.name for path in (ROOT / "tests").rglob("*.py")]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"__init__.py", "conftest.py"}


def test_the_table_of_environment_variables_names_all_that_are_read():
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    table = page.partition("## Environment variables")[2]
    named = re.findall(r"^\| `(\w+)` \|", table, flags=re.M)
    assert len(named) == len(set(named))
    read: set[str] = set()
    for _, text in sources("gpuinterop", "native", ends=(".py", ".cpp", ".hpp")):
        for name, open_end in re.findall(r"[\"'](GPUINTEROP_[A-Z0-9_]+)(\{)?", text):
            # One name is completed with that of a library.
            ends = [library.upper() for library in cuda_libraries._TITLES] if open_end else [""]
            read |= {name + end for end in ends}
    assert set(named) == read >= {"GPUINTEROP_LIBCUDA", "GPUINTEROP_LIBNVRTC"}


def test_buffer_streams_are_read_only_by_listed_files():
    """A stored handle may belong to a destroyed stream; `cuda::living` and `cuda::last_use` check that."""
    at_rest = re.compile(r"\b(?:b|buffer)(?:\.get\(\))?(?:->|\.)stream\b")
    found = sources("native", ends=(".cpp", ".hpp"))
    readers = {
        str(path.relative_to(ROOT / "native")) for path, text in found if at_rest.search(text)
    }
    assert readers == READERS_OF_STREAMS


def is_internal(node: ast.AST) -> bool:
    """Whether a test reads a private name of the package."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("gi", "gpuinterop"):
        names = [f"gpuinterop.{node.attr}"]
    else:
        return False
    parts = [name.split(".") for name in names]
    tops = [p[1] for p in parts if p[0] == "gpuinterop" and len(p) > 1]
    return any(top not in PUBLIC and not top.startswith("__") for top in tops)


def test_only_listed_tests_import_private_names():
    """A test of public names stays when the inside changes. The list may lose lines, and gain none."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path, text in sources("tests")
        if any(map(is_internal, ast.walk(ast.parse(text))))
    }
    allowed = INTERNAL_IMPORTS.read_text(encoding="utf-8").split()
    assert not found - set(allowed), "test it by public names"
    assert not set(allowed) - found, f"remove these lines from {INTERNAL_IMPORTS.name}"
    assert allowed == sorted(allowed)
    reads = (
        "from gpuinterop import _core",
        "import gpuinterop.ops",
        "gi._core.view",
        "from gpuinterop.jit import x",
    )
    assert all(any(map(is_internal, ast.walk(ast.parse(text)))) for text in reads)
    reads = "from gpuinterop import zeros", "from gpuinterop.errors import ShapeError", "gi.add"
    assert not any(is_internal(node) for text in reads for node in ast.walk(ast.parse(text)))

"""The source distribution is complete: its files suffice to build and test the package."""

import ast
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "benchmarks", "docs", "examples", "gpuinterop", "native", "tests", "tools")
MADE_HERE = {"__pycache__", ".hypothesis", ".pytest_cache"}
STUBS = {"gpuinterop/__init__.pyi", "gpuinterop/_core.pyi"}  # which the build writes


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    pytest.importorskip("scikit_build_core.build")
    place = tmp_path_factory.mktemp("sdist")
    code = "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(place)], cwd=ROOT, check=True, timeout=120)
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        # 3.10.12 and 3.11.4 were the first to have filters; a system's Python may be older.
        file.extractall(place, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder,) = (path for path in place.iterdir() if path.is_dir())
    return folder


def files_of(root: Path) -> set[str]:
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file())
    return {
        path.relative_to(root).as_posix()
        for path in found
        if path.suffix != ".so" and not MADE_HERE & set(path.parts)
    } - STUBS


def test_nothing_is_left_out(unpacked):
    assert files_of(unpacked) == files_of(ROOT)
    assert (unpacked / "pyproject.toml").read_bytes() == (ROOT / "pyproject.toml").read_bytes()


def imported_anywhere() -> set[str]:
    roots = set()
    for folder in ("gpuinterop", "tests", "tools", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Import):
                    roots |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    roots.add(node.module.partition(".")[0])
            roots |= set(re.findall(r"importorskip\(\"(\w+)", text))
    return roots


def test_extras_name_what_is_used():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = {need.replace("-", "_") for need in re.findall(r'"([\w-]+)[^"]*"', table)}
    assert {"ml_dtypes", "hypothesis"} <= extras
    # libs.py finds NVIDIA's by their files, pytest its plugins; an extra may mean another.
    by_other_means = {n for n in extras if n.startswith(("nvidia_", "pytest_", "gpuinterop"))}
    promised = {"pytensor"}
    assert extras - by_other_means - promised <= imported_anywhere()

"""Print the figures of ADR 21 (docs/adr/0021): today's, those before the decision, and the targets.

``python tools/house_figures.py`` prints a Markdown table. It counts only tracked files, and follows
each journey in a separate process; the journeys into torch need that library.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "house")]

import test_layering as layering  # noqa: E402 - its folder is on the path now

# Follows a call with sys.setprofile and prints the number of the package's files that it passes, that of its
# returns to a file that it had left, and the files.
JOURNEY = """
import os, sys
import numpy as np
import gpuinterop as gi

x = gi.asarray(np.ones((4, 4), "float32"), device="cpu")
root = os.path.dirname(gi.__file__)
files = []

def follow(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
        if not files or files[-1] != code.co_filename:
            files.append(code.co_filename)

call = {call}
sys.setprofile(follow)
call()
sys.setprofile(None)
print(len(set(files)), len(files) - len(set(files)), *(os.path.relpath(file, root) for file in files))
"""
JOURNEYS = {
    "to": "import torch\nto = gi.to\ncall = lambda: to(x, 'torch')",
    "explain": "import torch\nexplain = gi.explain\ncall = lambda: explain(x, 'torch')",
    "add": "call = lambda: x + x",
}


def tracked(*folders: str, suffixes: tuple[str, ...] = ()) -> list[Path]:
    """Return the tracked files below the folders that have one of the suffixes."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.exists() and (not suffixes or path.suffix in suffixes)]


def lines(paths: list[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def hooks() -> int:
    """Return the number of entries of the table by which the core calls Python."""
    table = (ROOT / "native/interpreter/hooks.hpp").read_text(encoding="utf-8")
    names = re.search(r"enum class Hook[^{]*\{([^}]*)\}", table)
    if not names:
        return 0
    entries = re.sub(r"//.*", "", names[1])
    return len([name for name in entries.split(",") if name.strip() and "Count" not in name])


def program_of(name: str) -> str:
    """Return the program that makes a journey."""
    return JOURNEY.replace("call = {call}", JOURNEYS[name])


def journey(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program_of(name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return "not installed" if "ModuleNotFoundError" in done.stderr else "failed"
    return " files, ".join(done.stdout.split()[:2]) + " returns"


def largest(folder: str) -> str:
    """Return the folder below with most sources, with their number; headers and tests aside."""
    top = ROOT / folder
    found = {path: len(layering.sources_of(path)) for path in top.rglob("*") if path.is_dir()}
    most = max(found, key=lambda path: (found[path], str(path)))
    return f"{most.relative_to(top)}, {found[most]}"


def circles() -> str:
    """Return the number of modules on circles of imports, those inside functions included."""
    graph, left = layering.graph_of_imports(), set(layering.MODULES)
    while ends := {name for name in left if not graph[name] & left}:
        left -= ends
    back = {name: {other for other in left if name in graph[other]} for name in left}
    while ends := {name for name in left if not back[name] & left}:
        left -= ends
    return str(len(left))


def tree() -> list[tuple[str, str, str, str]]:
    """Return the figures of the folders and their layers."""
    root = [name for name in layering.sources_of(layering.PACKAGE) if name != "__init__.py"]
    return [
        ("modules in the root of gpuinterop/", "31", str(len(root)), "7"),
        ("layers", "9", str(len(set(layering.LAYERS.values()))), "8"),
        ("modules on circles of imports", "15", circles(), "0"),
        ("imports that run upwards", "2", str(len(layering.upward_imports())), "0"),
        ("includes that the table does not have", "9", str(len(layering.unlisted_includes())), "0"),
        ("largest folder of gpuinterop/", "ops, 45", largest("gpuinterop"), "20"),
        ("largest folder of native/", "python, 30", largest("native"), "20"),
    ]


def figures() -> list[tuple[str, str, str, str]]:
    """Return rows of (figure, before, today, target)."""
    package = tracked("gpuinterop", "native")
    added = tracked("gpuinterop/pytensor", "gpuinterop/theano")  # since the decision
    tests_added = tracked("tests/pytensor_backend", "tests/documents")
    converters = tracked("gpuinterop/converters", suffixes=(".py",))
    return [
        (
            "lines of gpuinterop/ and native/",
            "45,906",
            f"{lines(package) - lines(added):,}",
            "38,000",
        ),
        ("lines of gpuinterop/pytensor/ and theano/", "", f"{lines(added):,}", ""),
        (
            "lines of tests/",
            "40,729",
            f"{lines(tracked('tests')) - lines(tests_added):,}",
            "34,000",
        ),
        ("lines of tests/pytensor_backend/ and documents/", "", f"{lines(tests_added):,}", ""),
        ("files of converters/", "38", str(len(converters)), "24"),
        ("lines of converters/", "5,979", f"{lines(converters):,}", "3,800"),
        *tree(),
        ("functions by which the core calls Python", "23", str(hooks()), "8"),
        ('a first to(x, "torch")', "10 files, 12 returns", journey("to"), "6 files, 4 returns"),
        ("a first explain", "18 files, 53 returns", journey("explain"), "8 files, 12 returns"),
        ('a first x + x on "cpu"', "8 files, 23 returns", journey("add"), "8 files, 10 returns"),
    ]


def main() -> None:
    print("| figure | before | today | target |")
    print("| --- | --- | --- | --- |")
    for row in figures():
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()

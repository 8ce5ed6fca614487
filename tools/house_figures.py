"""Print the figures of ADR 24 (docs/adr/0024): those before the decision, today's, and the targets.

``python tools/house_figures.py`` prints two Markdown tables, of the whole and of its folders. It counts only tracked
files, and follows each journey in a separate process; the journeys into torch need that library. ``--times`` also runs
and times ``make test`` and ``.ci/run``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
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
files, Refused = [], gi.GpuInteropError

# Whether an import runs this: a module's own code, or what that calls, such as decorators.
def imports(frame):
    while frame and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame and frame.f_code.co_filename.startswith(root)

def follow(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and not imports(frame):
        if not files or files[-1] != code.co_filename:
            files.append(code.co_filename)

call = {call}
sys.setprofile(follow)
try:
    call()
except Refused:
    pass
sys.setprofile(None)
print(len(set(files)), len(files) - len(set(files)), *(os.path.relpath(file, root) for file in files))
"""
JOURNEYS = {
    "to": "import torch\nto = gi.to\ncall = lambda: to(x, 'torch')",
    "explain": "import torch\nexplain = gi.explain\ncall = lambda: explain(x, 'torch')",
    "refused": "import torch\nt = torch.ones(3, device='meta')\nf = gi.from_any\ncall = lambda: f(t)",
    "add": "call = lambda: x + x",
    "sum": "call = lambda: x.sum(axis=0)",
    "kernel": "k = gi.ElementwiseKernel('float x', 'float y', 'y = x + 1')\ncall = lambda: k(x, x)",
    "fused": "f = gi.fuse(lambda a: (a * a).sum(axis=0))\ncall = lambda: f(x)",
}
# Prints the number of the package's Python functions that the third of equal calls runs.
WARM = """
import os, sys
import numpy as np
import gpuinterop as gi

x = gi.asarray(np.ones((8, 8), "float32"), device="cpu")
idx, mask, out = gi.asarray([1, 2], "int64", device="cpu"), x > 0, gi.empty_like(x)
fused, reduced = gi.fuse(lambda a: a * 2 + 1), gi.fuse(lambda a: (a * a).sum(axis=0))
root = os.path.dirname(gi.__file__)
count = 0

def follow(frame, event, argument):
    global count
    count += event == "call" and frame.f_code.co_filename.startswith(root)

def call():
    return {call}

call(), call()
sys.setprofile(follow)
call()
sys.setprofile(None)
print(count)
"""
WARM_CALLS = [
    "x + x", "x.sum(0)", "x @ x", "x[1:]", "x.reshape(-1)", "x[idx]", "x[mask]", "gi.zeros((8, 8))", "gi.arange(64)",
    "gi.linspace(0, 1, 64)", "gi.full(64, 2, device='cpu')", "x.astype('float64')", "gi.astype(x, 'int32', copy=False)",
    "x.clip(0, 1)", "x.round(2)", "x.take(idx, axis=0)", "gi.concatenate((x, x))", "gi.stack((x, x))", "np.roll(x, 1)",
    "np.sum(x)", "gi.where(x, x, x)",
    "x.argmax()", "gi.add(x, x, out=out)", "x.sum(0, keepdims=True)", "fused(x)", "reduced(x)",
]  # fmt: skip


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


def output_of(program: str) -> list[str]:
    """Return the words that a program prints, or why it printed none."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return ["not installed" if "ModuleNotFoundError" in done.stderr else "failed"]
    return done.stdout.split()


def journey(name: str) -> str:
    return " files, ".join(output_of(program_of(name))[:2]) + " returns"


def warm_calls() -> str:
    """Return the warm calls that run Python functions of the package, with their numbers."""
    found = {call: output_of(WARM.replace("{call}", call))[0] for call in WARM_CALLS}
    named = [f"`{call}` {count}" for call, count in found.items() if count != "0"]
    return ", ".join([f"0 in {len(found) - len(named)} of {len(found)}", *named])


def places(recipe: str) -> str:
    """Return the number of files of the package that the numbered steps of a recipe begin with."""
    page = (ROOT / "docs/extending" / f"{recipe}.md").read_text(encoding="utf-8")
    steps = re.split(r"^\d+\. ", page, flags=re.M)[1:]
    named = (re.match(r"[^`]*`((?:gpuinterop|native)/[^`]*\.\w+)`", step) for step in steps)
    always = {match[1] for step, match in zip(steps, named, strict=True)
              if match and not step.startswith(("Only if", "If"))}  # fmt: skip
    return str(len(always) + page.count(", and in `native/") + page.count(" and `native/"))


def floors() -> dict[str, int]:
    """Return the length of the longest chain of imports inside each folder of gpuinterop/."""
    graph, deepest = layering.graph_of_imports(), {}
    entries = {name: layering.entry_of(name) for name in graph}

    def height(name: str) -> int:
        inner = [
            m
            for m in graph[name]
            if m in entries and entries[m] == entries[name] != m.rpartition(".")[2]
        ]
        return 1 + max(map(height, inner), default=0)

    for name, entry in entries.items():
        deepest[entry] = max(deepest.get(entry, 0), height(name))
    return deepest


def deepest_folder() -> str:
    """Return the folder of the most floors, with their number; those that use the package as its users do aside."""
    found = floors()
    for rare in ("testing", "pytensor", "theano", "cli"):
        found.pop(rare, None)
    most = max(found, key=lambda entry: (found[entry], entry))
    return f"{most}, {found[most]}"


def folders() -> list[tuple[str, str, str, str, str]]:
    """Return rows of (folder, sources, floors, lines, lines of tests), the largest first."""
    sources, code, tests, deep = Counter(), Counter(), Counter(), floors()
    homes = {"pytensor_backend": "pytensor", "testing_suite": "testing"}
    for path in tracked("gpuinterop", "native", "tests"):
        top, *inside = path.relative_to(ROOT).parts
        name = inside[0] if len(inside) > 1 else "(root)"
        count = lines([path])
        if top == "tests":
            tests[homes.get(name, name)] += count
        else:
            code[name] += count
            sources[name] += path.suffix in (".py", ".cpp")
    names = sorted({*code, *tests}, key=lambda name: (-code[name], -tests[name]))
    return [
        (name, str(sources[name]), str(deep.get(name, "")), f"{code[name]:,}", f"{tests[name]:,}")
        for name in names
    ]


def duration(*command: str) -> str:
    """Return the minutes and seconds that a command takes."""
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    return f"{minutes}:{seconds:02}" + f", status {code}" * bool(code)


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
        ("floors of imports in the deepest folder", "ops, 20", deepest_folder(), ""),
    ]


def minus(paths: list[Path], aside: list[Path]) -> str:
    """Return the lines of the first that are not in the second."""
    return f"{lines(paths) - lines(aside):,}"


def figures() -> list[tuple[str, str, str, str]]:
    """Return rows of (figure, before, today, target)."""
    package = tracked("gpuinterop", "native")
    aside = tracked("gpuinterop/pytensor", "gpuinterop/theano", "gpuinterop/testing")
    tests_aside = tracked("tests/pytensor_backend", "tests/documents")
    return [
        ("lines of gpuinterop/ and native/ but the next row", "41,300", minus(package, aside), "40,000"),
        ("lines of pytensor/, theano/ and testing/", "", f"{lines(aside):,}", ""),
        ("lines of tests/ but pytensor_backend/ and documents/", "", minus(tracked("tests"), tests_aside), "36,000"),
        *tree(),
        ("functions by which the core calls Python", "7", str(hooks()), "8"),
        *((f"files to touch for a new {name}", "", places(name), most)
          for name, most in (("operator", "2"), ("reduction", "3"), ("dtype", "3"), ("converter", "3"))),
        ('a first to(x, "torch")', "6 files, 4 returns", journey("to"), "6 files, 4 returns"),
        ("a first explain", "8 files, 12 returns", journey("explain"), "8 files, 12 returns"),
        ("a refused from_any", "12 files, 9 returns", journey("refused"), "8 files, 5 returns"),
        ('a first x + x on "cpu"', "8 files, 10 returns", journey("add"), "8 files, 10 returns"),
        ('a first x.sum(axis=0) on "cpu"', "11 files, 19 returns", journey("sum"), "8 files, 8 returns"),
        ("a first call of an ElementwiseKernel", "", journey("kernel"), ""),
        ("a first call of a fused function with a sum", "", journey("fused"), ""),
        ("Python functions of warm calls", "fused sum 14", warm_calls(), "0"),
    ]  # fmt: skip


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    for row in (head, ("---",) * len(head), *rows):
        print(f"| {' | '.join(row)} |")


def main() -> None:
    print_table(("figure", "before", "today", "target"), figures())
    print()
    print_table(("folder", "sources", "floors", "lines", "lines of tests"), folders())
    if "--times" in sys.argv:
        limits = {"make test": "2:30", ".ci/run": "20:00"}
        rows = [(words, duration(*words.split()), most) for words, most in limits.items()]
        print()
        print_table(("command", "time", "target"), rows)


if __name__ == "__main__":
    main()

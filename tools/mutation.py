#!/usr/bin/env python3
"""Mutation tests: apply the small faults of mutants.txt one by one, and check whether a test fails.

    .venv/bin/python tools/mutation.py --jobs 16 --out after.json
    git worktree add ../before COMMIT
    .venv/bin/python tools/mutation.py --tree ../before --jobs 16 --out before.json
    .venv/bin/python tools/mutation.py --compare before.json after.json

The tree is a checkout or an unpacked archive. The core is built once. Each worker has a copy of the tree,
compiles the file of its mutant, and runs the tests that mutants.txt names for the file, without a GPU. Tests
that fail without a mutant are omitted. The Python that runs this needs the packages that `make test` installs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("mutants.txt")
LIMIT_S = 900  # a mutant may loop forever
MEMORY = 24 << 30
# The tests are the same on every machine: none uses a GPU, on which only one run is possible at a time.
ENVIRONMENT = {"CI": "true", "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Mutant:
    """A line of a file, its replacement, and the tests that must fail."""

    file: str
    tests: tuple[str, ...]
    original: str
    mutated: str


def read_list(text: str) -> tuple[list[Mutant], dict[str, list[str]]]:
    """Return the mutants, and the earlier names of files."""
    mutants, file, tests, original = [], "", (), ""
    earlier: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("@ "):
            file, _, listed = line[2:].partition(" | ")
            tests = tuple(listed.split())
        elif line.startswith("- "):
            original = line[2:]
        elif line.startswith("+ "):
            mutants.append(Mutant(file, tests, original, line[2:]))
        elif " < " in line and not line.startswith("#"):
            today, _, before = line.partition(" < ")
            earlier.setdefault(today, []).append(before)
    return mutants, earlier


def copy_sources(tree: Path, place: Path) -> None:
    """Copy the files that git tracks, or all files of a tree from an archive."""
    if (tree / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=tree, check=True, capture_output=True, text=True,
        ).stdout.split("\0")  # fmt: skip
    else:
        listed = [str(path.relative_to(tree)) for path in tree.rglob("*")]
    for name in filter(None, listed):
        if (tree / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, place / name)


class Core:
    """The core without a mutant. A mutant compiles its own file, and links it with the objects of this one."""

    def __init__(self, tree: Path, place: Path, jobs: int) -> None:
        self.place, self.build_dir = place, place / "build/mutation"
        copy_sources(tree, place)
        options = {
            "Python_EXECUTABLE": sys.executable, "GPUINTEROP_UNITY": "OFF",
            "CMAKE_BUILD_TYPE": "Release", "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
            "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        }  # fmt: skip
        tool = Path(sys.executable).parent
        ninja = [tool / "ninja", "-C", self.build_dir]
        subprocess.run(
            [tool / "cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool / 'ninja'}",
             "-S", place / "native", "-B", self.build_dir, *(f"-D{k}={v}" for k, v in options.items())],
            check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run([*ninja, "-j", str(jobs)], check=True, capture_output=True)
        (self.module,) = self.build_dir.glob("_core*.so")
        entries = json.loads((self.build_dir / "compile_commands.json").read_text())
        self.compile = {
            str(Path(entry["file"]).relative_to(place)): entry["command"]
            for entry in entries
            if Path(entry["file"]).is_relative_to(place)
        }
        commands = subprocess.run(
            [tool / "ninja", "-C", self.build_dir, "-t", "commands"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.link = next(
            line for line in commands.stdout.splitlines() if f" -o {self.module.name} " in line
        )

    def build(self, file: str, place: Path, module: Path) -> bool:
        """Build the core of a copy of the tree in which this file has a mutant."""
        command, mutant = self.compile[file], str(place / "mutant.o")
        compiled = command.partition(" -o ")[2].partition(" ")[0]
        # All includes come from the copy too, because each header must be found in one place only.
        own = command.replace(str(self.place / "native"), str(place / "native"))
        link = self.link.replace(f" -o {self.module.name} ", f" -o {module} ")
        return all(
            subprocess.run(
                line.replace(f" {compiled} ", f" {mutant} "),
                shell=True, cwd=self.build_dir, check=False, capture_output=True,
            ).returncode == 0
            for line in (own, link)
        )  # fmt: skip


class Worker:
    """A copy of the tree that can be tested."""

    def __init__(self, tree: Path, place: Path, core: Core | None) -> None:
        self.place, self.core = place, core
        self.earlier_layout = not (tree / "tests/doubles").exists()
        copy_sources(tree, place)
        # Packages come from the environment of this Python, but gpuinterop from the copy: an editable
        # installation does not reach through a .pth file.
        venv = place / ".mutation"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        packages = next(venv.glob("lib/python*/site-packages"))
        shared = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "mutation.pth").write_text("\n".join([str(place), *shared]) + "\n")
        # cuda-pathfinder searches for CUDA's libraries in the environment's own folder.
        for wheels in [Path(path, "nvidia") for path in shared if Path(path, "nvidia").exists()][
            :1
        ]:
            (packages / "nvidia").symlink_to(wheels)
        self.python = venv / "bin/python"
        self.original = core.module if core else self.installed_core(tree)
        self.module = place / "gpuinterop" / self.original.name
        shutil.copy2(self.original, self.module)

    @staticmethod
    def installed_core(tree: Path) -> Path:
        for core in (tree / "gpuinterop").glob("_core*.so"):
            return core
        code = "import gpuinterop._core as c; print(c.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tree, check=True, capture_output=True, text=True
        )
        return Path(done.stdout.strip())

    def build(self, file: str) -> bool:
        assert self.core
        self.module.unlink()
        return self.core.build(file, self.place, self.module)

    def passes(self, tests: tuple[str, ...], left_out: dict[str, list[str]]) -> bool:
        return all(self.run_tests(name, ["-x"], left_out.get(name, ())) for name in tests)

    def failing(self, name: str) -> list[str] | None:
        """Return the tests of a folder that fail without a mutant, or None if they cannot be run."""
        report = self.place / "report.xml"
        report.unlink(missing_ok=True)
        if self.run_tests(name, [f"--junitxml={report}", "-o", "junit_family=xunit1"], ()):
            return []
        if not report.exists():
            return None
        found = []
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                file, test = case.get("file"), case.get("name")
                if file is None:
                    return None
                # The class of a test is the part of its class name after the module.
                module = file.removesuffix(".py").replace("/", ".")
                inner = case.get("classname", "").removeprefix(module).strip(".")
                found.append("::".join(filter(None, (file, inner.replace(".", "::"), test))))
        return found or None

    def run_tests(self, name: str, options: list[str], left_out: Iterable[str]) -> bool:
        on_fake, folder = name.startswith("fake:"), f"tests/{name.removeprefix('fake:')}"
        if not on_fake:
            options = [*options, "-m", "not slow and not bench"]
        elif self.earlier_layout:  # it starts the fake driver in tests of this name
            options = [*options, "-m", "not bench", "-k", "fake"]
        else:
            options = [*options, "-m", "not bench", "--driver=fake"]
        process = subprocess.Popen(
            [self.python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout=120",
             *options, *(f"--deselect={test}" for test in left_out), folder],
            cwd=self.place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **ENVIRONMENT}, preexec_fn=limit_memory,
        )  # fmt: skip
        try:
            return process.wait(LIMIT_S) in (0, 5)  # 5: no test there
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return False

    def outcome(self, mutant: Mutant, file: str, left_out: dict[str, list[str]]) -> str:
        path = self.place / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text.splitlines(keepends=True)
        found = [i for i, line in enumerate(lines) if line.strip() == mutant.original]
        if len(found) != 1:
            return "absent"
        indent = lines[found[0]][: -len(lines[found[0]].lstrip())]
        lines[found[0]] = f"{indent}{mutant.mutated}\n"
        native = file.endswith(".cpp")
        path.write_text("".join(lines), encoding="utf-8")
        try:
            if native and not self.build(file):
                return "invalid"
            return "survived" if self.passes(mutant.tests, left_out) else "killed"
        finally:
            path.write_text(text, encoding="utf-8")
            if native:
                shutil.copy2(self.original, self.module)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def key(mutant: Mutant) -> str:
    return f"{mutant.file}: {mutant.original}  =>  {mutant.mutated}"


def run(arguments: argparse.Namespace) -> int:
    mutants, earlier = read_list(LIST.read_text(encoding="utf-8"))
    mutants = [m for m in mutants if arguments.only in key(m)][:: arguments.every]
    tree = arguments.tree.resolve()
    names = {
        m.file: next((n for n in (m.file, *earlier.get(m.file, ())) if (tree / n).exists()), m.file)
        for m in mutants
    }
    native = any(name.endswith(".cpp") for name in names.values())
    results: dict[str, str] = {}
    last = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        core = Core(tree, Path(place) / "core", arguments.jobs) if native else None
        idle: queue.Queue[Worker] = queue.Queue()
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for worker in pool.map(
                lambda i: Worker(tree, Path(place) / str(i), core), range(arguments.jobs)
            ):
                idle.put(worker)

            def with_worker(task):
                worker = idle.get()
                try:
                    return task(worker)
                finally:
                    idle.put(worker)

            folders = sorted({name for m in mutants for name in m.tests})
            failing = pool.map(lambda f: with_worker(lambda w: w.failing(f)), folders)
            left_out: dict[str, list[str]] = {}
            broken = set()
            for name, tests in zip(folders, failing, strict=True):
                if tests is None:
                    broken.add(name)
                    print(
                        f"{name}: cannot be run without a mutant, so it proves nothing", flush=True
                    )
                else:
                    left_out[name] = tests
                    for test in tests:
                        print(f"omitted, fails without a mutant: {test}", flush=True)

            def judge(mutant: Mutant) -> None:
                begin = time.monotonic()
                if begin > last:
                    return
                tests = tuple(name for name in mutant.tests if name not in broken)
                mutant_here = Mutant(mutant.file, tests, mutant.original, mutant.mutated)
                result = with_worker(lambda w: w.outcome(mutant_here, names[mutant.file], left_out))
                results[key(mutant)] = result
                print(f"{result:9} {time.monotonic() - begin:5.0f} s  {key(mutant)}", flush=True)

            list(pool.map(judge, mutants))
    counts = {kind: list(results.values()).count(kind) for kind in sorted(set(results.values()))}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if len(results) < len(mutants):
        print(f"{len(mutants) - len(results)} not tried in {arguments.minutes:g} minutes")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1, sort_keys=True))
    return 0


def compare(before: Path, after: Path) -> int:
    """Print the mutants that only one of two runs killed; status 1 if a run lost one."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    both = [name for name in old if {old[name], new.get(name)} <= {"killed", "survived"}]
    lost = [name for name in both if old[name] == "killed" and new[name] == "survived"]
    won = [name for name in both if old[name] == "survived" and new[name] == "killed"]
    killed = sum(old[name] == new[name] == "killed" for name in both)
    print(f"{len(both)} mutants in both trees: {killed} killed by both")
    for word, names in (("no longer killed", lost), ("newly killed", won)):
        for name in names:
            print(f"{word}: {name}")
    return int(bool(lost))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=ROOT, help="the sources and tests to mutate")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants with this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one mutant of N")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no mutant after this time"
    )
    parser.add_argument("--out", type=Path, help="a JSON file for --compare")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    return compare(*arguments.compare) if arguments.compare else run(arguments)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Mutation tests: apply the small faults of mutants.txt one by one, and see whether a test notices.

    .venv/bin/python tools/mutation.py --jobs 16 --out after.json
    git worktree add ../before COMMIT
    .venv/bin/python tools/mutation.py --tree ../before --jobs 16 --out before.json
    .venv/bin/python tools/mutation.py --compare before.json after.json

Each worker has a copy of the tree with a core of its own, and runs the tests that mutants.txt names for
the file. The Python that runs this needs what `make test` installs.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("mutants.txt")
LIMIT_S = 900  # a mutant may loop for ever
MEMORY = 24 << 30


@dataclass(frozen=True)
class Mutant:
    """A line of a file, what takes its place, and the tests that must notice."""

    file: str
    tests: tuple[str, ...]
    original: str
    mutated: str


def read_list(text: str) -> tuple[list[Mutant], dict[str, str]]:
    """The mutants, and the earlier names of files."""
    mutants, earlier, file, tests, original = [], {}, "", (), ""
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
            earlier[today] = before
    return mutants, earlier


class Worker:
    """A copy of the tree that can be built and tested."""

    def __init__(self, tree: Path, place: Path, native: bool) -> None:
        self.place, self.earlier_layout = place, not (tree / "tests/doubles").exists()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=tree, check=True, capture_output=True, text=True,
        ).stdout.split("\0")  # fmt: skip
        for name in filter(None, listed):
            if (tree / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, place / name)
        # Packages come from the environment of this Python, but gpuinterop from the copy: an editable
        # installation does not reach through a .pth file.
        venv = place / ".mutation"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        packages = next(venv.glob("lib/python*/site-packages"))
        shared = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "mutation.pth").write_text("\n".join([str(place), *shared]) + "\n")
        self.python = venv / "bin/python"
        self.build_dir = place / "build/mutation"
        if native:
            self.configure()
            assert self.build(), "the core does not build without a mutant"
        else:
            for core in (tree / "gpuinterop").glob("_core*.so"):
                shutil.copy2(core, place / "gpuinterop")
            if not list((place / "gpuinterop").glob("_core*.so")):
                core = self.command(
                    "import gpuinterop._core as c; print(c.__file__)", sys.executable, tree
                )
                shutil.copy2(core.strip(), place / "gpuinterop")

    def command(self, code: str, python: str, cwd: Path) -> str:
        return subprocess.run(
            [python, "-c", code], cwd=cwd, check=True, capture_output=True, text=True
        ).stdout

    def configure(self) -> None:
        options = {
            "Python_EXECUTABLE": sys.executable, "GPUINTEROP_UNITY": "OFF",
            "CMAKE_BUILD_TYPE": "Release", "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
        }  # fmt: skip
        tool = Path(sys.executable).parent
        subprocess.run(
            [tool / "cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool / 'ninja'}",
             "-S", self.place / "native", "-B", self.build_dir, *(f"-D{k}={v}" for k, v in options.items())],
            check=True, capture_output=True,
        )  # fmt: skip

    def build(self) -> bool:
        ninja = Path(sys.executable).parent / "ninja"
        done = subprocess.run(
            [ninja, "-j", "1", "-C", self.build_dir], check=False, capture_output=True
        )
        if done.returncode == 0:
            for core in self.build_dir.glob("_core*.so"):
                shutil.copy2(core, self.place / "gpuinterop")
        return done.returncode == 0

    def passes(self, tests: tuple[str, ...]) -> bool:
        return all(self.passes_folder(name) for name in tests)

    def passes_folder(self, name: str) -> bool:
        on_fake, folder = name.startswith("fake:"), f"tests/{name.removeprefix('fake:')}"
        if not on_fake:
            options = ["-m", "not slow and not bench"]
        elif self.earlier_layout:  # which starts the fake driver in tests of this name
            options = ["-m", "not bench", "-k", "fake"]
        else:
            options = ["-m", "not bench", "--driver=fake"]
        process = subprocess.Popen(
            [self.python, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout=120",
             *options, folder],
            cwd=self.place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}, preexec_fn=limit_memory,
        )  # fmt: skip
        try:
            return process.wait(LIMIT_S) in (0, 5)  # 5: no test there
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return False

    def outcome(self, mutant: Mutant, file: str) -> str:
        path = self.place / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text.splitlines(keepends=True)
        found = [i for i, line in enumerate(lines) if line.strip() == mutant.original]
        if len(found) != 1:
            return "absent"
        indent = lines[found[0]][: -len(lines[found[0]].lstrip())]
        lines[found[0]] = f"{indent}{mutant.mutated}\n"
        native = file.endswith((".cpp", ".hpp"))
        path.write_text("".join(lines), encoding="utf-8")
        try:
            if native and not self.build():
                return "invalid"
            return "survived" if self.passes(mutant.tests) else "killed"
        finally:
            path.write_text(text, encoding="utf-8")
            if native:
                self.build()


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def key(mutant: Mutant) -> str:
    return f"{mutant.file}: {mutant.original}  =>  {mutant.mutated}"


def run(arguments: argparse.Namespace) -> int:
    mutants, earlier = read_list(LIST.read_text(encoding="utf-8"))
    mutants = [m for m in mutants if arguments.only in key(m)][:: arguments.every]
    tree = arguments.tree.resolve()
    names = {
        m.file: m.file if (tree / m.file).exists() else earlier.get(m.file, m.file) for m in mutants
    }
    native = any(name.endswith((".cpp", ".hpp")) for name in names.values())
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        idle: queue.Queue[Worker] = queue.Queue()
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for worker in pool.map(
                lambda i: Worker(tree, Path(place) / str(i), native), range(arguments.jobs)
            ):
                idle.put(worker)

            def with_worker(task):
                worker = idle.get()
                try:
                    return task(worker)
                finally:
                    idle.put(worker)

            folders = sorted({(name,) for m in mutants for name in m.tests})
            healthy = pool.map(lambda f: with_worker(lambda w: w.passes(f)), folders)
            broken = {f[0] for f, passed in zip(folders, healthy, strict=True) if not passed}
            for name in sorted(broken):
                print(f"{name}: fails without a mutant, so it proves nothing", flush=True)

            def judge(mutant: Mutant) -> None:
                begin = time.monotonic()
                tests = tuple(name for name in mutant.tests if name not in broken)
                mutant_here = Mutant(mutant.file, tests, mutant.original, mutant.mutated)
                result = with_worker(lambda w: w.outcome(mutant_here, names[mutant.file]))
                results[key(mutant)] = result
                print(f"{result:9} {time.monotonic() - begin:5.0f} s  {key(mutant)}", flush=True)

            list(pool.map(judge, mutants))
    counts = {kind: list(results.values()).count(kind) for kind in sorted(set(results.values()))}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
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
    parser.add_argument("--out", type=Path, help="a JSON file for --compare")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    return compare(*arguments.compare) if arguments.compare else run(arguments)


if __name__ == "__main__":
    sys.exit(main())

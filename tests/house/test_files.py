"""Files stay readable in one sitting: a report of those past 400 lines, a failure past 600."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORT, LIMIT = 400, 600


def source_files():
    for folder in ("gpuinterop", "native", "tests", "tools", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cpp", ".hpp", ".cuh"):
                yield path


def test_no_file_is_too_long(capsys):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    long = {path: n for path, n in lengths.items() if n > REPORT}
    with capsys.disabled():
        for path, n in sorted(long.items(), key=lambda row: -row[1]):
            print(f"\n  {n} lines: {path.relative_to(ROOT)}", end="")
    assert not [path for path, n in lengths.items() if n > LIMIT]


def test_test_modules_have_names_of_their_own():
    # pytest imports them by name alone, so two of one name would hide each other.
    seen: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name not in ("__init__.py", "conftest.py"):
            assert path.name not in seen, f"{path} and {seen[path.name]}"
            seen[path.name] = path

"""Every benchmark runs to its table: on the host, and on the fake driver.

What they measure here means nothing. A benchmark that fails for a misspelt name wastes a GPU.
"""

import importlib
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from doubles import driver

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
NAMES = sorted(
    file.stem.removeprefix("bench_")
    for file in (ROOT / "benchmarks").glob("bench_*.py")
    if file.stem != "bench_common"
)


def run(*command: str) -> str:
    done = driver.python(*command)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def checked(text: str, folder: Path) -> None:
    record = json.loads(text)
    assert record["schema"] == "gpuinterop.benchmark/1"
    assert record["rows"]
    assert all(row for row in record["rows"].values())
    assert set(record["marks"]) <= set(record["rows"]) == set(record["best"])
    assert {"name", "unit", "figure", "picture", "device", "versions", "date"} <= set(record)
    importlib.import_module("pictures").draw(record, folder / "picture.svg")
    check_picture(folder / "picture.svg", record)


def check_picture(picture: Path, record: dict) -> None:
    """It shows the title and the contenders."""
    root = ElementTree.parse(picture).getroot()
    assert root.tag.endswith("svg")
    text = "\n".join(part.text or "" for part in root.iter())
    assert record["name"] in text
    assert any(contender in text for row in record["rows"].values() for contender in row)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_on_the_host(name: str, tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    run(f"benchmarks/bench_{name}.py", "--device", "cpu", "--quick", "--alone", "--json", str(file))
    checked(file.read_text(), tmp_path)


def test_numbers_alone_on_stdout_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    words = ("--device", "cpu", "--quick", "--alone", "--json", "--plot", str(picture))
    text = run("benchmarks/bench_exchange.py", *words)
    checked(text, tmp_path)
    check_picture(picture, json.loads(text))


@pytest.mark.slow
@pytest.mark.fake_driver
@pytest.mark.parametrize("name", [*NAMES, "collectives --one-gpu"])
def test_on_the_fake_driver(name: str, tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    name, *options = name.split()
    program = str(ROOT / "benchmarks" / f"bench_{name}.py")
    sys_argv = [program, "--quick", "--alone", "--json", str(file), *options]
    driver.run(
        f"""
import runpy, sys
from doubles import host_kernels

host_kernels.install()
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
sys.argv = {sys_argv}
runpy.run_path(sys.argv[0], run_name="__main__")
""",
        timeout=250,
    )
    checked(file.read_text(), tmp_path)


def test_ratios_by_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "ratios.json"
    text = run("benchmarks/bench_bandwidth.py", "--device", "cpu", "--quick", "--ratios",
               "--only", "x + y", "--json", str(file))  # fmt: skip
    assert "of 3 cells above 1.05" in text
    assert set(json.loads(file.read_text())["ratios"]["x + y"]) == {"2^10", "2^12", "2^14"}


@pytest.mark.text
def test_the_baseline_compiles(nvrtc) -> None:
    baseline = importlib.import_module("bandwidth_baseline")
    for text in (baseline._FLAT, baseline._TILED):
        assert nvrtc.compile_source(text, 90)

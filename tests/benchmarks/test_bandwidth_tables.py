"""The two further tables of the bandwidth benchmark come out whole."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from test_benchmarks import run

from gpuinterop.jit import compile_source


def test_ratios_by_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "ratios.json"
    text = run("benchmarks/bench_bandwidth.py", "--device", "cpu", "--quick", "--ratios",
               "--only", "x + y", "--json", str(file))  # fmt: skip
    assert "of 3 cells above 1.05" in text
    assert set(json.loads(file.read_text())["ratios"]["x + y"]) == {"2^10", "2^12", "2^14"}


@pytest.mark.text
def test_the_floor_compiles() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    floor = importlib.import_module("bandwidth_baseline")
    for text in (floor._FLAT, floor._TILED):
        assert compile_source(text, 90)

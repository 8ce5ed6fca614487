"""The two further tables of the bandwidth benchmark come out whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_benchmarks import run


def test_sweep_of_launch_geometries() -> None:
    text = run("benchmarks/bench_bandwidth.py", "--device", "cpu", "--quick", "--alone", "--tune")
    assert "256x32 ldcs stcs loop/4" in text
    assert "best for exp(x[::2]): " in text
    assert "best for all: " in text


def test_ratios_by_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "ratios.json"
    text = run("benchmarks/bench_bandwidth.py", "--device", "cpu", "--quick", "--ratios",
               "--only", "x + y", "--json", str(file))  # fmt: skip
    assert "of 3 cells above 1.05" in text
    assert set(json.loads(file.read_text())["ratios"]["x + y"]) == {"2^10", "2^12", "2^14"}

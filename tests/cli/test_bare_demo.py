"""The demo where nothing but NumPy is installed: it still refuses and copies, and says so."""

from __future__ import annotations

import re

import pytest

from gpuinterop import cli
from gpuinterop.converters import availability


@pytest.fixture
def bare(monkeypatch):
    here = ("numpy", "builtins")
    monkeypatch.setattr(availability, "installed", lambda package: package in here)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_the_table_has_all_three_outcomes(bare, capsys):
    assert cli.main(["demo", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()}
    assert rows["numpy"].count("shared") == 4
    assert rows["buffer"].count("refused, copied") == 3
    assert "5 shared, 3 refused, 3 copied" in text
    assert "not installed: torch, " in text


def test_the_refusal_gives_its_reason_and_the_copy_is_made(bare, capsys):
    cli.main(["demo", "--device", "cpu"])
    story = capsys.readouterr().out.partition("2. A strided view")[2].partition("3. What")[0]
    assert re.search(r"ContiguityError: to_buffer: expected C-contiguous memory", story)
    assert "axis 1 breaks the order" in story
    assert "copyif=True)\n   a copy of 48 bytes, with the same elements: memoryview" in story

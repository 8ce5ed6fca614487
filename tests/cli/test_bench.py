"""bench: the same calls in several libraries, as a table, JSON and a picture."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi


def test_table_json_and_picture(run, tmp_path):
    files = {name: str(tmp_path / name) for name in ("b.json", "b.svg")}
    code, out, err = run(
        "bench", "--device", "cpu", "--only", "numpy", "--size", "1000", "--seconds", "0",
        "--output", files["b.json"], "--picture", files["b.svg"],
    )  # fmt: skip
    record = json.loads((tmp_path / "b.json").read_text())
    assert (code, err, record["schema"], record["size"]) == (0, "", "gpuinterop.bench/1", 1000)
    assert {tuple(row) for row in record["rows"].values()} == {("gpuinterop", "numpy")}
    assert all(time > 0 for row in record["rows"].values() for time in row.values())
    assert not record["failed"]
    slower = [
        name for name, row in record["rows"].items() if row["gpuinterop"] > 1.05 * row["numpy"]
    ]
    lines = out.splitlines()
    assert lines[0].split() == ["microseconds", "gpuinterop", "numpy"]
    assert f"in {len(record['rows']) - len(slower)} of {len(record['rows'])} calls on cpu" in out
    assert [line.partition(" in: ")[2] for line in lines if line.startswith("numpy is")] == slower
    title = ElementTree.parse(files["b.svg"]).getroot().find("{*}title").text
    assert title in out


def test_a_wrong_result_is_not_timed(run, monkeypatch):
    monkeypatch.setattr(gi, "exp", lambda x: x + 1)
    code, out, _ = run(
        "bench", "--device", "cpu", "--only", "numpy", "--size", "50", "--seconds", "0", "--json"
    )
    record = json.loads(out)
    assert code == 1
    assert record["rows"]["exp(x)"].keys() == {"numpy"}
    assert record["failed"]["exp(x), gpuinterop"].startswith("AssertionError: ")


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_every_library_computes_the_same(run, name):
    pytest.importorskip(name)
    code, out, _ = run(
        "bench", "--device", "cpu", "--only", name, "--size", "100", "--seconds", "0", "--json"
    )
    record = json.loads(out)
    lacking = [title for title, row in record["rows"].items() if name not in row]
    assert (code, record["failed"]) == (0, {})
    assert lacking == (["x[::-1] + y"] if name == "torch" else [])


@pytest.mark.fake_driver
def test_on_the_fake_driver():
    text = driver.run(
        """
from doubles import host_kernels
from gpuinterop.cli import main

host_kernels.install()
main(["bench", "--only", "cupy", "--size", "100", "--seconds", "0", "--json"])
"""
    )
    record = json.loads(text)
    assert record["device"] == "cuda:0"
    assert record["absent"].keys() == {"cupy"}
    assert {"x + y", "A @ B"} <= record["rows"].keys()
    assert np.isfinite(record["rows"]["x + y"]["gpuinterop"])

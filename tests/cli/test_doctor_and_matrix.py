"""doctor and matrix on the command line: output, JSON and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuinterop as gi
from gpuinterop.cli import COMMANDS, main
from gpuinterop.testing import LAYOUTS, Cell, Library, Matrix


@pytest.fixture(autouse=True)
def on_the_cpu():
    with gi.device("cpu"):
        yield


def run(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_every_command_has_help(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        told = capsys.readouterr().out
        assert name in told
        assert "exit code: 0" in told
        example = told.partition("example: gpuinterop ")[2].split()
        assert example[0] == name


@pytest.mark.parametrize("command", ["matrix", "explain"])
def test_the_layouts_are_explained(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    for layout in LAYOUTS.values():
        assert [layout.name, layout.made_by] in lines


def test_output_that_cannot_be_written():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "gpuinterop", "version"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith("gpuinterop version: the output cannot be written: ")
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


# ---- doctor -------------------------------------------------------------------------------------


def test_doctor(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == int(not gi.doctor().ok)
    assert f"gpuinterop {gi.__version__}" in out
    code, verbose, _ = run(capsys, "doctor", "--verbose")
    assert len(verbose) > len(out)
    code, out, _ = run(capsys, "doctor", "--json")
    assert json.loads(out)["ok"] == (code == 0)


def test_doctor_fails_for_a_warning(capsys, monkeypatch):
    from gpuinterop.doctor import Report
    from gpuinterop.doctor_rules import Finding

    sick = Report(findings=[Finding("x", "it hurts", "rest")])
    monkeypatch.setattr("gpuinterop.cli.doctor.doctor", lambda: sick)
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "warning: it hurts\n  fix: rest" in out
    sick.findings = [Finding("x", "it itches", "rest", "hint")]
    assert run(capsys, "doctor")[0] == 0


# ---- matrix -------------------------------------------------------------------------------------


def test_matrix_tries_draws_and_saves(capsys, tmp_path):
    path = tmp_path / "m.json"
    words = ["--only", "numpy", "--device", "cpu", "--layouts", "C,reversed", "--dtypes", "float32"]
    code, out, _ = run(capsys, "matrix", *words, "--output", str(path))
    assert code == 0
    assert "to   numpy  S S" in out
    assert Matrix.load(path).ok
    code, again, _ = run(capsys, "matrix", str(path))
    assert (code, again) == (0, out)
    code, out, _ = run(capsys, "matrix", str(path), "--json")
    assert code == 0
    assert Matrix.from_json(out) == Matrix.load(path)


def test_matrix_fails_for_a_wrong_cell(capsys, tmp_path):
    path = tmp_path / "m.json"
    Matrix([Cell("toy", "to", "cpu", "C", "float32", "default", "wrong")], devices=["cpu"]).save(
        path
    )
    code, out, _ = run(capsys, "matrix", str(path))
    assert code == 1
    assert "1 wrong" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/nonexistent/file.json"], "No such file"),
        (["--only", "tourch"], "--only: expected the name of a library: torch, numpy, "),
        (["--only", "tourch"], "fix: write 'torch'"),
        (["--only", "numpy", "--layouts", "spiral"], "'spiral'"),
        (["--only", "numpy", "--dtypes", "float31"], "'float31'"),
        (["--only", "numpy", "--device", "tpu"], "tpu"),
        (["--bridge", "nosuchmodule:x"], "nosuchmodule"),
        (["/nonexistent/file.json"], "gpuinterop matrix: FILE: expected a run that"),
        (["--bridge", "nosuchmodule:x"], "fix: correct the name, or add the module's folder"),
        (["--bridge", "json"], "module 'json' has no attribute 'bridge'"),
        (["--bridge", "json:dumps_"], "module 'json' has no attribute 'dumps_'"),
        (["--bridge", "gpuinterop.testing.suite:brigde"], "has no attribute 'brigde'"),
        (["--bridge", "json:JSONDecoder"], "JSONDecoder"),
        (["--bridge", "json:dumps"], "got: TypeError: dumps() missing 1 required"),
        (["--only="], "--only: expected names separated by commas"),
        (["--only", ", "], "fix: omit --only for all"),
        (["--layouts="], "--layouts: expected names"),
        (["--dtypes="], "--dtypes: expected names"),
    ],
)
def test_matrix_says_what_is_wrong_with_its_arguments(capsys, words, message):
    code, out, err = run(capsys, "matrix", *words)
    assert code == 2
    assert message in err
    assert not out


def test_a_bridge_is_found_under_its_usual_name(capsys, tmp_path, monkeypatch):
    text = "from gpuinterop.testing.peers import load\n{} = load('numpy')\n"
    for name in ("bridge", "rows"):
        (tmp_path / f"my_{name}.py").write_text(text.format(name))
    monkeypatch.syspath_prepend(tmp_path)
    words = ["--device", "cpu", "--layouts", "C", "--dtypes", "float32"]
    code, out, _ = run(capsys, "matrix", "--bridge", "my_bridge", *words)
    assert code == 0
    assert "2 shared" in out
    code, _, err = run(capsys, "matrix", "--bridge", "my_rows", *words)
    assert code == 2
    assert "module 'my_rows' has no attribute 'bridge'" in err


def saved_run(path, outcome="shared"):
    cells = [
        Cell(library, "to", "cpu", layout, "float32", "default", found)
        for library, found in (("toy", outcome), ("numpy", "shared"))
        for layout in ("C", "reversed")
    ]
    rows = [Library("toy"), Library("numpy"), Library("jax", why="not installed")]
    Matrix(cells, rows, ["cpu"]).save(path)
    return str(path)


def test_a_part_of_a_saved_run(capsys, tmp_path):
    path = saved_run(tmp_path / "m.json", "wrong")
    assert run(capsys, "matrix", path)[0] == 1
    code, out, _ = run(capsys, "matrix", path, "--only", "numpy", "--json")
    part = Matrix.from_json(out)
    assert (code, {c.library for c in part.cells}) == (0, {"numpy"})  # what is wrong was left out
    assert [row.name for row in part.libraries] == ["numpy"]
    code, out, _ = run(capsys, "matrix", path, "--layouts", "reversed", "--json")
    assert (code, {c.layout for c in Matrix.from_json(out).cells}) == (1, {"reversed"})
    assert "not tried: jax" in run(capsys, "matrix", path, "--only", "toy,jax")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "torch"], "--only: expected names that the saved run has: toy, numpy, jax"),
        (["--only", "nump"], "fix: write 'numpy'"),
        (["--device", "cuda:0"], "--device: expected names that the saved run has: cpu"),
        (["--layouts", "spiral"], "C, reversed"),
        (["--dtypes", "int8"], "float32"),
        (["--bridge", "a:b"], "a saved run tries nothing"),
    ],
)
def test_a_saved_run_has_no_such_part(capsys, tmp_path, words, message):
    code, out, err = run(capsys, "matrix", saved_run(tmp_path / "m.json"), *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "words", [["matrix"], ["demo"], ["explain", "--to", "numpy"]], ids=lambda words: words[0]
)
def test_what_is_recommended_is_an_option(capsys, words):
    if len(gi.devices()) == 1:
        code, _, err = run(capsys, *words, "--device", "cuda")
        assert code == 2
        assert "--device cpu" in err
        assert "device=" not in err
    assert "gpuinterop doctor lists" in run(capsys, *words, "--device", "tpu")[2]


def test_what_is_no_text_is_refused(capsys, tmp_path):
    path = tmp_path / "m.json"
    path.write_bytes(b"\xff\xfe\x00")
    code, _, err = run(capsys, "matrix", str(path))
    assert code == 2
    assert "invalid text" in err


def test_other_json_is_refused(capsys, tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    code, _, err = run(capsys, "matrix", str(path))
    assert code == 2
    assert "gpuinterop.matrix/1" in err


@pytest.mark.parametrize("letters", ["ascii", "utf-8:strict", "latin-1"])
def test_a_path_is_printed_whatever_letters_the_terminal_has(letters):
    around = {**os.environb, b"CUDA_PATH": b"/opt/\xff/\xc3\xbc\xe2\x82\xac"}
    around[b"PYTHONIOENCODING"] = letters.encode()
    done = subprocess.run(
        [sys.executable, "-m", "gpuinterop", "doctor", "--verbose"],
        env=around, capture_output=True, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"CUDA_PATH=/opt/" in done.stdout
    assert done.returncode in (0, 1)

"""doctor and matrix on the command line: output, JSON and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuinterop as gi
from gpuinterop.cli import main
from gpuinterop.testing import LAYOUTS, Cell, Library, Matrix

COMMANDS = ("doctor", "matrix", "explain", "draw", "demo", "bench", "run", "version", "completion")


def test_help_lists_every_command(capsys):
    texts = []
    for words, code in (["--help"], 0), (["-h"], 0), (["help"], 0), ([], 2):
        assert main(words) == code
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert texts[0].startswith("usage: gpuinterop COMMAND")
    lines = texts[0].partition("commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == [*COMMANDS, "help"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["help", name])
    assert capsys.readouterr().out == printed
    assert "exit code: " in printed
    assert printed.partition("example: gpuinterop ")[2].split()[0] == name
    if name in ("matrix", "explain"):
        lines = [line.split(maxsplit=1) for line in printed.splitlines()]
        assert all([layout.name, layout.made_by] in lines for layout in LAYOUTS.values())


def test_output_that_cannot_be_written():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "gpuinterop", "version"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith("gpuinterop version: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["version", "explain --shape 2 --to numpy"])
def test_a_process_without_a_standard_output(command):
    line = f"exec {sys.executable} -m gpuinterop {command} >&-"
    result = subprocess.run(
        ["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


# ---- doctor -------------------------------------------------------------------------------------


def test_doctor(run):
    code, out, _ = run("doctor", "--quick")
    assert code == int(not gi.doctor().ok)
    assert f"gpuinterop {gi.__version__}" in out
    code, verbose, _ = run("doctor", "--quick", "--verbose")
    assert len(verbose) > len(out)
    code, out, _ = run("doctor", "--quick", "--json")
    assert json.loads(out)["ok"] == (code == 0)


# ---- matrix -------------------------------------------------------------------------------------

ONE = ["--device", "cpu", "--layouts", "C", "--dtypes", "float32"]


def test_matrix_tries_draws_and_saves(run, tmp_path):
    path = tmp_path / "m.json"
    code, out, _ = run("matrix", "--only", "numpy", *ONE, "--output", str(path))
    assert code == 0
    assert "to   numpy  S" in out
    assert Matrix.load(path).ok
    assert run("matrix", str(path))[:2] == (0, out)
    code, out, _ = run("matrix", str(path), "--json")
    assert code == 0
    assert Matrix.from_json(out) == Matrix.load(path)


def test_a_bridge_is_found_under_its_usual_name(run, tmp_path, monkeypatch):
    text = "from gpuinterop.testing.peers import load\nbridge = load('numpy')\n"
    (tmp_path / "my_bridge.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = run("matrix", "--bridge", "my_bridge", *ONE)
    assert code == 0
    assert "2 shared" in out


@pytest.fixture
def saved(tmp_path):
    """A saved run, in which the toy is wrong."""
    cells = [
        Cell(library, "to", "cpu", layout, "float32", "default", found)
        for library, found in (("toy", "wrong"), ("numpy", "shared"))
        for layout in ("C", "reversed")
    ]
    rows = [Library("toy"), Library("numpy"), Library("jax", why="not installed")]
    Matrix(cells, rows, ["cpu"]).save(tmp_path / "m.json")
    return str(tmp_path / "m.json")


def test_a_part_of_a_saved_run(run, saved):
    assert run("matrix", saved)[0] == 1
    code, out, _ = run("matrix", saved, "--only", "numpy", "--json")
    part = Matrix.from_json(out)
    assert (code, {c.library for c in part.cells}) == (0, {"numpy"})
    assert [row.name for row in part.libraries] == ["numpy"]
    code, out, _ = run("matrix", saved, "--layouts", "reversed", "--json")
    assert (code, {c.layout for c in Matrix.from_json(out).cells}) == (1, {"reversed"})
    code, out, err = run("matrix", saved, "--layouts", "reversed", "--dtypes", "int8")
    assert (code, out) == (2, "")
    assert "got: layout ['reversed'], dtype ['int8']" in err


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe\x00", "invalid text"), (b"{}", "gpuinterop.matrix/1")]
)
def test_a_file_of_another_kind_is_refused(run, tmp_path, content, message):
    (tmp_path / "m.json").write_bytes(content)
    code, _, err = run("matrix", str(tmp_path / "m.json"))
    assert code == 2
    assert message in err


@pytest.mark.parametrize("letters", ["ascii", "latin-1"])
def test_path_is_printed_in_every_terminal_encoding(letters):
    around = {**os.environb, b"CUDA_PATH": b"/opt/\xff/\xc3\xbc\xe2\x82\xac"}
    around[b"PYTHONIOENCODING"] = letters.encode()
    done = subprocess.run(
        [sys.executable, "-m", "gpuinterop", "doctor", "--quick", "--verbose"],
        env=around, capture_output=True, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    assert b'"CUDA_PATH": "/opt/' in done.stdout

"""doctor, matrix and explain on the command line: output, JSON and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.cli import COMMANDS, explain, main
from gpuinterop.converters import availability, registry
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
        (["--only="], "--only: expected names with commas between"),
        (["--only", ", "], "fix: leave --only out for all"),
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


# ---- explain ------------------------------------------------------------------------------------


def test_explain_shares_refuses_and_copies(capsys):
    pytest.importorskip("torch")
    code, out, _ = run(capsys, "explain", "--layout", "F", "--to", "torch")
    assert (code, out) == (0, "to_torch: shared\n")
    code, out, _ = run(capsys, "explain", "--shape", "3,4", "--layout", "reversed", "--to", "torch")
    assert code == 1
    assert "axis 0" in out
    assert "fix:" in out
    code, out, _ = run(capsys, "explain", "--layout", "reversed", "--to", "torch", "--copyif")
    assert code == 0
    assert "copied (48 bytes)" in out


def test_explain_json(capsys):
    code, out, _ = run(capsys, "explain", "--layout", "readonly", "--to", "numpy", "--json")
    assert code == 0
    data = json.loads(out)
    assert (data["outcome"], data["library"]) == ("shared", "numpy")


@pytest.mark.parametrize(
    ("shape", "layout", "dtype", "strides"),
    [
        ("3,4", "C", "float32", (16, 4)),
        ("3,4", "F", "float32", (4, 12)),
        ("3,4", "sliced", "int8", (16, 2)),
        ("3,4", "reversed", "float64", (-32, 8)),
        ("3,4", "mirrored", "float32", (16, -4)),
        ("3,4", "broadcast", "float32", (0, 4)),
        ("3,4", "offset", "float32", (16, 4)),
        ("3,4", "-16,4", "float32", (-16, 4)),
        ("2,3", "4,-8", "int16", (4, -8)),
        ("0,4", "reversed", "float32", (-16, 4)),
        ("", "C", "float32", ()),
        ("", "reversed", "float32", ()),
        ("2,3", "offset", "float64", (24, 8)),
        ("2,3", "every-other", "float32", (24, 8)),
        ("2,3", "permuted", "float32", (4, 8)),
        ("4,2,3", "permuted", "int8", (1, 12, 4)),
        ("2,1", "size-1", "float32", (4, 777)),
        ("", "0-d", "float32", ()),
        ("1,5", "mirrored", "float32", (20, -4)),
    ],
)
def test_the_array_is_as_described(shape, layout, dtype, strides):
    x = explain.array_of(shape, layout, dtype, "cpu")
    assert x.shape == tuple(int(n) for n in shape.split(",") if n)
    assert x.dtype == dtype
    meant = [s for n, s in zip(x.shape, strides, strict=True) if n > 1]
    if x.size:
        assert [s for n, s in zip(x.shape, x.strides, strict=True) if n > 1] == meant
        # Every element is inside the memory that was made for it.
        assert gi.converters.to_numpy(x).copy().shape == x.shape
    assert not x.readonly


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_without_a_shape_is_the_suites(name):
    x, layout = explain.array_of(None, name, "float32", "cpu"), LAYOUTS[name]
    meant = layout.of(np.zeros(layout.count, np.float32))
    assert (x.shape, x.readonly) == (meant.shape, not meant.flags.writeable)
    if x.size:
        axes = [i for i, n in enumerate(x.shape) if n > 1]
        assert [x.strides[i] for i in axes] == [meant.strides[i] for i in axes]
        begin = explain.array_of(None, "C", "float32", "cpu")  # aligned, as all allocations are
        assert (x.ptr - begin.ptr) % 64 == (4 * layout.offset if name == "offset" else x.ptr % 64)


@pytest.mark.parametrize("words", [["--layout", "-16,4"], ["--layout=-16,4"]])
def test_a_layout_that_begins_with_a_minus(capsys, words):
    code, out, _ = run(capsys, "explain", *words, "--to", "numpy")
    assert (code, out) == (0, "to_numpy: shared\n")


def test_the_array_api_goes_by_either_name(capsys):
    pytest.importorskip("array_api_strict")
    for name in ("array_api", "array-api", "array_api_strict"):
        code, out, _ = run(capsys, "explain", "--to", name)
        assert (code, out) == (0, "to_array_api: shared\n")
        code, out, _ = run(capsys, "demo", "--device", "cpu", "--only", name, "--json")
        assert [row["name"] for row in json.loads(out)["libraries"]] == ["array_api"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "numpy", "--layout", "size-1", "--shape", "3,4"], "an axis of one element"),
        (["--to", "numpy", "--layout", "empty", "--shape", "3,4"], "an axis without elements"),
        (["--to", "numpy", "--layout", "0-d", "--shape", "3"], "fix: leave --shape out"),
        (["--to", "nolib"], "--to: expected the name of a library"),
        (["--to", "tourch"], "fix: write 'torch'"),
        (["--to", "numpy", "--shape", "3,x"], "3,x"),
        (["--to", "numpy", "--shape=-1"], "extents of 0 or more"),
        (["--to", "numpy", "--layout", "zigzag"], "zigzag"),
        (["--to", "numpy", "--layout", "4,4,4"], "4,4,4"),
        (["--to", "numpy", "--layout=3,1"], "whole elements"),
        (["--to", "numpy", "--dtype", "text"], "'text'"),
        (["--to", "numpy", "--device", "tpu"], "tpu"),
        (["--to", "numpy", "--shape", "99999999999999,99999999999"], "63 bits"),
    ],
)
def test_explain_says_what_is_wrong_with_its_arguments(capsys, words, message):
    code, out, err = run(capsys, "explain", *words)
    assert code == 2, out
    assert message in err
    assert not out


def test_to_is_required(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["explain"])
    assert caught.value.code == 2
    assert "--to" in capsys.readouterr().err


def test_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "gpuinterop", "explain", "--to", "numpy", "--device", "cpu"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout == "to_numpy: shared\n"


@pytest.mark.parametrize("place", ["nowhere/m.json", "."])
def test_a_file_that_cannot_be_written(capsys, tmp_path, place):
    words = ["--only", "numpy", "--device", "cpu", "--layouts", "C", "--dtypes", "float32"]
    code, _, err = run(capsys, "matrix", *words, "--output", str(tmp_path / place))
    assert code == 2
    assert str(tmp_path) in err


# ---- demo and version ---------------------------------------------------------------------------


def test_demo_as_data(capsys):
    code, out, _ = run(capsys, "demo", "--device", "cpu", "--only", "numpy,memoryview", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["schema"], told["device"], told["ok"]) == ("gpuinterop.demo/1", "cpu", True)
    numpy, buffer = told["libraries"]
    assert set(numpy["outcomes"].values()) == {"shared"}
    assert numpy["one_memory"].startswith("our write seen there")
    assert buffer["outcomes"]["x.T"] == "refused, copied"
    assert told["left_out"] == {}
    assert (buffer["refused_view"], "copyif=True" in buffer["fix"]) == ("x.T", True)


def test_the_demo_says_why_a_library_is_left_out(capsys, monkeypatch):
    here = ("numpy", "cupy")
    monkeypatch.setattr(availability, "installed", lambda package: package in here)
    only = ["demo", "--device", "cpu", "--only", "numpy,cupy,numba"]
    code, out, _ = run(capsys, *only)
    assert code == 0
    assert "   no arrays on cpu: cupy\n" in out
    assert "   not installed: numba\n" in out
    told = json.loads(run(capsys, *only, "--json")[1])
    assert told["left_out"] == {"cupy": "no arrays on cpu", "numba": "not installed"}
    assert told["not_installed"] == ["numba"]
    # Every library that has a converter is shown, or has its reason.
    told = json.loads(run(capsys, "demo", "--device", "cpu", "--json")[1])
    assert {row["name"] for row in told["libraries"]} | set(told["left_out"]) == set(
        registry.names()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only="], "--only: expected names with commas between"),
        (["--only", "nosuch"], "--only: expected the name of a library"),
        (["--only", "cupy", "--device", "cpu"], "has arrays on cpu\n  got: cupy"),
        (["--device", "mars"], "'mars'"),
    ],
)
def test_a_wrong_question_to_the_demo(capsys, words, message):
    code, out, err = run(capsys, "demo", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_version(capsys):
    assert run(capsys, "--version") == run(capsys, "version")
    assert json.loads(run(capsys, "version", "--json")[1])["gpuinterop"] == gi.__version__

"""`gpuinterop draw` and `explain --draw`: the views that they know, and what they refuse."""

import json
import re

import numpy as np
import pytest

import gpuinterop as gi

VIEWS = [
    "x", "x.T", "x[::2, ::-1]", "x[None, ..., -1:]", "x[1].T", "x.transpose(1, 0)[2:]", "x.reshape(2, -1)",
    "x.reshape((3, 8))", "np.broadcast_to(x[0], (3, 6))", "np.transpose(x)[::-3]", "x[1:2].squeeze(0)",
    "x.swapaxes(0, 1)", "x.diagonal()", "x[2, 3, ...]", "x[4:]",
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_the_one_that_numpy_makes(run, view):
    x = np.zeros((4, 6), "float32")
    wanted = str(gi.draw(eval(view, {"np": np, "x": x})))
    code, out, err = run("draw", "--shape", "4,6", view)
    assert (code, err) == (0, "")
    # The owner has another class, and NumPy's new axes of length 1 another stride.
    cells = re.compile(r"^ *\+\d.*|^axis .*", flags=re.M)
    assert cells.findall(out) == cells.findall(wanted) != []


@pytest.mark.parametrize(
    "expression",
    [
        "", "x[", "y", "x.y", "x.T()", "x.copy()", "x[[0]]", "x[True]", "x[0.5]", "x['a']", "x[1 + 1]", "x if x else x",
        "__import__('os').getcwd()", "x.__class__", "os.reshape(x, 24)", "x.reshape(24, copy=True)", "x.squeeze(*x)",
        "(" * 250 + "x" + ")" * 250, "x" + ".T" * 90 + ".y", "x[" + "-" * 190 + "1]", "x\0",
    ],
)  # fmt: skip
def test_other_expressions_are_refused(run, expression):
    code, out, err = run("draw", expression)
    assert (code, out) == (2, "")
    assert err.startswith("EXPRESSION: expected x, an index of it")
    assert "fix: write for example" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x[9]"], "index 9"),
        (["x[" + "9" * 40 + "]"], "fits 63 bits"),
        (["x.T.reshape(24)"], "without a copy"),
        (["x.swapaxes(0)"], "axis2"),
        (["--shape", "3,a"], "3,a"),
        (["--shape=-1"], "--shape: expected axis lengths"),
        (["--dtype", "text"], "'text'"),
        (["--to", "tourch"], "'torch'"),
        (["--to", "trch"], "--to: expected the name of a library"),
        (["--to", ""], "--to: expected the name of a library"),
        (["3", "4"], "fix: write axis lengths with commas, as in --shape 3,4"),
        (["(3, 4, 5)"], "as in --shape 3,4,5"),
        (["--shape", "3", "4"], "as in --shape 3,4"),
        (["--svg", "{missing}/x.svg"], "No such file"),
        (["--svg", "{missing}/x.png"], "--svg: expected a name that ends in .svg"),
    ],
)
def test_wrong_arguments_teach(run, words, message, tmp_path):
    code, out, err = run(
        "draw", *(word.replace("{missing}", f"{tmp_path}/missing") for word in words)
    )
    assert (code, out) == (2, "")
    assert message in err


def test_a_view_in_several_words_is_one_expression(run):
    assert run("draw", "x[::2,", "::-1]") == run("draw", "x[::2, ::-1]")


def test_explain_takes_the_views_of_draw(run):
    pytest.importorskip("torch")
    view = ["explain", "--shape", "4,6", "--device", "cpu", "--to", "torch"]
    assert run(*view, "x[:, ::-1]") == run(*view, "--layout", "mirrored")
    assert run(*view, "x[:, ::-1][:, ::-1]") == run(*view) == (0, "to_torch: shared\n", "")
    assert run(*view, "--layout", "mirrored", "x[:, ::-1]")[:2] == (0, "to_torch: shared\n")


def test_forms_of_output(run, tmp_path):
    view = ["--shape", "3", "--dtype", "int8", "x[::-1]"]
    text = run("draw", *view)[1]
    assert run("draw", *view, "--svg", str(tmp_path / "x.svg"))[:2] == (0, "")
    read = json.loads(run("draw", *view, "--json")[1])
    assert read == {"text": text.rstrip("\n"), "svg": (tmp_path / "x.svg").read_text()}
    assert "step -1 byte, 1 cell back" in text
    assert "to_buffer: refused" in run("draw", *view, "--to", "buffer")[1]


def test_explain_draws(run):
    words = [
        "explain",
        "--shape",
        "2,3",
        "--layout",
        "mirrored",
        "--to",
        "buffer",
        "--device",
        "cpu",
    ]
    code, out, _ = run(*words, "--draw")
    assert (code, out.partition("\n\n")[0]) == (1, run(*words)[1].rstrip("\n"))
    drawing = out.partition("\n\n")[2]
    assert [line[:6] for line in drawing.splitlines() if line.endswith("<-- at fault")] == [
        "axis 1"
    ]
    read = json.loads(run(*words, "--draw", "--json")[1])
    assert (read["axis"], read["drawing"]["text"]) == (1, drawing.rstrip("\n"))
    assert read["drawing"]["svg"].startswith("<svg")
    assert "drawing" not in json.loads(run(*words, "--json")[1])

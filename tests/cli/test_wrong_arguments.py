"""Arguments that a command refuses, with a message and nothing on the standard output."""

import pytest

from gpuinterop.cli import main

REFUSED = [
    (["matrx"], "gpuinterop: expected a command: doctor, matrix, "),
    (["matrx"], "fix: call gpuinterop matrix"),
    (["help", "nonsense"], "fix: call gpuinterop help"),
    (["matrix", "{missing}/file.json"], "gpuinterop matrix: expected a file with a saved run"),
    (["matrix", "torhc"], "fix: for a library: --only torch"),
    (["explain"], "gpuinterop explain: expected --to LIBRARY"),
    (["explain", "numpi"], "fix: add --to numpy"),
    (["explain", "x.T"], "fix: add --to torch"),
    (["explain", "x.copy()", "--to", "numpy"], "EXPRESSION: expected x, an index of it"),
    (
        ["explain", "--to", "numpy", "--layout", "x[:, ::-1]"],
        'fix: pass --layout=reversed, or a view of x instead: "x',
    ),
    (["explain", "--to", "numpy", "--device", "cuda:x"], "--device: expected"),
    (["matrix", "--only", "numpy", "--output", "{missing}/m.json"], "No such file"),
    (["matrix", "--only", "tourch"], "--only: expected the name of a library: torch, numpy, "),
    (["matrix", "--only", "tourch"], "fix: pass 'torch'"),
    (["matrix", "--only", "numpy", "--layouts", "spiral"], "'spiral'"),
    (["matrix", "--only", "numpy", "--dtypes", "float31"], "'float31'"),
    (["matrix", "--only", "numpy", "--device", "tpu"], "--device: expected"),
    (["matrix", "--bridge", "nosuchmodule:x"], "add the module's folder to PYTHONPATH"),
    (["matrix", "--bridge", "json"], "module 'json' has no attribute 'bridge'"),
    (["matrix", "--bridge", "json:dumps"], "got: TypeError: dumps() missing 1 required"),
    (["matrix", "--bridge", "json:JSONDecoder"], "JSONDecoder"),
    (["matrix", "--only", ", "], "--only: expected names separated by commas"),
    (["explain", "--to", "nolib"], "--to: expected the name of a library"),
    (["explain", "--to", "tourch"], "fix: pass 'torch'"),
    (["explain", "--to", "numpy", "--shape", "3,x"], "3,x"),
    (["explain", "--to", "numpy", "--shape=-1"], "--shape: expected axis lengths"),
    (["explain", "--to", "numpy", "--layout", "zigzag"], "zigzag"),
    (["explain", "--to", "numpy", "--layout", "revrsed"], "fix: pass --layout=reversed"),
    (["explain", "--to", "numpy", "--device", "nowhere"], "--device: expected"),
    (["explain", "--to", "numpy", "--layout", "4,4,4"], "(4, 4, 4)"),
    (["explain", "--to", "numpy", "--layout=3,1"], "multiples of the itemsize"),
    (["explain", "--to", "numpy", "--dtype", "text"], "'text'"),
    (["explain", "--to", "numpy", "--device", "tpu"], "tpu"),
    (
        ["explain", "--to", "numpy", "--shape", "99999999999999,99999999999"],
        "--shape: expected a shape whose bytes",
    ),
    (["bench", "--only", "tourch"], "--only='numpy', 'torch', 'cupy' or 'jax'"),
    (["bench", "--size", "0"], "--size: expected a positive number of elements"),
    (
        ["bench", "--seconds", "-1"],
        "--seconds: expected a number of seconds, 0 or more\n  got: -1.0",
    ),
    (["bench", "--seconds", "nan"], "--seconds: expected a number of seconds"),
    (["bench", "--output", "{missing}/b.json"], "No such file"),
    (["bench", "--picture", "b.png"], "--picture: expected a name that ends in .svg"),
    (["demo", "--only="], "--only: expected names separated by commas"),
    (["demo", "--only", "nosuch"], "--only: expected the name of a library"),
    (["demo", "--only", "numba", "--device", "cpu"], "has arrays on cpu\n  got: numba"),
    (["run", "{missing}/old.py"], "gpuinterop run: [Errno 2] No such file"),
    (["demo", "--device", "mars"], "--device: expected"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_wrong_arguments_are_refused(run, words, message, tmp_path):
    code, out, err = run(*(word.replace("{missing}", f"{tmp_path}/missing") for word in words))
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matrix", "--outptu=x"], "unknown argument --outptu=x; did you mean --output?"),
        (["version", "left", "over"], "gpuinterop version: error: unknown argument left\n"),
        (["completion", "fish"], "invalid choice: 'fish'"),
    ],
)
def test_wrong_options_print_the_usage_of_the_command(capsys, words, message):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"usage: gpuinterop {words[0]} ")) == ("", True)
    assert message in err

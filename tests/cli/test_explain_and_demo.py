"""explain, demo and version on the command line: output, JSON and exit codes."""

import json
import sys

import numpy as np
import pytest
from doubles import internals

import gpuinterop as gi
from gpuinterop.cli import explain
from gpuinterop.testing import LAYOUTS, Matrix

# ---- explain ------------------------------------------------------------------------------------


def test_explain_shares_refuses_and_copies(run):
    pytest.importorskip("torch")
    code, out, _ = run("explain", "--layout", "F", "--to", "torch")
    assert (code, out) == (0, "to_torch: shared\n")
    code, out, _ = run("explain", "--shape", "3,4", "--layout", "reversed", "--to", "torch")
    assert code == 1
    assert "axis 0" in out
    assert "fix:" in out
    code, out, _ = run("explain", "--layout", "reversed", "--to", "torch", "--copyif")
    assert code == 0
    assert "copied (48 bytes)" in out
    code, out, _ = run("explain", "--layout", "readonly", "--to", "numpy", "--json")
    data = json.loads(out)
    assert (code, data["outcome"], data["library"]) == (0, "shared", "numpy")


def test_explain_knows_processes(run):
    words = ["explain", "--to", "process", "--device", "cpu"]
    assert run(*words)[:2] == (1, f"{gi.explain(gi.zeros(3, device='cpu'), 'process')}\n")
    code, out, _ = run(*words, "--shape", "2", "--copyif")
    assert (code, out.partition("\n")[0]) == (0, "share: copied (8 bytes)")


@pytest.mark.parametrize(
    ("shape", "layout", "dtype", "strides"),
    [
        ("3,4", "C", "float32", (16, 4)),
        ("3,4", "sliced", "int8", (16, 2)),
        ("3,4", "reversed", "float64", (-32, 8)),
        ("3,4", "-16,4", "float32", (-16, 4)),
        ("2,3", "4,-8", "int16", (4, -8)),
        ("0,4", "reversed", "float32", (-16, 4)),
        ("", "C", "float32", ()),
        ("", "reversed", "float32", ()),
        ("2,3", "offset", "float64", (24, 8)),
        ("2,3", "every-other", "float32", (24, 8)),
        ("2,3", "permuted", "float32", (4, 8)),
        ("4,2,3", "permuted", "int8", (1, 12, 4)),
        ("2,1", "size-1", "float32", (4, 1)),
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


def test_array_api_has_two_names(run):
    pytest.importorskip("array_api_strict")
    for name in ("array_api", "array-api", "array_api_strict"):
        code, out, _ = run("explain", "--to", name)
        assert (code, out) == (0, "to_array_api: shared\n")
        code, out, _ = run("demo", "--device", "cpu", "--only", name, "--json")
        assert code == 0
        assert [row["name"] for row in json.loads(out)["libraries"]] == ["array_api"]


# ---- demo and version ---------------------------------------------------------------------------


def test_demo_as_data(run):
    code, out, _ = run("demo", "--device", "cpu", "--only", "numpy,memoryview", "--json")
    found = Matrix.from_json(out)
    assert (code, found.devices, found.ok) == (0, ["cpu"], True)
    assert {cell.outcome for cell in found.select(library="numpy")} == {"shared"}
    (transposed,) = found.select(library="buffer", layout="F")
    assert (transposed.outcome, "copyif=True" in transposed.fix) == ("copied", True)
    assert not [row for row in found.libraries if row.why]


def test_demo_reports_why_a_library_is_left_out(run, monkeypatch):
    internals.install_only(monkeypatch, "numpy", "cupy")
    only = ["demo", "--device", "cpu", "--only", "numpy,cupy,numba,warp"]
    code, out, _ = run(*only)
    assert code == 0
    assert "   no arrays on cpu: cupy, numba\n" in out  # installed or not
    assert "   not installed: warp\n" in out
    # Every library that has a converter is shown, or has its reason.
    code, out, _ = run("demo", "--device", "cpu", "--json")
    found = Matrix.from_json(out)
    assert (code, found.ok) == (0, True), out
    assert {row.name for row in found.libraries} == set(gi.converters.names())
    assert {cell.library for cell in found.cells} == {r.name for r in found.libraries if not r.why}


@pytest.mark.fake_driver
def test_demo_on_a_gpu_without_libraries_for_it_is_on_the_host(run, monkeypatch):
    internals.install_only(monkeypatch, "numpy", "builtins")
    code, out, _ = run("demo")
    assert (code, "on cpu: one array" in out) == (0, True)


SMALL = (
    f"next: {sys.executable} -m pip install torch --index-url https://download.pytorch.org/whl/cpu"
)


@pytest.mark.parametrize(
    ("level", "devices", "first"),
    [
        ("1", ["cpu", "cuda:0"], 'next: make demo WITH="torch"'),
        ("", ["cpu", "cuda:0"], "next: pip install torch"),
        ("1", ["cpu"], f"{SMALL} && make demo"),
        ("", ["cpu"], SMALL),
    ],
)
def test_demo_ends_with_the_next_step(run, monkeypatch, level, devices, first):
    monkeypatch.setattr(gi, "devices", lambda: devices)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    if level:
        monkeypatch.setenv("MAKELEVEL", level)
    internals.install_only(monkeypatch, "numpy", "builtins")
    start = f"{sys.executable}, and in it: import gpuinterop as gi; gi.draw("
    lines = run("demo", "--device", "cpu")[1].splitlines()
    assert (lines[-2], lines[-1].partition("gi.zeros")[0]) == (first, f"then: {start}")
    lines = run("demo", "--device", "cpu", "--only", "numpy")[1].splitlines()
    assert lines[-1].startswith(f"next: {start}")


def test_a_missing_gpu_is_avoided_by_an_option(run):
    if len(gi.devices()) > 1:
        pytest.skip("a GPU is present")
    for command in (["demo"], ["bench"], ["explain", "--to", "numpy"]):
        code, _, err = run(*command, "--device", "cuda")
        assert (code, err.splitlines()[-1].partition(" or ")[2]) == (2, "use --device cpu")


def test_version(run):
    assert run("--version") == run("version")
    assert json.loads(run("version", "--json")[1])["gpuinterop"] == gi.__version__


def test_demo_without_other_libraries_has_all_three_outcomes(monkeypatch, run):
    internals.install_only(monkeypatch, "numpy", "builtins")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, text, _ = run("demo", "--device", "cpu")
    assert code == 0
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()}
    assert rows["numpy"].count("shared") == 4
    assert rows["buffer"].count("refused, copied") == 3
    assert "5 shared, 3 refused, 3 copied" in text
    assert "not installed: torch, " in text
    assert "ContiguityError: to_buffer: " in text
    assert "axis 1 breaks the order" in text
    assert "copyif=True)\n   a copy" in text

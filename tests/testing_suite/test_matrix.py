"""The matrix as data and as a drawing, and the run over installed libraries."""

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from doubles import driver, internals
from doubles import faulty_libraries as faulty

import gpuinterop as gi
from gpuinterop.testing import DTYPES, LAYOUTS, SCHEMA, Cell, Library, Matrix, matrix
from gpuinterop.testing.conftest import run_of
from gpuinterop.testing.test_conversions import test_something_is_tried as something_is_tried

HERE = Path(__file__).parent


def small():
    cells = [
        Cell("toy", "to", "cpu", "C", "float32", "default", "shared", "shared"),
        Cell("toy", "to", "cpu", "reversed", "float32", "default", "copied", "copied", "why", "fix"),
        Cell("toy", "to", "cpu", "C", "int8", "default", "refused"),
        Cell("toy", "from", "cpu", "C", "float32", "default", "none"),
        Cell("toy", "to", "cpu", "0-d", "float32", "default", "wrong",
             faults=[{"check": "address", "expected": "0x10", "got": "0x20"}]),
    ]  # fmt: skip
    return Matrix(cells, [Library("toy", "1.0"), Library("lib", why="not installed")], ["cpu"])


def test_json_comes_back_equal(tmp_path):
    m = small()
    assert Matrix.from_json(m.to_json()) == m
    path = tmp_path / "matrix.json"
    m.save(path)
    assert Matrix.load(path) == m
    data = json.loads(path.read_text())
    assert data["schema"] == SCHEMA
    assert set(data) == {"schema", "about", "devices", "libraries", "cells"}
    assert data["cells"][1]["fix"] == "fix"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "invalid JSON"),
        ("[" * 100_000, "invalid JSON"),
        ("[]", "list"),
        ("{}", "None"),
        ('{"schema": "gpuinterop.matrix/2"}', "matrix/2"),
        (json.dumps({"schema": SCHEMA, "cells": []}), "missing"),
        (json.dumps({"schema": SCHEMA, "cells": [{"library": "x"}]}), "missing"),
        (json.dumps({"schema": SCHEMA, "cells": 3}), "missing"),
    ],
)
def test_other_json_is_refused(text, got):
    with pytest.raises(gi.ExchangeError, match=got) as caught:
        Matrix.from_json(text)
    assert "matrix --output" in caught.value.fix


def test_repr_is_one_line_and_an_unknown_field_is_refused():
    assert re.fullmatch(r"<Matrix of \d+ cases, \d+ wrong>", repr(small()))
    assert small().outcome(library="nosuch") == ""
    with pytest.raises(gi.ArgumentTypeError, match="direction"):
        small().outcome(dirction="to")


def test_drawing():
    lines = str(small()).splitlines()
    assert lines[:4] == [
        "cpu, float32",
        "          C-order reversed 0-d",
        "to   toy  S       C        W",
        "from toy  -",
    ]
    assert "1 shared, 1 copied, 1 refused, 1 wrong, 1 not applicable" in lines
    assert "not tried: lib (not installed)" in lines
    assert "  address: expected 0x10, got 0x20" in lines
    assert "to   toy  S   R" in lines  # by dtype


def test_a_wide_table_is_in_blocks_that_fit_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    letters = {"shared": "S", "copied": "C", "refused": "R", "none": "-"}
    names = [*LAYOUTS, "a-name-longer-than-a-line-of-the-terminal-" * 2]
    outcomes = [list(letters)[i % 4] for i in range(len(names))]
    cells = [
        Cell("a_library", way, "cpu", layout, "float32", "default", outcome)
        for way, step in (("to", 1), ("from", -1))
        for layout, outcome in zip(names, outcomes[::step], strict=True)
    ]
    text = str(Matrix(cells, [Library("a_library")], ["cpu"])).partition("\n\ncpu, C-")[0]
    blocks = [block.splitlines() for block in text.partition("\n")[2].split("\n\n")]
    assert len(blocks) > 2
    assert all(len(line) <= 80 for block in blocks[:-1] for line in block)
    heads, to, back = ([word for block in blocks for word in block[i].split()] for i in range(3))
    assert heads == ["C-order", "F-order", *names[2:]]
    found = [[word for word in row if word in letters.values()] for row in (to, back)]
    wanted = [letters[word] for word in outcomes]
    assert found == [wanted, wanted[::-1]]


def test_a_notebook_shows_tables():
    m = small()
    m.libraries[1] = Library("lib", why="its import failed: <unknown>")
    page = ElementTree.fromstring(f"<page>{m._repr_html_()}</page>")
    rows = [[cell.text or "" for cell in row] for row in page.find("table").iter("tr")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["", "C-order", "reversed", "0-d"],
        ["to   toy", "S", "C", "W"],
        ["from toy", "-", "", ""],
    ]
    text = "".join(page.itertext())
    assert "cpu, float32" in text
    assert "not tried: lib (its import failed: <unknown>)" in text


def test_ok_means_tried_and_not_wrong():
    m = small()
    assert not m.ok
    assert [cell.layout for cell in m.wrong] == ["0-d"]
    assert m.outcome(library="toy") == "wrong"
    assert m.outcome(layout="C", direction="to") == "refused"
    m.cells.pop()
    assert m.ok


def test_one_wide_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    names = [f"library_{i}" for i in range(4)]
    cells = [Cell(n, d, "cpu", layout, "float32", "default", "shared")
             for n in names for d in ("to", "from") for layout in LAYOUTS]  # fmt: skip
    cells += [
        Cell(n, "to", "cpu", "C", dtype, "default", "shared") for n in names for dtype in DTYPES
    ]
    text = str(Matrix(cells, devices=["cpu"]))
    assert max(map(len, text.splitlines())) <= 160
    assert len(text.splitlines()) <= 24
    assert " f8e4 f8e5" in text
    assert " bf16" in text


def test_the_page_counts_what_was_tried(monkeypatch):
    monkeypatch.syspath_prepend(HERE.parents[1] / "tools")
    page = importlib.import_module("compatibility_page")
    cells = [
        Cell("toy", direction, "cuda:0", "C", "float32", "side", outcome)
        for direction, outcome in (("to", "shared"), ("from", "none"))
    ]
    rows = [Library("toy", "1.0"), Library("lib", why="not installed")]
    m = Matrix(cells, rows, ["cuda:0"], {"python": "3", "date": "2026-11-22T00:00"})
    text = "\n".join(page.section("gpu", m))
    assert "In 1 of the cases a slow producer was still running" in text
    assert "2 cases: 1 shared, 0 copied, 0 refused, 0 wrong, 1 not applicable" in text
    assert "Not tried: lib (not installed)." in text
    assert all(f"| [{name}](layouts.md#" in page.page() for name in LAYOUTS)


# ---- which libraries ----------------------------------------------------------------------------


@pytest.fixture
def absent():
    """A library that is not installed."""
    m = matrix(None, ["cpu"], layouts=["C"], dtypes=["float32"])
    found = [library.name for library in m.libraries if library.why == "not installed"]
    if not found:
        pytest.skip("every library is installed")
    return found[0]


@pytest.mark.parametrize("library", ["nosuchlibrary", 3, pytest])
def test_an_unknown_library_is_refused(library):
    with pytest.raises(gi.ConversionTypeError, match=r"^gpuinterop\.testing: .*torch"):
        matrix([library], ["cpu"])


def test_a_broken_installation_is_listed_with_its_error(monkeypatch):
    from gpuinterop.testing import peers

    def broken():
        raise ImportError("libbroken.so.1: cannot open shared object file\nmore")

    monkeypatch.setattr(peers, "_BUILDERS", {"numpy": peers._BUILDERS["numpy"], "torch": broken})
    monkeypatch.setattr(peers, "names", lambda: ["numpy", "torch"])
    monkeypatch.setattr(peers, "installed", lambda name: True)
    monkeypatch.setattr(peers.registry, "load", lambda *_: None)  # installed or not
    m = matrix(None, ["cpu"], layouts=["C"], dtypes=["float32"])
    assert m.ok
    assert "libbroken.so.1" in m.libraries[1].why
    assert "more" not in m.libraries[1].why


def test_a_bridge_by_name(monkeypatch):
    m = matrix(["doubles.faulty_libraries:SOUND"], ["cpu"], layouts=["C"], dtypes=["float32"])
    assert m.ok
    with pytest.raises(gi.ConversionTypeError, match="Bridge"):
        matrix(["doubles.faulty_libraries:PLAIN"], ["cpu"])


def test_library_named_twice_is_tried_once():
    twice = matrix(
        ["numpy", faulty.SOUND, "numpy", faulty.SOUND], ["cpu", "cpu"], layouts=["C", "C"],
        dtypes=["float32", "float32"],
    )  # fmt: skip
    once = matrix(["numpy", faulty.SOUND], "cpu", layouts="C", dtypes="float32")
    assert {(c.device, c.layout, c.dtype) for c in once.cells} == {("cpu", "C", "float32")}
    assert (twice.cells, twice.libraries, twice.devices) == (
        once.cells, once.libraries, once.devices
    )  # fmt: skip


def test_a_library_without_arrays_on_the_device_is_named():
    from dataclasses import replace

    m = matrix([replace(faulty.SOUND, devices=("cuda",))], ["cpu"])
    assert not m.cells
    assert m.libraries[0].why == "no arrays on cpu"


def test_a_plugin_brings_its_bridge(monkeypatch, tmp_path, clean):
    """A package with an entry point and a `testing_bridge` is tried like the built-in libraries."""
    (tmp_path / "toylib_bridge.py").write_text(
        "from doubles.faulty_libraries import SOUND, to_toy, from_toy, plan_to\n"
        "from gpuinterop.converters import Backend\n"
        "import sys\n"
        "testing_bridge = SOUND\n"
        "backend = Backend('toy', 'doubles', ('Toy',), converter=sys.modules[__name__])\n"
    )
    internals.install_converter(tmp_path, "toy", "toylib_bridge:backend")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    internals.forget_entry_points()
    m = matrix(["toy"], ["cpu"], dtypes=["float32"])
    assert m.ok, str(m)
    assert m.outcome(direction="from", layout="F") == "shared"


# ---- with pytest --------------------------------------------------------------------------------


def pyargs(tmp_path, **variables):
    words = ["-m", "pytest", "-q", "-pno:cacheprovider", "--pyargs", "gpuinterop.testing"]
    return driver.python(*words, cwd=tmp_path, **variables)


def test_pytest_runs_the_suite_and_writes_the_matrix(tmp_path):
    result = pyargs(
        tmp_path, GPUINTEROP_LIBRARIES="numpy", GPUINTEROP_MATRIX="m.json", GPUINTEROP_DEVICE="cpu"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "to   numpy" in result.stdout
    m = Matrix.load(tmp_path / "m.json")
    assert m.ok
    assert len(m.select(library="numpy", device="cpu")) == 2 * sum(
        len(layout.dtypes or DTYPES) for layout in LAYOUTS.values()
    )


def test_pytest_fails_for_a_faulty_bridge(tmp_path):
    result = pyargs(tmp_path, GPUINTEROP_BRIDGES="doubles.faulty_libraries:SILENT")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "an error with the reason" in result.stdout
    assert "numpy" not in result.stdout.partition("short test summary")[2]


WRONG_VARIABLES = [
    ("GPUINTEROP_LIBRARIES", "nump", "GPUINTEROP_LIBRARIES: expected the name of a library"),
    ("GPUINTEROP_LIBRARIES", "nump", "fix: pass 'numpy'"),
    ("GPUINTEROP_BRIDGES", "nosuchmodule:x", "No module named 'nosuchmodule'"),
    ("GPUINTEROP_BRIDGES", ":x", "Empty module name"),
    ("GPUINTEROP_BRIDGES", ".doubles:SOUND", "argument is required to perform a relative import"),
    ("GPUINTEROP_BRIDGES", "doubles", "module 'doubles' has no attribute 'bridge'"),
]


@pytest.fixture
def config(monkeypatch):
    """What the suite's conftest reads of pytest's configuration, with no variable set."""
    for variable in ("GPUINTEROP_LIBRARIES", "GPUINTEROP_BRIDGES"):
        monkeypatch.delenv(variable, raising=False)
    return SimpleNamespace(stash=pytest.Stash())


@pytest.mark.parametrize(("variable", "value", "message"), WRONG_VARIABLES)
def test_a_wrong_variable_is_an_error_of_the_collection(
    monkeypatch, config, variable, value, message
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(pytest.Collector.CollectError) as caught:
        run_of(config)
    assert message in str(caught.value)


def test_a_run_of_nothing_fails(monkeypatch, config, absent):
    monkeypatch.setenv("GPUINTEROP_LIBRARIES", absent)
    with pytest.raises(AssertionError, match=f"{absent}: not installed"):
        something_is_tried(run_of(config))


# ---- the libraries themselves -------------------------------------------------------------------


def test_arrays_that_a_library_cannot_make_are_imported_from_dlpack():
    pytest.importorskip("tvm_ffi")
    pytest.importorskip("ml_dtypes")
    m = matrix(["tvm_ffi"], ["cpu"], layouts=["C"], dtypes=["bfloat16", "float8_e5m2"])
    assert {cell.outcome for cell in m.cells} == {"shared"}, m
    pytest.importorskip("jax")
    m = matrix(["jax"], ["cpu"], layouts=["F", "permuted"], dtypes=["float32"])
    assert {cell.outcome for cell in m.cells} == {"shared"}, m


LIBRARIES = (
    "numpy",
    "torch",
    "jax",
    "tvm_ffi",
    "cuda_core",
    "array_api",
    "buffer",
    "warp",
    "tensorflow",
    "pyopencl",
)
PARTS = [
    {"dtypes": ["float32"]},
    {"layouts": ["C"]},
    pytest.param({"dtypes": ["bool", "bfloat16", "complex64"]}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_real_libraries(library, part):
    """Tests of tests/converters begin where this one ends."""
    module = {"cuda_core": "cuda.core", "array_api": "array_api_strict", "buffer": "builtins"}
    pytest.importorskip(module.get(library, library))
    m = matrix([library], ["cpu"], **part)
    assert m.ok, str(m)

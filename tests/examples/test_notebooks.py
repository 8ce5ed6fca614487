"""The notebooks of docs/tutorial run from start to end, and each cell has as many outputs as it keeps."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorial").glob("*.ipynb"))


@pytest.fixture
def run_notebooks(monkeypatch):
    pytest.importorskip("nbclient")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import run_notebooks

    yield run_notebooks
    sys.modules.pop("run_notebooks", None)


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["logistic-regression", "ten-minutes"]


@pytest.mark.filterwarnings("default")  # those of Jupyter's packages are not faults of gpuinterop
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, run_notebooks):
    for library in run_notebooks.needs(path):
        pytest.importorskip(library)
    stored = run_notebooks.nbformat.read(path, as_version=4)
    done = run_notebooks.executed(path)
    kinds = [[len(cell.outputs) for cell in n.cells if "outputs" in cell] for n in (stored, done)]
    assert kinds[0] == kinds[1], "run tools/run_notebooks.py"


def test_pieces_of_one_stream_are_one_output(run_notebooks):
    def text(name, words):
        return run_notebooks.nbformat.v4.new_output("stream", name=name, text=words)

    pieces = [text("stdout", "a\n"), text("stdout", "b\n"), text("stderr", "c\n")]
    assert run_notebooks.joined(pieces) == [text("stdout", "a\nb\n"), text("stderr", "c\n")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_small_and_readable(path):
    """Encoded bytes hide what changed, and a search finds words in them by chance."""
    assert path.stat().st_size < 80_000
    assert "image/png" not in path.read_text(encoding="utf-8")

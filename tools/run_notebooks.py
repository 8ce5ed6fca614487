"""Execute the notebooks of docs/tutorial and write their outputs: ``run_notebooks.py [NOTEBOOK...]``.

A cell with the tag "gpu" runs only on a machine with a GPU and CuPy; elsewhere it keeps its outputs.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorial").glob("*.ipynb"))
# Pictures are text: a difference can be read, and a search for a word finds none in encoded bytes.
PICTURES = [
    "--InlineBackend.figure_formats={'svg'}",
    "--InlineBackend.rc={'svg.hashsalt': 'gpuinterop', 'svg.fonttype': 'none'}",
    "--InlineBackend.print_figure_kwargs={'bbox_inches': 'tight', 'metadata': {'Date': None, 'Creator': None}}",
]
PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}


def needs(path: Path) -> list[str]:
    """Return the libraries that a notebook imports beside NumPy, from its metadata."""
    return list(nbformat.read(path, as_version=4).metadata["needs"])


def has_gpu() -> bool:
    import gpuinterop as gi

    return gi.default_device().type == "cuda" and importlib.util.find_spec("cupy") is not None


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return the outputs with the pieces of one stream joined: a busy machine splits what a cell prints."""
    result: list[nbformat.NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and result and result[-1].get("name") == output.name:
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def executed(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with new outputs. A cell that raises is an error."""
    notebook = nbformat.read(path, as_version=4)
    running = copy.deepcopy(notebook)
    if not has_gpu():
        for cell in running.cells:
            if "gpu" in cell.metadata.get("tags", []):
                cell.source = ""
    nbclient.NotebookClient(
        running, timeout=240, kernel_name="python3", extra_arguments=PICTURES
    ).execute()
    for cell, done in zip(notebook.cells, running.cells, strict=True):
        if cell.cell_type == "code" and done.source:
            cell.outputs = joined(done.outputs)
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output["execution_count"] = None
    notebook.metadata = {"kernelspec": PYTHON, "needs": notebook.metadata["needs"]}
    return notebook


def main(arguments: list[str]) -> int:
    for path in [Path(one) for one in arguments] or NOTEBOOKS:
        nbformat.write(executed(path), path)
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

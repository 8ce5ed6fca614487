"""A folder of the sources without the compiled core."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpuinterop

SOURCES = Path(gpuinterop.__file__).parent


@pytest.mark.parametrize(
    "line", ["from gpuinterop import _core", "import gpuinterop as gi; gi.zeros(3)"]
)
def test_import_error_without_the_core_explains_how_to_build_it(tmp_path, line):
    shutil.copytree(
        SOURCES, tmp_path / "gpuinterop", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    # -S: the editable install would find the core of the working tree.
    paths = [str(tmp_path), *(p for p in sys.path if p.endswith("site-packages"))]
    program = f"import sys; sys.path[:0] = {paths!r}; {line}"
    run = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 1
    assert f"got: no core for this Python in {tmp_path / 'gpuinterop'}" in run.stderr
    assert "fix: in a clone run `make demo`" in run.stderr

"""What the build promises: no linked CUDA, no free-threaded Python, sanitizers on request."""

import json
import os
import re
import runpy
import subprocess
import sys
import sysconfig
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

import gpuinterop

CORE = str(find_spec("gpuinterop._core").origin)
NATIVE = Path(__file__).parents[2] / "native"


# What every Linux has: the C and C++ run time. libcuda itself is opened by name at first use.
LINKED = {
    "libc",
    "libm",
    "libstdc++",
    "libgcc_s",
    "libpthread",
    "libdl",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
}
SANITIZERS = {"libasan", "libubsan"}


def test_no_cuda_library_is_linked():
    listing = subprocess.run(
        ["readelf", "--dynamic", CORE],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[([^\].]+)", listing))
    assert "libc" in needed
    assert needed - LINKED <= (SANITIZERS if os.environ.get("GPUINTEROP_SANITIZED") else set())


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_another_system_is_refused(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(SystemExit, match="Linux is supported only"):
        runpy.run_path(str(NATIVE / "check_python.py"))


def test_the_sanitized_run_is_sanitized():
    sanitized = b"__asan_init" in Path(CORE).read_bytes()
    assert sanitized == bool(os.environ.get("GPUINTEROP_SANITIZED"))


def test_the_version_is_the_same_everywhere():
    try:
        installed = metadata.version("gpuinterop")
    except metadata.PackageNotFoundError:
        pytest.skip("gpuinterop is on the path, but not installed")
    assert gpuinterop.__version__ == installed
    command = [sys.executable, "-m", "gpuinterop", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"gpuinterop {gpuinterop.__version__} ")
    root = NATIVE.parent
    versions = json.loads((root / "docs" / "versions.json").read_text(encoding="utf-8"))
    assert gpuinterop.__version__ in {row["name"] for row in versions}
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {gpuinterop.__version__}\n" in citation


@pytest.mark.parametrize("free_threaded", [0, 1])
def test_a_free_threaded_interpreter_is_refused(monkeypatch, free_threaded):
    monkeypatch.setitem(sysconfig.get_config_vars(), "Py_GIL_DISABLED", free_threaded)
    if not free_threaded:
        runpy.run_path(str(NATIVE / "check_python.py"))
        return
    with pytest.raises(SystemExit, match="free-threaded"):
        runpy.run_path(str(NATIVE / "check_python.py"))

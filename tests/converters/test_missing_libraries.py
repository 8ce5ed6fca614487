"""Libraries that are absent, broken, or come later."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import cli, converters
from gpuinterop.converters import availability


def test_missing_libraries_name_the_package():
    x = gi.from_any(np.asfortranarray(np.ones((2, 3), np.float32)))
    with pytest.raises(gi.MissingLibraryError, match="ported to Python 3"):
        converters.to_cudamat(x)
    with pytest.raises(ImportError):
        converters.to_gnumpy(x.T)


BROKEN = {
    "gnumpy": ("print 'Python 2'\n", "SyntaxError", "ported to Python 3"),
    "warp": ("raise ImportError('libwarp.so.1: no such file')\n", "libwarp", "warp-lang"),
    "tensorflow": ("import module_that_nobody_has\n", "module_that_nobody_has", "tensorflow"),
}


@pytest.fixture
def broken(tmp_path, monkeypatch, request):
    """A library that is installed and cannot be imported."""
    name = request.param
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / f"{name}.py").write_text(BROKEN[name][0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(availability, "_AT_ONCE", 0)
    yield name
    availability._found.discard(name)
    availability._failures.clear()


@pytest.mark.parametrize("broken", BROKEN, indirect=True)
def test_a_library_that_is_installed_but_broken_says_so(broken):
    x = gi.ones((2, 3), device="cpu")
    told, fix = BROKEN[broken][1:]
    plan = gi.explain(x, broken)
    assert plan.refused
    with pytest.raises(gi.MissingLibraryError, match="which is installed, to be imported") as error:
        gi.to(x, broken)
    assert told in error.value.got
    assert fix in error.value.fix
    assert "pip install gnumpy" not in error.value.fix
    assert (plan.error, plan.got, plan.fix) == (type(error.value), error.value.got, error.value.fix)
    report = gi.doctor()
    assert any(told in finding.text and broken in finding.text for finding in report.warnings)
    assert not report.ok


@pytest.mark.parametrize("broken", BROKEN, indirect=True)
def test_the_demo_goes_on_without_a_broken_library(broken, capsys):
    assert cli.main(["demo", "--device", "cpu", "--only", f"numpy,{broken}"]) == 0
    text = capsys.readouterr().out
    assert BROKEN[broken][1] in text
    assert f": {broken}" in text
    assert "4 shared" in text


def test_a_library_that_is_installed_later_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(availability, "_AT_ONCE", 0)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "gpuinterop_test_of_late_packages"
    assert not availability.installed(name)
    assert not availability.installed(name)
    (tmp_path / f"{name}.py").touch()
    assert availability.installed(name)
    assert name not in sys.modules
    later, other = tmp_path / "later", name + "_2"
    later.mkdir()
    (later / f"{other}.py").touch()
    assert not availability.installed(other)
    monkeypatch.syspath_prepend(str(later))
    assert availability.installed(other)


def test_a_bare_folder_is_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr(availability, "_AT_ONCE", 0)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "gpuinterop_test_of_bare_folders"
    (tmp_path / name).mkdir()
    assert not availability.installed(name)


def test_a_missing_library_is_not_looked_for_again_and_again(monkeypatch):
    x = gi.from_any(np.ones((2, 3), np.float32))
    looks = []

    class Finder:
        def find_spec(self, name, *more):
            looks.append(name)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    for _ in range(5):
        with pytest.raises(gi.MissingLibraryError, match="gnumpy of PyPI"):
            converters.to_gnumpy(x)
    assert looks.count("gnumpy") <= 1


@pytest.fixture
def hidden(tmp_path, monkeypatch):
    """A library that a file of its name hides, as one in the current folder does."""
    monkeypatch.delitem(sys.modules, "warp", raising=False)
    (tmp_path / "warp.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(availability, "_AT_ONCE", 0)
    yield tmp_path / "warp.py"
    sys.modules.pop("warp", None)
    availability._found.discard("warp")


def test_a_file_that_hides_a_library_is_named(hidden):
    x = gi.ones((2, 3), device="cpu")
    for _ in range(2):  # not loaded yet, and loaded
        plan = gi.explain(x, "warp")
        assert plan.refused
        with pytest.raises(gi.MissingLibraryError, match="rename that file") as error:
            gi.to(x, "warp")
        assert str(hidden) in error.value.got
        assert (plan.got, plan.fix) == (error.value.got, error.value.fix)


def test_a_file_that_hides_torch_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("x = 1\n")
    program = (
        "import sys, gpuinterop as gi, torch\n"
        "from gpuinterop import cli\n"
        "x = gi.ones(3, device='cpu')\n"
        "for ask in (lambda: gi.to(x, 'torch'), lambda: gi.converters.from_torch(x)):\n"
        "    try: ask()\n"
        "    except gi.GpuInteropError as error: print(error)\n"
        "print(gi.explain(x, 'torch'))\n"
        "sys.exit(cli.main(['matrix', '--only', 'torch']))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Traceback" not in run.stderr
    assert run.stdout.count("torch.py, which is imported in its place") == 3
    assert run.returncode == 1

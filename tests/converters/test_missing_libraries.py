"""Libraries that are absent, broken, or come later."""

import sys

import numpy as np
import pytest
from doubles import internals

import gpuinterop as gi
from gpuinterop import converters


def test_missing_libraries_name_the_package():
    x = gi.from_any(np.asfortranarray(np.ones((2, 3), np.float32)))
    with pytest.raises(gi.MissingLibraryError, match="Python 3"):
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
    yield name
    internals.forget_failed_imports()


@pytest.mark.parametrize("broken", BROKEN, indirect=True)
def test_error_for_a_broken_library_gives_the_reason(broken):
    x = gi.ones((2, 3), device="cpu")
    reason, fix = BROKEN[broken][1:]
    plan = gi.explain(x, broken)
    assert plan.refused
    with pytest.raises(gi.MissingLibraryError, match="is installed") as error:
        gi.to(x, broken)
    assert reason in error.value.got
    assert fix in error.value.fix
    assert "pip install gnumpy" not in error.value.fix
    assert (plan.error, plan.got, plan.fix) == (type(error.value), error.value.got, error.value.fix)
    report = gi.doctor()
    assert any(reason in finding.text and broken in finding.text for finding in report.warnings)
    assert not report.ok

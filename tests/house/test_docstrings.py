"""The examples in docstrings run, and every public function has a docstring."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import gpuinterop as gi

MODULES = [
    module.name
    for module in pkgutil.walk_packages(gi.__path__, "gpuinterop.")
    if not module.name.startswith("gpuinterop.testing.") and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name):
    result = doctest.testmod(importlib.import_module(name))
    assert not result.failed


@pytest.mark.parametrize("name", [n for n in gi.__all__ if n != "__version__"])
def test_public_name_has_a_docstring(name):
    assert inspect.getdoc(getattr(gi, name))


@pytest.mark.parametrize("cls", [gi.CudaNdarray, gi.GpuArray])
def test_public_methods_have_docstrings(cls):
    names = [n for n in dir(cls) if not n.startswith("_") and n != "flags"]
    assert not [n for n in names if not inspect.getdoc(getattr(cls, n))]

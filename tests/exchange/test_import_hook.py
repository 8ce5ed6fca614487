"""A function that is called after the import of a module."""

import importlib
import importlib.util
import sys
from contextlib import nullcontext

import pytest

from gpuinterop.exchange.import_hook import after_import


def test_the_hook_waits_for_an_import_that_succeeds(tmp_path, monkeypatch):
    name, calls, before = "a_module_that_comes_later", [], list(sys.meta_path)
    after_import(name, lambda: calls.append(name in sys.modules))
    (finder,) = set(sys.meta_path) - set(before)
    monkeypatch.syspath_prepend(tmp_path)
    for text, error in ((None, ModuleNotFoundError), ("1 / 0", ZeroDivisionError), ("", None)):
        if text is not None:
            (tmp_path / f"{name}.py").write_text(text)
            importlib.invalidate_caches()
        assert bool(importlib.util.find_spec(name)) == (text is not None)  # a look is no import
        assert finder in sys.meta_path
        with pytest.raises(error) if error else nullcontext():
            importlib.import_module(name)
    assert calls == [True]
    assert finder not in sys.meta_path
    after_import(name, lambda: calls.append("at once"))
    assert calls == [True, "at once"]
    assert sys.meta_path == before
    del sys.modules[name]


class Wrapper:
    """A finder that calls another one, as tools that watch imports install them."""

    def __init__(self, finder):
        self.find_spec = finder.find_spec


def test_an_import_works_where_finders_are_wrapped_or_a_module_is_executed_twice(
    tmp_path, monkeypatch
):
    for name in ("a_module_of_wrapped_finders", "a_module_of_two_specs"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(tmp_path)
    calls = []
    after_import("a_module_of_two_specs", lambda: calls.append("two"))
    for spec in [importlib.util.find_spec("a_module_of_two_specs") for _ in range(2)]:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert calls == ["two", "two"]
    after_import("a_module_of_wrapped_finders", lambda: calls.append("wrapped"))
    monkeypatch.setattr(sys, "meta_path", [Wrapper(finder) for finder in sys.meta_path])
    assert importlib.import_module("a_module_of_wrapped_finders")
    del sys.modules["a_module_of_wrapped_finders"]

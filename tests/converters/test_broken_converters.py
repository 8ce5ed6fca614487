"""A converter of another package that does not work leaves all other conversions alone."""

from __future__ import annotations

import sys
import types
from importlib import metadata

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.converters import availability, registry


class Mine(np.ndarray):
    pass


def mine():
    return np.ones(3, np.float32).view(Mine)


@pytest.fixture
def clean(monkeypatch):
    rows, aliases = dict(registry._entries), dict(registry._aliases)
    yield monkeypatch
    registry.register(rows["numpy"])
    for table, saved in ((registry._entries, rows), (registry._aliases, aliases)):
        table.clear()
        table.update(saved)
    registry._entry_points = None
    availability.broken_converters.clear()


@pytest.fixture
def plugin(clean):
    """An entry point whose module cannot be imported, of a library that is loaded."""

    def load():
        raise ModuleNotFoundError("No module named 'not_installed'")

    point = types.SimpleNamespace(name="mylib", value="mylib.interop", load=load)
    clean.setattr(metadata, "entry_points", lambda group: [point])
    clean.setitem(sys.modules, "mylib", types.ModuleType("mylib"))
    registry._entry_points = None


def test_a_plugin_that_cannot_be_imported_is_disabled_with_one_warning(plugin):
    with pytest.warns(RuntimeWarning, match="'mylib' is disabled: .*not_installed"):
        assert gi.from_any(mine()).tolist() == [1, 1, 1]
    # Once: another warning would be an error here.
    assert gi.explain(mine(), "numpy").shared
    assert gi.from_any(gi.ones(3, device="cpu").__dlpack__()).tolist() == [1, 1, 1]
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(object())
    findings = [found for found in gi.doctor().findings if found.code == "converter"]
    assert len(findings) == 1
    assert "mylib" in findings[0].text
    assert "not_installed" in findings[0].text


def test_a_plugin_that_cannot_be_imported_is_refused_by_name(plugin):
    for ask in (gi.to, gi.explain):
        with pytest.raises(gi.MissingLibraryError, match=r"mylib[\s\S]*not_installed"):
            ask(gi.ones(3, device="cpu"), "mylib")
    assert not hasattr(converters, "to_mylib")
    assert not hasattr(converters, "from_mylib")
    with pytest.raises(AttributeError, match="not_installed"):
        converters.to_mylib  # noqa: B018


@pytest.mark.parametrize("question", ["matches", "like"])
def test_a_question_that_raises_is_no_answer(clean, question):
    def ask(obj):
        raise KeyError("of its own")

    converters.register(converters.Backend("mylib", "mylib", **{question: ask}))
    with pytest.warns(RuntimeWarning, match=f"'mylib'.*{question}.*of its own"):
        assert registry.find_backend(object()) is None
    for _ in range(2):
        assert gi.from_any(mine()).tolist() == [1, 1, 1]
        with pytest.raises(gi.ConversionTypeError, match="none of these"):
            gi.from_any(object())
    converters.register(converters.Backend("mylib", "mylib"))  # mended
    assert gi.from_any(mine()).tolist() == [1, 1, 1]
    assert not availability.broken_converters

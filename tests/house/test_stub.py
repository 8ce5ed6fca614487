"""gpuinterop/_core.pyi says what the native module offers, with a signature for every slot."""

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest

import gpuinterop._core as core

ROOT = Path(__file__).parents[2]
STUB = ROOT / "gpuinterop" / "_core.pyi"


def stub_tree():
    return ast.parse(STUB.read_text(encoding="utf-8"))


@pytest.mark.parametrize("stub", ["_core.pyi", "__init__.pyi"])
def test_stub_is_fresh(stub, monkeypatch):
    pytest.importorskip("nanobind")
    monkeypatch.syspath_prepend(ROOT / "tools")  # make_stub imports stub_tables
    spec = importlib.util.spec_from_file_location("make_stub", ROOT / "tools" / "make_stub.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = ROOT / "gpuinterop" / stub
    assert path.read_text(encoding="utf-8") == module.STUBS[path](), "run `make stub`"


def test_no_slot_is_left_without_a_signature():
    vague = []
    for node in ast.walk(stub_tree()):
        if isinstance(node, ast.FunctionDef) and node.args.vararg and node.args.kwarg:
            vague.append(node.name)
    assert sorted(vague) == ["__call__", "__init__"], (
        "give them a signature in tools/core_slots.pyi"
    )


def test_every_function_has_a_docstring():
    bare = [
        name
        for name, value in vars(core).items()
        if not name.startswith("_") and callable(value) and not inspect.getdoc(value)
    ]
    assert not bare

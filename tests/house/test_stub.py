"""gpuinterop/_core.pyi says what the native module offers, with a signature for every slot."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest

import gpuinterop._core as core

ROOT = Path(__file__).parents[2]
STUB = ROOT / "gpuinterop" / "_core.pyi"


def declared(body) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets}
    return names


def stub_tree():
    return ast.parse(STUB.read_text(encoding="utf-8"))


@pytest.mark.parametrize("stub", ["_core.pyi", "__init__.pyi"])
def test_stub_is_fresh(stub):
    pytest.importorskip("nanobind")
    spec = importlib.util.spec_from_file_location("make_stub", ROOT / "tools" / "make_stub.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = ROOT / "gpuinterop" / stub
    assert path.read_text(encoding="utf-8") == module.STUBS[path](), "run `make stub`"


def test_every_name_is_declared():
    offered = {name for name in vars(core) if not name.startswith("__")}
    assert offered <= declared(stub_tree().body)


def test_every_member_of_the_array_type_is_declared():
    (array,) = [node for node in stub_tree().body if getattr(node, "name", "") == "Array"]
    ignored = {"__doc__", "__module__", "__new__", "__weakref__", "__dict__", "__dictoffset__"}
    ignored |= {"__setattr__", "__delattr__"}  # declared, any attribute might be set
    offered = {name for name in vars(core.Array) if name not in ignored}
    assert offered - declared(array.body) == set()


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

"""What help(), inspect and pickle make of the operations: functions of the package."""

from __future__ import annotations

import inspect
import pickle
import pydoc

import pytest

import gpuinterop as gi
from gpuinterop.ops.core_callbacks import FUNCTIONS

NAMES = [
    *sorted(set(FUNCTIONS) - {"cast"}), "matmul", "dot", "gemm", "sum", "max", "var", "norm",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_functions_read_well(name):
    function = getattr(gi, name)
    assert inspect.isroutine(function)
    assert function.__name__ == function.__qualname__ == name
    assert function.__module__.startswith("gpuinterop")
    assert len(inspect.signature(function).parameters) >= 2
    text = pydoc.plain(pydoc.render_doc(function))
    assert inspect.getdoc(function).splitlines()[0] in text
    assert f"{name}(" in text
    assert "method of" not in text
    assert "builtins" not in text
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("cls", [gi.CudaNdarray, gi.GpuArray])
def test_every_method_has_a_signature_and_a_docstring(cls):
    for name in dir(cls):
        method = getattr(cls, name)
        if callable(method) and not name.startswith("_"):
            assert inspect.signature(method), name
            assert inspect.getdoc(method), name
            assert "$self" not in inspect.getdoc(method), name


def test_signatures_name_every_argument():
    for call, arguments in [
        (gi.add, ["x", "y", "out", "dtype"]),
        (gi.sum, ["x", "axis", "dtype", "out", "keepdims", "initial", "where"]),
        (gi.var, ["x", "axis", "dtype", "out", "ddof", "keepdims", "where"]),
        (gi.argmax, ["x", "axis", "out", "keepdims"]),
    ]:
        assert list(inspect.signature(call).parameters) == arguments
    x = gi.zeros(3, device="cpu")
    for method, arguments in [
        (x.sum, ["axis", "dtype", "out", "keepdims", "initial", "where"]),
        (x.var, ["axis", "dtype", "out", "ddof", "keepdims", "where"]),
        (x.astype, ["dtype", "order", "copy"]),
        (x.take, ["indices", "axis", "out", "mode", "max_threads"]),
        (x.dot, ["other", "out"]),
        (x.exp, []),
    ]:
        assert list(inspect.signature(method).parameters) == arguments
    where = inspect.signature(gi.mean).parameters["where"]
    assert (where.kind, where.default) == (inspect.Parameter.KEYWORD_ONLY, True)

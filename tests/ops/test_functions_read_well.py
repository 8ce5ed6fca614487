"""What help(), inspect and pickle make of the operations: functions of the package."""

from __future__ import annotations

import inspect
import pickle
import pydoc

import pytest

import gpuinterop as gi
from gpuinterop.ops.runtime import FUNCTIONS

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


def test_signatures_name_every_argument():
    for call, arguments in [
        (gi.add, ["x", "y", "out"]),
        (gi.sum, ["x", "axis", "dtype", "out", "keepdims", "initial", "where"]),
        (gi.var, ["x", "axis", "dtype", "out", "ddof", "keepdims", "where"]),
        (gi.argmax, ["x", "axis", "out", "keepdims"]),
    ]:
        assert list(inspect.signature(call).parameters) == arguments
    where = inspect.signature(gi.mean).parameters["where"]
    assert (where.kind, where.default) == (inspect.Parameter.KEYWORD_ONLY, True)

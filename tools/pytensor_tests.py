#!/usr/bin/env python3
"""Run PyTensor's own tests in the mode "GPU": ``pytensor_tests.py CHECKOUT [--device cpu] [pytest arguments]``.

CHECKOUT is a source tree of the installed PyTensor with its folder tests/. PyTensor's packages on the index contain the
tests of gradients only, without the module of tools that these import, which a stand-in then replaces. The tests of
elementwise operations, reductions, products, indexing, gradients and shared variables run with floatX=float32, mode
"GPU" as the default and shared float32 variables on the device; with ``--any-dtype``, arrays of every dtype are there.
The tests run from a copy, in which they compile everything in the default mode and no longer count or compare the Ops
of compiled graphs: those differ. pytensor_tests.txt, beside this file, lists the tests that are omitted: the end of the
test's name, ``|``, the reason. A reason that begins with "cuda:" or "any-dtype:" omits the test only there.
"""

from __future__ import annotations

import argparse
import ast
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILES = [
    "tensor/test_elemwise.py", "tensor/test_math.py", "tensor/test_blas.py", "tensor/test_subtensor.py",
    "compile/test_shared.py", "tensor/test_sharedvar.py", "tensor/test_basic.py", "tensor/test_special.py",
    "test_gradient.py", "test_rop.py", "test_raise_op.py", "test_ifelse.py",
]  # fmt: skip
OPTIONS = "GPUINTEROP_PYTENSOR_TESTS"  # this file's arguments, for the processes of pytest
# In place of PyTensor's tests/unittest_tools.py.
STAND_IN = """\
import numpy as np
import pytensor.gradient

class InferShapeTester:
    def setup_method(self):
        pass

    def _compile_and_check(self, inputs, outputs, values, *_, **options):
        found = pytensor.function(inputs, outputs)(*values)
        compute_shapes = pytensor.function(inputs, [x.shape for x in outputs], on_unused_input="ignore")
        shapes = compute_shapes(*values)
        assert [tuple(shape) for shape in shapes] == [x.shape for x in found]

def fetch_seed():
    return 1

def verify_grad(op, pt, rng=None, **options):
    return pytensor.gradient.verify_grad(op, pt, rng=rng or np.random.default_rng(1), **options)
"""
GRAPH = {"fgraph", "toposort", "apply_nodes"}


def names(tree: ast.AST) -> set[str]:
    """Return the names and attributes in an expression."""
    return {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(tree)} - {""}


class InDefaultMode(ast.NodeTransformer):
    """Removes asserts about compiled graphs, and other modes than the default one."""

    graphs = GRAPH  # with the names of what the present function derived from them

    def visit_FunctionDef(self, function: ast.FunctionDef) -> ast.AST:
        before, self.graphs = self.graphs, set(self.graphs)
        self.generic_visit(function)
        self.graphs = before
        return function

    def visit_Assign(self, statement: ast.Assign) -> ast.AST:
        if names(statement.value) & self.graphs:
            self.graphs = self.graphs.union(*map(names, statement.targets))
        return self.generic_visit(statement)

    def visit_For(self, loop: ast.For) -> ast.AST:
        if names(loop.iter) & self.graphs:
            counts = (n.target for n in ast.walk(loop) if isinstance(n, ast.AugAssign))
            self.graphs = self.graphs.union(names(loop.target), *map(names, counts))
        return self.generic_visit(loop)

    def visit_Assert(self, statement: ast.Assert) -> ast.AST:
        return ast.Pass() if names(statement.test) & self.graphs else self.generic_visit(statement)

    def visit_Call(self, call: ast.Call) -> ast.AST:
        self.generic_visit(call)
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if name == "Mode" and [k.arg for k in call.keywords] == ["linker"]:
            return ast.parse(
                "__import__('pytensor').compile.mode.get_default_mode()", mode="eval"
            ).body
        if name == "excluding":
            call.args = [a for a in call.args if getattr(a, "value", "") != "gpu"]
        call.keywords = [
            k
            for k in call.keywords
            if k.arg != "mode" or getattr(k.value, "value", "") != "FAST_RUN"
        ]
        return call


def copy_tests(checkout: Path, target: Path) -> list[str]:
    """Write the transformed tests below `target`; return the paths of the files to run."""
    for path in (checkout / "tests").rglob("*.py"):
        copy = target / path.relative_to(checkout)
        copy.parent.mkdir(parents=True, exist_ok=True)
        tree = InDefaultMode().visit(ast.parse(path.read_text(encoding="utf-8")))
        copy.write_text(ast.unparse(tree), encoding="utf-8")
    tools = target / "tests" / "unittest_tools.py"
    if tools.parent.is_dir() and not tools.exists():
        tools.write_text(STAND_IN, encoding="utf-8")
        (target / "tests" / "__init__.py").touch()
    return [str(target / "tests" / name) for name in FILES if (target / "tests" / name).exists()]


def left_out() -> dict[str, str]:
    """Return the patterns of tests that do not run, with their reasons."""
    lines = (HERE / "pytensor_tests.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("|", 1) for line in lines if line and not line.startswith("#"))
    return {pattern.strip(): reason.strip() for pattern, reason in pairs}


def pytest_configure() -> None:
    """Set the mode, in each process of pytest: this file is its plugin."""
    import gpuinterop.pytensor as backend

    if chosen.driver:
        sys.path.insert(0, str(HERE.parent / "tests"))
        from doubles import fake_driver  # type: ignore[import-not-found]

        fake_driver.use()
    backend.use("cuda" if chosen.driver else chosen.device, any_dtype=chosen.any_dtype)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip the listed tests."""
    import pytest

    cases = {
        "cuda": chosen.driver is not None or chosen.device.startswith("cuda"),
        "any-dtype": chosen.any_dtype,
    }
    for item in items:
        name = item.nodeid.partition("[")[0]
        for pattern, reason in left_out().items():
            if cases.get(reason.partition(":")[0], True) and name.endswith(pattern):
                item.add_marker(pytest.mark.skip(reason=reason))


def main(arguments: list[str]) -> int:
    chosen, rest = parser.parse_known_args(arguments)
    # Flags are read when PyTensor is imported, and processes of pytest-xdist get no arguments but pytest's.
    environment = {
        **os.environ,
        "PYTENSOR_FLAGS": "floatX=float32,cxx=,blas__ldflags=,linker=vm",
        OPTIONS: shlex.join(arguments),
    }
    with tempfile.TemporaryDirectory() as folder:
        found = copy_tests(chosen.checkout.resolve(), Path(folder))
        if not found:
            parser.error(
                f"{chosen.checkout} has none of the test files; pass a source tree of PyTensor"
            )
        paths = [folder, str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        command = [sys.executable, "-m", "pytest", "-p", "pytensor_tests", "-q", "-p", "no:cacheprovider", "-rsf",
                   f"--rootdir={folder}", *found, *rest]  # fmt: skip
        return subprocess.run(command, env=environment).returncode


parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("checkout", type=Path)
parser.add_argument("--device", default="cpu")
parser.add_argument("--any-dtype", action="store_true")
parser.add_argument("--driver", choices=["fake"], help="the fake driver of tests/, as device cuda")
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
chosen, _ = parser.parse_known_args(shlex.split(os.environ[OPTIONS]))

#!/usr/bin/env python3
"""Run PyTensor's own tests in the mode "GPU": ``pytensor_tests.py CHECKOUT [--device cpu] [pytest arguments]``.

CHECKOUT is a source tree of the installed PyTensor with its folder tests/, which its packages on the index contain
only in part. The tests of elementwise operations, reductions, products, indexing, gradients and shared variables run
with floatX=float32, mode "GPU" as the default and shared float32 variables on the device; with ``--any-dtype``, arrays
of every dtype are there. The tests run from a copy, in which they compile everything in the default mode and no longer
count or compare the Ops of compiled graphs: those differ. pytensor_tests.txt, beside this file, lists the tests that
are omitted: the end of the test's name, ``|``, the reason. A reason that begins with "cuda:" or "any-dtype:" omits the
test only there.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = [
    "tensor/test_elemwise.py", "tensor/test_math.py", "tensor/test_blas.py", "tensor/test_subtensor.py",
    "compile/test_shared.py", "tensor/test_sharedvar.py", "tensor/test_basic.py", "tensor/test_special.py",
    "test_gradient.py", "test_rop.py", "test_raise_op.py", "test_ifelse.py",
]  # fmt: skip
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
    return [str(target / "tests" / name) for name in FILES if (target / "tests" / name).exists()]


def left_out() -> dict[str, str]:
    """Return the patterns of tests that do not run, with their reasons."""
    lines = (HERE / "pytensor_tests.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("|", 1) for line in lines if line and not line.startswith("#"))
    return {pattern.strip(): reason.strip() for pattern, reason in pairs}


class Plugin:
    """Sets the mode, and skips the listed tests."""

    def __init__(self, device: str, any_dtype: bool) -> None:
        self.device, self.any_dtype = device, any_dtype

    def pytest_configure(self) -> None:
        import gpuinterop.pytensor as backend

        backend.use(self.device, any_dtype=self.any_dtype)

    def pytest_collection_modifyitems(self, items: list[object]) -> None:
        import pytest

        cases = {"cuda": self.device.startswith("cuda"), "any-dtype": self.any_dtype}
        reasons = left_out()
        for item in items:
            for pattern, reason in reasons.items():
                if cases.get(reason.partition(":")[0], True) and item.nodeid.partition("[")[
                    0
                ].endswith(pattern):  # type: ignore[attr-defined]
                    item.add_marker(pytest.mark.skip(reason=reason))  # type: ignore[attr-defined]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--any-dtype", action="store_true")
    parser.add_argument(
        "--driver", choices=["fake"], help="the fake driver of tests/, as device cuda"
    )
    chosen, rest = parser.parse_known_args()
    if "GPUINTEROP_PYTENSOR_TESTS" not in os.environ:  # flags are read when PyTensor is imported
        flags = "floatX=float32,cxx=,blas__ldflags=,linker=vm"
        environment = {**os.environ, "GPUINTEROP_PYTENSOR_TESTS": "1", "PYTENSOR_FLAGS": flags}
        return subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode
    import pytest

    if chosen.driver:
        chosen.device = "cuda"
        sys.path.insert(0, str(HERE.parent / "tests"))
        from doubles import fake_driver  # type: ignore[import-not-found]

        fake_driver.use()
    with tempfile.TemporaryDirectory() as folder:
        found = copy_tests(chosen.checkout.resolve(), Path(folder))
        if not found:
            parser.error(
                f"{chosen.checkout} has none of the test files; pass a source tree of PyTensor"
            )
        sys.path.insert(0, folder)
        arguments = ["-q", "-p", "no:cacheprovider", "-rsf", f"--rootdir={folder}", *found, *rest]
        return int(pytest.main(arguments, plugins=[Plugin(chosen.device, chosen.any_dtype)]))


if __name__ == "__main__":
    sys.exit(main())

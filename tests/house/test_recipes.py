"""Operators, reductions, converters, dtypes and kernels need the places that docs/extending names, and no other."""

import re
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from doubles import fake_driver

import gpuinterop

PACKAGE = Path(gpuinterop.__file__).parent
CORE = str(find_spec("gpuinterop._core").origin)
RECIPES = Path(__file__).parents[2] / "docs" / "extending"


def examples(recipe: str, language: str = "py") -> list[str]:
    """The examples of a recipe."""
    text = (RECIPES / f"{recipe}.md").read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return [textwrap.dedent(code) for code in found]


(OPERATOR,) = examples("operator")
FUNCTIONS, _, REDUCTION = examples("reduction")[0].rpartition("\n\n")
(KERNEL,), (LAUNCH,) = examples("kernel", "cuda"), examples("kernel")
# A position is a field of its row.
PLACE = """
Reduction("place_of_most", _int64, _extreme("ArgExtreme", "-1"), "axis out keepdims", "Return a position.",
          needs_elements=True, place_of="max"),
"""
MYLIB, BLOCKS, BRIDGE = examples("converter")
(ENTRY,) = re.findall(
    r'`(Backend\("mylib".*\),)`', (RECIPES / "converter.md").read_text(encoding="utf-8")
)
# The bridge to the second library.
BLOCKS_BRIDGE = """
def _blocks() -> Bridge:
    blocks = registry.load("blocks", "gpuinterop.testing")

    def make(flat: Any, layout: Layout, device: str) -> Any:
        window = layout.of(flat)
        good = flat.dtype == "float32" and window.ndim == 2 and window.flags.c_contiguous
        return blocks.Block(window.ctypes.data, window.shape, window) if good and not layout.readonly else None

    return Bridge(
        "blocks", make=make, devices=("cpu",), address=lambda b: b.pointer, values=lambda b: b.host(),
        write=lambda b, index, value: b.host().__setitem__(index, value),
    )


_BUILDERS"""
# Invented libraries: the arrays of one implement DLPack, those of the other have only a pointer and a shape.
LIBRARIES = {
    "mylib": """
import numpy

class Array:
    def __init__(self, source):
        self.host = numpy.from_dlpack(source)

    def __dlpack__(self, **options):
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.host.__dlpack_device__()

from_dlpack = Array
""",
    "blocks": """
import ctypes, math, numpy

class Block:
    def __init__(self, pointer, shape, owner):
        self.pointer, self.shape, self.owner = pointer, shape, owner

    def host(self):
        elements = (ctypes.c_float * math.prod(self.shape)).from_address(self.pointer)
        return numpy.frombuffer(elements, "float32").reshape(self.shape)
""",
}
IMPORTS = """
import sys

# An editable installation would import the original.
sys.meta_path = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
import numpy as np
import gpuinterop as gi

x = gi.GpuArray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu")
"""
OPERATIONS = """
assert gi.midpoint(x, 1).tolist() == ((x + 1) / 2).tolist()
assert x.sum_of_squares(axis=1).tolist() == [5, 50]
assert gi.sum_of_squares(x, axis=0, keepdims=True).tolist() == [[9, 17, 29]]
assert x.place_of_most().item() == 5 and x.place_of_most(axis=0).tolist() == [1, 1, 1]
assert gi.full(3, 100, "int8", device="cpu").sum_of_squares().item() == 30_000
fused = gi.fuse(lambda x: gi.midpoint(x, x) - x.sum_of_squares(axis=0))
assert fused(x).tolist() == (x - (x * x).sum(axis=0)).tolist()
graph = gi.Expression()
total = graph.reduce("sum_of_squares", graph.apply("midpoint", graph.input(), 1))
assert graph.compile([total])(x).item() == (((x + 1) / 2) ** 2).sum().item()
"""
KERNELS = """
from gpuinterop import jit
from gpuinterop.reduce.codegen import render
from gpuinterop.reduce.launch import Operand
from gpuinterop.reduce.launch import choose_launch
from gpuinterop.reduce.table import REDUCTIONS, recipe_for

for dtype in map(np.dtype, ("bool", "int8", "uint64", "float16", "float64", "complex64")):
    recipe = recipe_for("sum_of_squares", dtype, REDUCTIONS["sum_of_squares"].result(dtype))
    plan = choose_launch((64, 256), (1,), [Operand((256, 1), dtype.itemsize)], [(0, 0)])
    assert jit.compile_source(render(recipe, plan), min(jit.supported_archs()))
"""
TESTS = Path(__file__).parents[1]
ROWS = f"""
sys.path += [{str(TESTS)!r}, {str(TESTS / "elementwise")!r}]
if PLACE != "cpu":
    from doubles import fake_driver

    fake_driver.use()
import test_table

(row,) = (row for row in test_table.ROWS if row.name == "midpoint")
test_table.test_rows(PLACE, row)
test_table.test_row_computes_the_numpy_function_of_its_name(row)
"""
REVERSED = f"""
sys.path += [{str(Path(__file__).parents[1])!r}]
from doubles import fake_driver

fake_driver.use()
from gpuinterop.index.reverse import reversed_copy

for dtype, size in (("float32", 1000), ("int8", 1), ("complex128", 300), ("float64", 0)):
    y = gi.arange(size, dtype=dtype, device="cuda:0")
    assert reversed_copy(y).tolist() == y.tolist()[::-1]
"""
CONVERTERS = """
from gpuinterop import converters, testing

m = testing.matrix(["mylib", "blocks"], ["cpu"])
assert m.ok, str(m)
for entry in converters.backends():
    assert {*entry.devices} == entry.module.RULES.devices, entry.name
for layout in ("C", "F", "reversed", "broadcast"):
    for direction in ("to", "from"):
        cell = {"library": "mylib", "direction": direction, "layout": layout}
        assert m.outcome(**cell, dtype="float32") == "shared"
    assert m.outcome(library="mylib", direction="to", layout=layout, dtype="int8") == "refused"
for layout, outcome in (("C", "shared"), ("F", "copied"), ("0-d", "refused")):
    assert m.outcome(library="blocks", direction="to", layout=layout, dtype="float32") == outcome
assert m.outcome(library="blocks", direction="from", layout="C", dtype="float32") == "shared"
other = converters.to_mylib(x)
assert gi.explain(x, "mylib").shared and gi.shares_memory(other, x) and gi.from_any(other).ptr == x.ptr
assert converters.from_mylib(other).base is not None and "mylib.Array" in converters.to_mylib.__doc__
"""


# In each file the text that is replaced, and its replacement.
EDITS = {
    "exchange/registry.py": (
        '    Backend("warp", ',
        f'    {ENTRY}\n    {ENTRY.replace("mylib", "blocks").replace("Array", "Block")}\n    Backend("warp", ',
    ),
    "testing/peers.py": ("\n_BUILDERS", f"\n{BRIDGE}{BLOCKS_BRIDGE}"),
    "elementwise/table.py": ('    Row("subtract",', f'    {OPERATOR}    Row("subtract",'),
    "reduce/table.py": (
        '        Reduction("prod",',
        f'{textwrap.indent(REDUCTION + PLACE, " " * 8)}        Reduction("prod",',
    ),
}
ENTRIES = {'"abs absolute ': '"midpoint abs absolute ', '"all amax ': '"sum_of_squares all amax '}


def edit(file: Path, old: str, new: str) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.count(old) == 1
    file.write_text(source.replace(old, new), encoding="utf-8")


@pytest.fixture
def run(tmp_path):
    """Run a program in a copy of the package to which the examples have been added."""
    copy = tmp_path / "gpuinterop"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CORE, copy)
    for file, (old, new) in EDITS.items():
        edit(copy / file, old, new)
    edit(copy / "reduce/table.py", "\ndef _mean(", f"\n{FUNCTIONS}\n\n\ndef _mean(")
    edit(
        copy / "testing" / "peers.py",
        '    "torch": _torch,',
        '    "torch": _torch, "mylib": _mylib, "blocks": _blocks,',
    )
    for name, code in (("mylib", MYLIB), ("blocks", BLOCKS)):
        (copy / "converters" / f"{name}.py").write_text(code, encoding="utf-8")
        (tmp_path / f"{name}.py").write_text(LIBRARIES[name], encoding="utf-8")
    (copy / "index" / "kernels" / "reverse.cuh").write_text(KERNEL, encoding="utf-8")
    (copy / "index" / "reverse.py").write_text(LAUNCH, encoding="utf-8")
    for old, new in ENTRIES.items():
        edit(copy / "__init__.py", old, new)

    def run_program(program: str) -> None:
        script = tmp_path / "program.py"
        script.write_text(IMPORTS + program, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    return run_program


def test_an_operator_a_reduction_and_converters_need_only_their_places(run):
    run(OPERATIONS + CONVERTERS)


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_the_added_operator_passes_the_tests_of_all_rows(run, place):
    fake_driver.library()  # skips if there is no compiler
    run(f"PLACE = {place!r}{ROWS}")


def test_the_added_kernel_runs(run):
    fake_driver.library()
    run(REVERSED)


@pytest.mark.usefixtures("nvrtc")
def test_kernels_of_the_added_reduction_compile(run):
    run(KERNELS)


def test_a_small_float_is_named_in_its_three_places():
    # None can be added in a copy, because its row in dtype.cpp needs another core.
    root = Path(__file__).parents[2]
    sources = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for folder in ("gpuinterop", "native")
        for path in (root / folder).rglob("*.*")
        if path.suffix in (".py", ".cpp", ".hpp", ".cuh")
        and path.parent.name not in ("converters", "testing")  # what other libraries can hold
    }
    places = {
        "gpuinterop/arrays/dtypes.py",
        "native/arrays/dtype.cpp",
        "gpuinterop/jit/kernels/prelude.cuh",
    }
    rows = re.findall(
        r'DTypeEntry\("(float[468]_\w+)", "(\w+)"', sources["gpuinterop/arrays/dtypes.py"]
    )
    assert len(rows) > 10
    for row in rows:
        word = re.compile(rf"\b({'|'.join(row)})\b")
        assert {path for path, text in sources.items() if word.search(text)} == places

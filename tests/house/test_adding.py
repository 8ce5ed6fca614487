"""An operator, a reduction and a converter are added as CONTRIBUTING says, and nothing else is needed."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gpuinterop

PACKAGE = Path(gpuinterop.__file__).parent
CORE = str(find_spec("gpuinterop._core").origin)
OPERATOR = '    Row("average", 2, {"f": "(x + y) / 2"}, lambda x, y: (x + y) / 2, "The mean.", like=np.add),\n'
REDUCTION = """        Reduction("sum_of_squares", _sum_dtype,
            lambda source, result: (ACCUMULATORS[result], "x0 * x0", f"FloatSum<{ACCUMULATORS[result]}>"),
            lambda x, axis, dtype=None: np.sum(x * x, axis=axis, dtype=dtype),
            "axis dtype out keepdims", "Return the sum of the squares over `axis`.", identity=0),
"""
PROGRAM = """
import sys

# An editable installation would import the original.
sys.meta_path = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
import numpy as np
import gpuinterop as gi

x = gi.GpuArray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu")
assert gi.average(x, 1).tolist() == ((x + 1) / 2).tolist()
assert x.sum_of_squares(axis=1).tolist() == [5, 50]
assert gi.sum_of_squares(x, axis=0, keepdims=True).tolist() == [[9, 17, 29]]
fused = gi.fuse(lambda x: gi.average(x, x) - x.sum_of_squares(axis=0))
assert fused(x).tolist() == (x - (x * x).sum(axis=0)).tolist()
graph = gi.Expression()
total = graph.reduce("sum_of_squares", graph.apply("average", graph.input(), 1))
assert graph.compile([total])(x).item() == (((x + 1) / 2) ** 2).sum().item()
twice = gi.MapReduce("x0 * 2", lambda x, e: (np.sum(4 * x[0] ** 2, axis=-1),), op="sum_of_squares")
operand = x.astype("float32")
recipe = twice.recipe([operand], [])
assert recipe.map == "gi_mapped(x0) * gi_mapped(x0)", recipe.map
"""


# A library of its own, whose arrays implement DLPack.
LIBRARY = """
import numpy

class Array:
    def __init__(self, source):
        self.host = numpy.from_dlpack(source)

    def __dlpack__(self, **options):
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.host.__dlpack_device__()

from_dlpack = Array
"""
CONVERTER = """
from gpuinterop.converters.plan import Rules

ARRAY = "a mylib.Array"
STREAM = "the legacy default stream"
FROM_DLPACK = "from_dlpack"
RULES = Rules("mylib", "to_mylib", frozenset({"float32", "int32"}), readonly=True)
"""
BRIDGE = """
def _mylib() -> Bridge:
    library = registry.load("mylib", "gpuinterop.testing")
    return Bridge(
        "mylib", make=lambda flat, layout, device: library.Array(layout.of(flat)), devices=("cpu",),
        address=lambda a: a.host.ctypes.data, values=lambda a: a.host,
        write=lambda a, index, value: a.host.__setitem__(index, value),
    )


_BUILDERS"""
TRIAL = """
from gpuinterop import converters, testing

for layout in ("C", "F", "reversed"):
    assert gi.explain(x, "mylib").shared
    m = testing.matrix(["mylib"], ["cpu"], layouts=[layout], dtypes=["float32", "int8"])
    assert m.ok, str(m)
    assert m.outcome(direction="to", layout=layout, dtype="float32") == "shared"
    assert m.outcome(direction="to", layout=layout, dtype="int8") == "refused"
    assert m.outcome(direction="from", layout=layout, dtype="float32") == "shared"
other = converters.to_mylib(x)
assert gi.shares_memory(other, x) and gi.from_any(other).ptr == x.ptr
assert converters.from_mylib(other).base is not None and "mylib.Array" in converters.to_mylib.__doc__
"""


EDITS = {
    "converters/registry.py": (
        '    Backend("warp", ',
        '    Backend("mylib", "mylib", ("Array",), devices=("cpu",)),\n    Backend("warp", ',
    ),
    "testing/peers.py": ("\n_BUILDERS", BRIDGE),
    "ops/operation_table.py": ('    Row("subtract",', OPERATOR + '    Row("subtract",'),
    "ops/reduction_table.py": (
        '        Reduction("prod",',
        REDUCTION + '        Reduction("prod",',
    ),
}
ENTRIES = {'"abs absolute ': '"average abs absolute ', '"all amax ': '"sum_of_squares all amax '}


def edit(file: Path, old: str, new: str) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.count(old) == 1
    file.write_text(source.replace(old, new), encoding="utf-8")


def test_an_operator_a_reduction_and_a_converter_need_only_their_places(tmp_path):
    copy = tmp_path / "gpuinterop"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CORE, copy)
    for file, (old, new) in EDITS.items():
        edit(copy / file, old, new)
    edit(
        copy / "testing" / "peers.py",
        '    "torch": _torch,',
        '    "torch": _torch, "mylib": _mylib,',
    )
    (copy / "converters" / "mylib.py").write_text(CONVERTER, encoding="utf-8")
    (tmp_path / "mylib.py").write_text(LIBRARY, encoding="utf-8")
    for old, new in ENTRIES.items():
        edit(copy / "__init__.py", old, new)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + TRIAL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

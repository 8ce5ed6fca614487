"""Users' programs pass mypy --strict, mypy infers the right classes, and it finds mistakes."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_types import EITHER, NUMPY_TYPES, STATIC_TYPES, C, G

import gpuinterop

# The package under test, whether it is the source tree's or an installed one.
PACKAGE = Path(gpuinterop.__file__).parents[1]


# As in docs/reference/type-checkers.md.
CONFIGURATION = "[mypy]\nplugins = gpuinterop.mypy_plugin\n"


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "gpuinterop" / "py.typed").is_file()


NAMES = """
x = gi.CudaNdarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
g = gi.GpuArray([[1.0, 2.0], [3.0, 4.0]], "float64", device="cpu")
b = gi.GpuArray([[1, 0], [1, 1]], "bool", device="cpu")
host = np.ones((2, 2))
class Lent:
    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        return np.ones((2, 2), "float32").__dlpack__(**options)
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
class ForeignDType:
    is_floating_point, itemsize = True, 8
    def __repr__(self) -> str:
        return "torch.float64"
foreign = ForeignDType()
lent = Lent()
either = gi.from_any(lent)
row: np.ndarray[tuple[int], np.dtype[np.float64]] = np.ones(2)
class Model:
    @gi.fuse
    def step(self, x: gi.CudaNdarray, rate: float = 0.5) -> gi.CudaNdarray:
        return x * rate
@gi.fuse(static_argnames="up")
def scaled(x: gi.CudaNdarray, *, up: bool = True) -> tuple[gi.CudaNdarray, gi.CudaNdarray]:
    return x * 2.0, x
"""
# The same of other objects.
MORE = """
assert_type(x.shape, tuple[int, ...])
assert_type(x.ptr, int)
assert_type(x.readonly, bool)
assert_type(gi.devices(), tuple[gi.Device, ...])
assert_type(gi.memory_stats("cpu"), dict[str, int])
assert_type(gi.explain(x, "numpy").shared, bool)
assert_type(gi.doctor().ok, bool)
assert_type(gi.mem_info("cpu"), tuple[int, int])
graph = gi.Expression()
graph.compile([graph.apply("add", graph.input(), 2.0)])(x)
x[...] = gi.converters.to_numpy(x)
with gi.stream(None, "cpu") as s, gi.count_copies() as copies:
    assert_type(s, gi.Stream)
assert_type(copies.count, int)
try:
    gi.device("nowhere")
except gi.DeviceError as error:
    assert_type(error.fix, str)
"""


PAGES = Path(__file__).parents[2]


def exact():
    """The static classes of results, and of those of NumPy's functions, are exact."""
    known = {**STATIC_TYPES, **NUMPY_TYPES}.items()
    return (
        "import numpy as np\nimport gpuinterop as gi\nfrom typing import Any, assert_type\n" + NAMES
        + "".join(f"assert_type({text}, {kind})\n" for text, kind in known) + MORE
        + "kept: np.ndarray[Any, Any] = np.exp(host)\n"
        + "".join(f"reveal_type({library}.{call})\n" for call in ufunc_calls() for library in ("gi", "np"))
    )  # fmt: skip


def ufunc_calls():
    ufuncs = {f.__name__: f.nin for f in vars(np).values() if isinstance(f, np.ufunc)}
    return [f"{name}({', '.join(given[:inputs])})" for name, inputs in ufuncs.items()
            if hasattr(gpuinterop, name) for given in ("xx", "gx", "gg")]  # fmt: skip


def tour():
    """The tour passes."""
    page = (PAGES / "docs/tutorial/tour.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python(?: torch)?\n(.*?)^```", page, flags=re.M | re.S)
    assert len(shown) > 5
    return "".join(shown)


def converted():
    """The name of a library decides the class of a conversion."""
    return (
        f"import {', '.join(LIBRARIES)}\nimport numpy as np\nimport gpuinterop as gi\n"
        "from typing import Any, assert_type\nx = gi.ones(3)\nname = 'my' + 'lib'\n"
        + "".join(f"assert_type(gi.to(x, {name}), {kind})\n" for name, kind in CONVERTED.items())
        + "assert_type(torch.Tensor() * x, torch.Tensor)\nassert_type(2 * x, gi.CudaNdarray)\n"
    )


def mistaken():
    """Mistakes are found."""
    return "\n".join(["import gpuinterop as gi", "x = gi.CudaNdarray([1.0])", *MISTAKES])


@pytest.mark.parametrize("text", {**STATIC_TYPES, **NUMPY_TYPES})
def test_static_classes_of_results_match_runtime(text):
    names = {"gi": gpuinterop, "np": np, "Any": Any}
    with gpuinterop.device("cpu"):
        exec(NAMES, names)
        found = eval(text, names)
    static_type = {**STATIC_TYPES, **NUMPY_TYPES}[text]
    if static_type[:5] in ("tuple", "list["):
        assert type(found).__name__ == static_type.partition("[")[0]
        found, static_type = found[0], C if C in static_type else G
    names = static_type.partition("[")[0].split(" | ")
    assert type(found).__name__ in [name.partition(".")[2] for name in names]


# One class of each library, so that the test does not depend on what is installed.
LIBRARIES = {
    "torch": "from typing import Any\nclass Tensor:\n"
    "    def __getattr__(self, name: str) -> Any: ...\n"
    "    def __setitem__(self, at: Any, value: Any) -> None: ...\n"
    "    def __mul__(self, other: Tensor | float) -> Tensor: ...\n"
    "    def requires_grad_(self, requires_grad: bool = ...) -> Tensor: ...",
    "jax": "class Array: ...",
    "cupy": "class ndarray: ...",
    "tensorflow": "class Tensor: ...",
    "tvm_ffi": "class Tensor: ...",
    "warp": "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass array(Generic[T]): ...",
}
CONVERTED = {
    "'torch'": "torch.Tensor",
    "'pytorch', copyif=True": "torch.Tensor",
    "library='torch'": "torch.Tensor",
    "'jax'": "jax.Array",
    "'cupy'": "cupy.ndarray",
    "'tensorflow'": "tensorflow.Tensor",
    "'warp'": "warp.array[Any]",
    "'numpy'": "np.ndarray[Any, np.dtype[Any]]",
    "'buffer'": "memoryview",
    "'gpuinterop'": EITHER,
    "'cudandarray'": C,
    "library=name": "Any",
}


# Functions that return objects of other libraries.
FOREIGN = {"to", "to_gpuarray", "cudandarray_to_cudamat", "cudandarray_to_garray"}


def test_no_function_gives_just_anything():
    stub = ast.parse((PACKAGE / "gpuinterop" / "__init__.pyi").read_text(encoding="utf-8"))
    vague = {node.name for node in stub.body
             if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns) == "Any"}  # fmt: skip
    imported = set()
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            imported |= set(import_module(node.module).__all__) if names == {"*"} else names
    for name in imported & set(gpuinterop.__all__):
        value = getattr(gpuinterop, name)
        if inspect.isfunction(value):
            returns = inspect.signature(value).return_annotation
            vague |= {name} if returns in ("Any", inspect.Signature.empty) else set()
    assert vague - {"__getattr__"} == FOREIGN


MISTAKES = {
    "gi.zeroes(3)": "attr-defined",
    "gi.exp('abc')": "No overload variant",
    "gi.add(x)": "No overload variant",
    "gi.zeros('ab')": "incompatible type",
    "gi.zeros(2, 'int64')._only": 'has no attribute "_only"',
    'gi.sum("text")': "No overload variant",
    "m: gi.CudaNdarray = gi.zeros(2, 'int64')": "Incompatible types in assignment",
    "s: gi.CudaNdarray = gi.from_dlpack(x)": "Incompatible types in assignment",
    "gi.devices().name": 'has no attribute "name"',
    "gi.Stream(handle=5)": "Unexpected keyword argument",
    "gi.stream(1, 2, 3)": "Too many arguments",
    "x.no_such_method()": 'has no attribute "no_such_method"',
    "gi.mem_info(1, 2)": "Too many arguments",
    "x.shape + 1": "No overload variant",
    "n: int = x.T": "Incompatible types in assignment",
    "x.reshape(2, 2, order=3)": "order",
    "x.shape = 'C'": "Incompatible types in assignment",
    "gi.devices.as_streem(0)": 'has no attribute "as_streem"',
    "gi.doctor.no_such_name": 'has no attribute "no_such_name"',
    "gi.to(x, 'trch')": "No overload variant",
    "gi.fuse(round)(x, 'up')": "No overload variant",
    "gi.fuse(gi.device)(5, 6)": "No overload variant",
    "gi.fuse(gi.device, static_argname='x')": "No overload variant",
    "gi.Expression().apply('exp', 'x')": "incompatible type",
}


def test_mypy_on_programs_of_users(tmp_path):
    """One process, because mypy reads NumPy's and our types for ten seconds."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    for library, text in LIBRARIES.items():
        (tmp_path / "stubs" / library).mkdir(parents=True)
        (tmp_path / "stubs" / library / "__init__.pyi").write_text(text)
    for program in (exact, tour, converted, mistaken):
        (tmp_path / f"{program.__name__}.py").write_text(program())
    page = (PAGES / "docs" / "reference" / "type-checkers.md").read_text(encoding="utf-8")
    assert CONFIGURATION in page
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    folders = [PACKAGE] * (PACKAGE.name != "site-packages") + [tmp_path / "stubs"]
    # What is judged is the programs, not the optional libraries that the package names.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=mypy.ini", "--python-version=3.12",
               "--follow-imports=silent", *sorted(path.name for path in tmp_path.glob("*.py"))]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, folders))},
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    said = done.stdout.splitlines()
    errors = [line for line in said if ": error:" in line]
    assert not [line for line in errors if not line.startswith("mistaken.py:")]
    for number, (line, fault) in enumerate(MISTAKES.items(), 3):
        found = [error for error in errors if error.startswith(f"mistaken.py:{number}:")]
        assert fault in "".join(found), f"{line}: {found}\n{done.stdout[-2000:]}{done.stderr}"
    # The plugin gives NumPy's functions the types of gpuinterop's.
    revealed, calls = re.findall('Revealed type is "(.*)"', done.stdout), ufunc_calls()
    assert len(calls) > 200
    assert len(revealed) == 2 * len(calls)
    for call, ours, numpys in zip(calls, revealed[::2], revealed[1::2], strict=True):
        assert ours == numpys, call

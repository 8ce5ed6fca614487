"""What users write passes mypy --strict, the classes that it tells are right, and mistakes are found."""

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

import gpuinterop

# The package under test, whether it is the source tree's or an installed one.
PACKAGE = Path(gpuinterop.__file__).parents[1]


# As in docs/arrays.md. One configuration for all tests, because each needs a cache of its own.
CONFIGURATION = "[mypy]\nplugins = gpuinterop.mypy_plugin\n"


@pytest.fixture(scope="session")
def mypy_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mypy")
    (folder / "mypy.ini").write_text(CONFIGURATION)
    return folder


@pytest.fixture
def mypy(tmp_path, mypy_cache):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")

    def check(program: Path, *stubs: Path) -> subprocess.CompletedProcess[str]:
        config = f"--config-file={mypy_cache / 'mypy.ini'}"
        command = [sys.executable, "-m", "mypy", "--strict", config, "--python-version=3.12",
                   # What is judged is the program, not the optional libraries that the package names.
                   "--follow-imports=silent", "--cache-dir", str(mypy_cache), str(program)]  # fmt: skip
        folders = [PACKAGE] * (PACKAGE.name != "site-packages") + list(stubs)
        environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, folders))}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
        )

    return check


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "gpuinterop" / "py.typed").is_file()


C, G, EITHER = "gi.CudaNdarray", "gi.GpuArray", "gi.CudaNdarray | gi.GpuArray"

# What a type checker says of an expression. Each is also computed, and must be what was said.
STATIC_TYPES = {
    "gi.zeros((2, 2))": C,
    "gi.zeros(2, 'float32')": C,
    "gi.zeros(2, np.float32)": C,
    "gi.zeros(2, 'int64')": G,
    "gi.zeros(2, np.float64)": G,
    "gi.zeros(2, np.int8)": G,
    "gi.zeros(2, bool)": G,
    "gi.zeros(2, x.dtype)": EITHER,
    "gi.ones(3)": C,
    "gi.empty(3, order='F')": C,
    "gi.full(3, 1.5)": C,
    "gi.full(3, 1, 'uint8')": G,
    "gi.eye(3)": C,
    "gi.eye(3, dtype='int32')": G,
    "gi.arange(4)": C,
    "gi.arange(4, dtype='int64')": G,
    "gi.zeros_like(x)": C,
    "gi.ones_like(x, 'int8')": G,
    "gi.full_like(host, 1)": EITHER,
    "gi.array([1, 2])": C,
    "gi.array(host, dtype='float32')": C,
    "gi.asarray([[1.0, 2.0]])": C,
    "gi.asarray(2.5, 'float64')": G,
    "gi.asarray(x)": C,
    "gi.asarray(host)": EITHER,
    "gi.from_dlpack(host)": EITHER,
    "gi.from_dlpack(host, cls=gi.GpuArray)": G,
    "gi.from_any(host)": EITHER,
    "gi.from_gpu_pointer(x.ptr, 4, base=x)": C,
    "gi.exp(x)": C,
    "gi.exp(g)": G,
    "gi.exp(2.0)": G,
    "gi.exp(host)": G,
    "gi.exp(x, out=x)": C,
    "gi.add(x, 1)": C,
    "gi.add(1, x)": C,
    "gi.add(g, 1)": G,
    "gi.maximum(g, b)": G,
    "gi.less(x, 1)": G,
    "gi.isnan(x)": G,
    "gi.divmod(x, 2)": f"tuple[{C}, {C}]",
    "gi.where(x > 0, x, 0)": C,
    "gi.where(b, g, 0)": G,
    "gi.clip(x, 0, 1)": C,
    "gi.round(g, 2)": G,
    "gi.astype(x, 'float64')": G,
    "gi.sum(x, axis=0)": C,
    "gi.mean(g)": G,
    "gi.std(x, ddof=1)": C,
    "gi.max(x)": C,
    "gi.argmax(x)": G,
    "gi.any(x)": G,
    "gi.norm(x)": C,
    "gi.dot(x, x)": C,
    "gi.matmul(g, g)": G,
    "gi.addmm(x, x, x, beta=0.5)": C,
    "gi.concatenate([x, x])": C,
    "gi.split(x, 2)": f"list[{C}]",
    "x + 1": C,
    "1 - x": C,
    "b * x": C,
    "g / 2": G,
    "x @ x": C,
    "x > 0": G,
    "x == x": G,
    "-x": C,
    "x[1:, ::-1]": C,
    "x.T": C,
    "x.reshape(4).dimshuffle('x', 0)": C,
    "x.copy()": C,
    "x.norm(axis=0)": C,
    "x.ptp()": C,
    "x.reduce_sum((1, 0))": C,
    "Model().step(x, 2.0)": C,
    "Model.step(Model(), x, rate=1.0)": C,
    "scaled(x, up=False)": f"tuple[{C}, {C}]",
    "scaled(x, out=(x, None))": f"tuple[{C}, {C}]",
    "x ** 2": C,
    "x.sum(axis=0)": C,
    "g.mean()": G,
    "x.argmax()": G,
    "x.astype('float32')": C,
    "x.astype('float64')": G,
    "g.astype('float32')": G,
    "x.clip(0, 1)": C,
    "x.take([0], axis=0)": C,
    # Arrays of other libraries, alone and with a gpuinterop array.
    "gi.sum(lent)": G,
    "gi.mean(host, axis=0)": G,
    "gi.std(lent, ddof=1)": G,
    "gi.max(host)": G,
    "gi.argmin(lent)": G,
    "gi.norm(lent)": G,
    "gi.reduce_sum(lent, (1, 0))": G,
    "gi.take(lent, [0])": G,
    "gi.split(lent, 2)": f"list[{G}]",
    "gi.broadcast_to(host, (3, 2, 2))": G,
    "gi.astype(lent, 'int8')": G,
    "gi.astype(host, 'float32')": G,
    "gi.gemm(x, lent)": EITHER,
    "gi.gemm(lent, lent)": EITHER,
    "gi.gemm(lent, lent, out=x)": C,
    "gi.addmm(lent, lent, x)": EITHER,
    "gi.gemv(lent, x[0])": EITHER,
    "gi.ger(row, row)": EITHER,
    "gi.concatenate([x, lent])": EITHER,
    "gi.concatenate([x, b])": EITHER,
    "gi.concatenate([lent, lent])": EITHER,
    "gi.concatenate([lent, lent], out=gi.zeros((4, 2)))": C,
    "gi.stack([x, lent])": EITHER,
    "gi.join(0, x, lent)": EITHER,
    # A gpuinterop array of an unknown class.
    "gi.exp(either)": EITHER,
    "gi.add(either, 1)": EITHER,
    "gi.add(b, either)": EITHER,
    "gi.matmul(lent, either)": EITHER,
    "gi.gemm(either, lent)": EITHER,
    "gi.where(b, 0, either)": EITHER,
    # The dtype decides, and some operations compute in no less than float64.
    "gi.exp(x, dtype='float64')": G,
    "gi.exp(x, dtype='float32')": C,
    "gi.exp(x, dtype=x.dtype)": EITHER,
    "gi.add(x, x, dtype='float64')": G,
    "gi.add(x, x, dtype=x.dtype)": EITHER,
    "gi.add(x, x, dtype=np.float32)": C,
    "gi.astype(x, x.dtype)": EITHER,
    "gi.sum(g, dtype=x.dtype)": G,
    "gi.float_power(x, 2)": G,
    "gi.float_power(g, 2)": G,
    "gi.Stream('cpu').device": "gi.Device",
    # Modules that are called like their function.
    "gi.devices.as_stream(0)": "gi.Stream",
    "gi.devices.current_stream()": "gi.Stream",
    "gi.devices()[0]": "gi.Device",
    "gi.devices.devices()[0]": "gi.Device",
    "gi.converters.to_numpy(x)": "np.ndarray[Any, Any]",
    "gi.default_device()": "gi.Device",
    "x.device": "gi.Device",
    # A dtype object of another library, as torch has them.
    "gi.zeros(2, foreign)": EITHER,
    "gi.asarray(host, foreign)": EITHER,
    "x.astype(foreign)": EITHER,
    "gi.exp(x, dtype=foreign)": EITHER,
    "gi.sum(g, dtype=foreign)": G,
}
# NumPy's functions, with the plug-in.
NUMPY_TYPES = {
    "np.exp(x)": C,
    "np.exp(g)": G,
    "np.exp(either)": EITHER,
    "np.abs(x)": C,
    "np.add(x, 1)": C,
    "np.add(host, g)": G,
    "np.add(b, either)": EITHER,
    "np.less(x, 1)": G,
    "np.divmod(x, 2)": f"tuple[{C}, {C}]",
    "np.add(x, np.exp(np.exp(x)))": C,
    "np.exp(x, dtype='float64')": G,
    "np.float_power(x, 2)": G,
}
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
# The same of what is no array.
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


def test_static_classes_of_results_are_exact(mypy, tmp_path):
    program = tmp_path / "told.py"
    program.write_text(
        "import numpy as np\nimport gpuinterop as gi\nfrom typing import Any, assert_type\n" + NAMES
        + "".join(f"assert_type({text}, {kind})\n" for text, kind in STATIC_TYPES.items()) + MORE
    )  # fmt: skip
    done = mypy(program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_plugin_gives_numpys_functions_the_types_of_gpuinterops(mypy, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "arrays.md").read_text(encoding="utf-8")
    program = tmp_path / "ufuncs.py"
    assert CONFIGURATION in page
    ufuncs = {f.__name__: f.nin for f in vars(np).values() if isinstance(f, np.ufunc)}
    calls = [f"{name}({', '.join(given[:inputs])})" for name, inputs in ufuncs.items()
             if hasattr(gpuinterop, name) for given in ("xx", "gx", "gg")]  # fmt: skip
    assert len(calls) > 200
    program.write_text(
        "import numpy as np\nimport gpuinterop as gi\nfrom typing import Any, assert_type\n" + NAMES
        + "".join(f"assert_type({text}, {kind})\n" for text, kind in NUMPY_TYPES.items())
        + "kept: np.ndarray[Any, Any] = np.exp(host)\n"
        + "".join(f"reveal_type({library}.{call})\n" for call in calls for library in ("gi", "np"))
    )  # fmt: skip
    done = mypy(program)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall('Revealed type is "(.*)"', done.stdout)
    assert len(found) == 2 * len(calls)
    for call, ours, numpys in zip(calls, found[::2], found[1::2], strict=True):
        assert ours == numpys, call


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
    "torch": "class Tensor:\n    def __mul__(self, other: Tensor | float) -> Tensor: ...\n"
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


def test_library_name_decides_the_class_of_a_conversion(mypy, tmp_path):
    for library, text in LIBRARIES.items():
        (tmp_path / "stubs" / library).mkdir(parents=True)
        (tmp_path / "stubs" / library / "__init__.pyi").write_text(text)
    program = tmp_path / "converted.py"
    program.write_text(
        f"import {', '.join(LIBRARIES)}\nimport numpy as np\nimport gpuinterop as gi\n"
        "from typing import Any, assert_type\nx = gi.ones(3)\nname = 'my' + 'lib'\n"
        + "".join(f"assert_type(gi.to(x, {name}), {kind})\n" for name, kind in CONVERTED.items())
        + "assert_type(torch.Tensor() * x, torch.Tensor)\nassert_type(2 * x, gi.CudaNdarray)\n"
    )
    done = mypy(program, tmp_path / "stubs")
    assert done.returncode == 0, done.stdout + done.stderr


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
    "gi.sum([1.0])": "No overload variant",
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


def test_the_tour_of_the_readme_passes(mypy, tmp_path):
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python(?: torch)?\n(.*?)^```", page, flags=re.M | re.S)
    assert len(blocks) > 5
    program = tmp_path / "tour.py"
    # Nothing but its import needs torch to be there.
    program.write_text("".join(blocks).replace("import torch\n", ""))
    done = mypy(program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mistakes_are_found(mypy, tmp_path):
    program = tmp_path / "mistaken.py"
    program.write_text(
        "\n".join(["import gpuinterop as gi", "x = gi.CudaNdarray([1.0])", *MISTAKES])
    )
    done = mypy(program)
    assert done.returncode == 1, done.stdout + done.stderr
    for number, (line, fault) in enumerate(MISTAKES.items(), 3):
        said = [
            static_type
            for static_type in done.stdout.splitlines()
            if f"mistaken.py:{number}:" in static_type
        ]
        assert fault in "".join(said), f"{line}: {said}"

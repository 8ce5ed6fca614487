"""The examples in docstrings run, and every public function has a docstring."""

import doctest
import importlib
import inspect
import pickle
import pkgutil
import pydoc

import pytest
from helpers.docstring_examples import example_of, needs_gpu, needs_library, run
from helpers.mpi import load_mpi

import gpuinterop as gi

MODULES = [
    module.name
    for module in pkgutil.walk_packages(gi.__path__, "gpuinterop.")
    if not module.name.startswith(
        ("gpuinterop.testing.", "gpuinterop.pytensor", "gpuinterop.theano.", "gpuinterop.mypy")
    )
    and not module.name.endswith("__main__")
]


# What a module imports beyond NumPy.
NEEDS = {
    "gpuinterop.collectives.mpi": "mpi4py",
    "gpuinterop.collectives.process_group": "torch",
    "gpuinterop.dask.backend": "dask.array",
    "gpuinterop.dask.transfer": "distributed",
    "gpuinterop.ray": "ray.experimental",
}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name):
    if name in NEEDS:
        load_mpi() if NEEDS[name] == "mpi4py" else pytest.importorskip(NEEDS[name])
    found = doctest.DocTestFinder().find(importlib.import_module(name))
    run(example for example in found if not (needs_gpu(example) or needs_library(example)))


def documented():
    """Public functions and classes, and the arrays' methods that are written in Python or no function too, by name."""
    for name in set(gi.__all__) - {"__version__"}:
        value = getattr(gi, name)
        if not (isinstance(value, type) and issubclass(value, Exception)):
            yield name, getattr(value, "__wrapped__", value)
    for cls in (gi.CudaNdarray, gi.GpuArray):
        for name in dir(cls):
            method = getattr(cls, name, None)
            if (
                (inspect.isfunction(method) or name not in gi.__all__)
                and callable(method)
                and name[0] != "_"
            ):
                yield name, method


EXAMPLES = {name: example_of(value) for name, value in documented()}
OF_PACKAGE = [example for example in EXAMPLES.values() if not needs_library(example)]


def test_public_functions_and_methods_have_an_example_that_runs():
    assert not [name for name, example in EXAMPLES.items() if not example.examples]
    run(example for example in OF_PACKAGE if not needs_gpu(example))


@pytest.mark.gpu
def test_examples_for_a_gpu_run():
    assert run(example for example in OF_PACKAGE if needs_gpu(example))


@pytest.mark.parametrize(
    "name", ["add", "where", "clip", "divmod", "matmul", "gemm", "sum", "var", "norm"]
)
def test_operations_of_the_core_are_shown_as_functions_of_the_package(name):
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
    x = gi.zeros(3, device="cpu")
    for call, arguments in [
        (gi.add, "x y out dtype order"),
        (gi.sum, "x axis dtype out keepdims initial where"),
        (x.var, "axis dtype out ddof keepdims where correction"),
        (x.take, "indices axis out mode max_threads"),
        (x.exp, ""),
    ]:
        assert list(inspect.signature(call).parameters) == arguments.split()
    assert inspect.signature(gi.mean).parameters["where"].kind is inspect.Parameter.KEYWORD_ONLY
    assert x.copy.__self__ is x
    assert pickle.loads(pickle.dumps(x.copy))().tolist() == [0, 0, 0]


@pytest.mark.parametrize("cls", [gi.CudaNdarray, gi.GpuArray, gi.Device, gi.Stream, gi.Event])
def test_public_methods_have_docstrings(cls):
    names = [n for n in dir(cls) if not n.startswith("_") and hasattr(cls, n)]
    # Where the core says nothing, the binding shows the signature in place of it.
    docstrings = {n: inspect.getdoc(getattr(cls, n)) or "" for n in names}
    assert not [n for n, doc in docstrings.items() if not doc.partition("\n")[2] and "(self" in doc]
    assert all(docstrings.values())
    assert not [n for n, doc in docstrings.items() if "$self" in doc]
    if issubclass(cls, gi.CudaNdarray | gi.GpuArray):
        assert all(inspect.signature(m) for n in names if callable(m := getattr(cls, n)))


@pytest.mark.parametrize("cls", [gi.Stream, gi.Event])
def test_constructors_of_the_core_document_their_arguments(cls):
    with pytest.raises(TypeError, match="blocking: bool = False"):
        cls(no_such_argument=1)
    assert cls("cpu", blocking=True).device == "cpu"

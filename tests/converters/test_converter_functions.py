"""All converters have the same parameters and order of documentation, and a Theano-compatible name."""

import atexit
import inspect
import re
from pathlib import Path

import pytest
from doubles import fake_cudamat, fake_pycuda
from helpers.docstring_examples import example_of, needs_gpu, run

import gpuinterop as gi
from gpuinterop import converters

ROOT = Path(__file__).parents[2]
PROMISED = (
    "numpy pycuda cupy torch jax numba cudamat gnumpy cuda_core tvm_ffi warp tensorflow pyopencl array_api buffer"
).split()
DOCUMENTS = (
    "to_gpuarray to_cudandarray cudandarray_to_cudamat cudamat_to_cudandarray "
    "cudandarray_to_garray garray_to_cudandarray"
).split()


# pyopencl and array_api take an object of the library as an option, so their examples are on pages.
LIBRARIES = {
    f"{direction}_{library}": library
    for direction in ("to", "from")
    for library in PROMISED
    if library not in ("pyopencl", "array_api")
} | {
    "to_gpuarray": "pycuda",
    "cudandarray_to_cudamat": "cudamat",
    "cudamat_to_cudandarray": "cudamat",
    "cudandarray_to_garray": "gnumpy",
    "garray_to_cudandarray": "gnumpy",
}
FOR_GPU = {name for name in LIBRARIES if needs_gpu(example_of(getattr(converters, name)))}


def run_example(name):
    assert run([example_of(getattr(converters, name))]) > 3


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.gpu if n in FOR_GPU else ()) for n in LIBRARIES]
)
def test_example_of_a_converter_runs(name, monkeypatch):
    library = LIBRARIES[name]
    if library in ("cudamat", "gnumpy"):  # in CPU mode
        npmat = fake_cudamat.npmat()
        fake_pycuda.installed(monkeypatch, npmat, fake_cudamat.gnumpy(npmat))
    else:
        pytest.importorskip({"cuda_core": "cuda.core", "buffer": "builtins"}.get(library, library))
    run_example(name)


@pytest.mark.fake_driver
@pytest.mark.parametrize("name", [name for name in LIBRARIES if LIBRARIES[name] == "pycuda"])
def test_example_of_pycudas_converter_runs(name, monkeypatch):
    fake_pycuda.installed(monkeypatch, fake_pycuda.pycuda())
    try:
        run_example(name)
    finally:  # pop the context that the example has pushed
        atexit.unregister(converters.pycuda._undo)
        converters.pycuda._undo(converters.pycuda.init())


def takes_an_array_and_copyif(function):
    array, copyif, *options = inspect.signature(function).parameters.values()
    assert array.default is inspect.Parameter.empty
    assert (copyif.name, copyif.default) == ("copyif", False)
    assert copyif.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert all(option.kind is inspect.Parameter.KEYWORD_ONLY for option in options)


@pytest.mark.parametrize("library", PROMISED)
def test_every_converter_takes_an_array_and_copyif(library):
    for direction in ("to", "from"):
        function = getattr(converters, f"{direction}_{library}")
        takes_an_array_and_copyif(function)
        assert inspect.getdoc(function)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_theano_names_are_at_the_top_level(name):
    assert name in gi.__all__
    takes_an_array_and_copyif(getattr(gi, name))
    assert next(iter(inspect.signature(getattr(gi, name)).parameters)) == "x"


def test_the_page_about_kernels_says_first_that_an_address_has_no_strides():
    page = (ROOT / "docs" / "how-to" / "use-other-kernels.md").read_text(encoding="utf-8")
    warning = page.index("A kernel that receives only an address cannot see strides")
    assert page[:warning].count("\n## ") == 1
    assert "```" not in page[:warning]


# ---- docstrings ---------------------------------------------------------------------------------

ORDER = (
    ("what it shares", r"\bShares\b"),
    ("the dtype", r"\bdtype\b|\bfloat32\b"),
    ("the stream", r"\bstream\b|\bqueued\b"),
    ("the lifetime", r"\bkeeps\b|\bholds\b|\bheld\b"),
    ("whether writes are seen", r"\bWrites\b"),
)
FUNCTIONS = [
    name
    for library in ("numpy", "buffer", "cupy", "numba", "pycuda", "cudamat", "gnumpy")
    for name in (f"to_{library}", f"from_{library}")
] + ["to_cudandarray", "to_gpuarray"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_answers_the_same_questions_in_order(name):
    text = getattr(converters, name).__doc__
    assert re.search(r"\b[Cc]opies\b", text), f"{name} does not tell what it copies"
    at = 0
    for question, words in ORDER:
        found = re.compile(words).search(text, at)
        assert found, f"{name} does not tell, after the others, {question}"
        at = found.end()

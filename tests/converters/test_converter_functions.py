"""All converters have the same parameters and order of documentation, and a Theano-compatible name."""

import inspect
import re
from pathlib import Path

import pytest

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

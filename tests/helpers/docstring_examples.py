"""The examples of docstrings, as doctest runs them."""

import doctest
import inspect


def example_of(function):
    """The example in a function's docstring, which may have no lines."""
    text = inspect.getdoc(function) or ""
    return doctest.DocTestParser().get_doctest(text, {}, repr(function), None, 0)


def run(examples):
    """Run examples; return how many lines they have."""
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert not runner.failures
    return runner.tries


def needs_gpu(example):
    return '"cuda:0"' in example.docstring


def needs_library(example):
    """Whether it is that of a converter; tests/converters run these."""
    return "from gpuinterop.converters import" in example.docstring

"""Each converter's docstring answers the same questions, in the same order."""

from __future__ import annotations

import re

import pytest

from gpuinterop import converters

ORDER = (
    ("what it shares", r"\bShares\b"),
    ("what it copies", r"\b[Cc]opies\b"),
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
def test_the_questions_are_answered_in_order(name):
    text = getattr(converters, name).__doc__
    at = 0
    for question, words in ORDER:
        found = re.compile(words).search(text, at)
        assert found, f"{name} does not tell, after the others, {question}"
        at = found.end()

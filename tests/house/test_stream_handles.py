"""A stream's handle at rest is nobody's to use: `cuda::living` and `cuda::last_use` make a stream of it."""

import re
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
AT_REST = re.compile(r"\b(?:b|buffer)(?:\.get\(\))?(?:->|\.)stream\b")

# Who sets it, compares with it, or is the door itself.
ALLOWED = {
    "cuda/cuda.hpp",  # order()
    "cuda/graph_memory.cpp",
    "cuda/external_streams.cpp",
    "cuda/memory.cpp",
    "cuda/deferred_release.cpp",
    "cuda/stream.cpp",  # order_slow()
    "exchange/export.cpp",
    "exchange/import_release.cpp",
    "ops/block_counters.cpp",
    "python/array_attributes.cpp",  # the number, to be looked at
    "python/array_functions.cpp",
}


def test_the_stream_of_a_buffer_is_read_by_those_who_know_what_it_is():
    readers = {
        str(path.relative_to(NATIVE))
        for path in NATIVE.rglob("*.[ch]pp")
        if AT_REST.search(path.read_text(encoding="utf-8"))
    }
    assert readers == ALLOWED

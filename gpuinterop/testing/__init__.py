"""The compatibility suite, which compares the promises of the converters with memory.

``pytest --pyargs gpuinterop.testing`` runs it for every installed library; `matrix` runs it from a
program and returns the outcomes as data. A `Bridge` describes another library to the suite.
"""

from __future__ import annotations

from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import DTYPES, LAYOUTS, Layout
from gpuinterop.testing.matrix_table import SCHEMA, Cell, Library, Matrix
from gpuinterop.testing.suite import matrix

__all__ = ["DTYPES", "LAYOUTS", "SCHEMA", "Bridge", "Cell", "Layout", "Library", "Matrix", "matrix"]


def __dir__() -> list[str]:
    # Names for completion, without the files of the suite.
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})

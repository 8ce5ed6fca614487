"""The compatibility suite: is what the converters promise what memory shows?

``pytest --pyargs gpuinterop.testing`` runs it over every installed library; `matrix` runs it from a
program and returns the outcome as data. A `Bridge` describes a library of your own to it.
"""

from __future__ import annotations

from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import DTYPES, LAYOUTS, Layout
from gpuinterop.testing.matrix_table import SCHEMA, Cell, Library, Matrix
from gpuinterop.testing.suite import matrix

__all__ = ["DTYPES", "LAYOUTS", "SCHEMA", "Bridge", "Cell", "Layout", "Library", "Matrix", "matrix"]


def __dir__() -> list[str]:
    # What a user may want to complete; the files of the suite are not among it.
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})

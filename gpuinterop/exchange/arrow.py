"""Arrow's PyCapsule interface, by which pyarrow and polars read a column. pyarrow makes the capsules."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import core_view
from gpuinterop.errors import (
    DeviceMismatchError,
    ExportError,
    MissingLibraryError,
    ShapeError,
)

_WHERE = "__arrow_c_array__"


def to_arrow(x: Any, schema: Any = None) -> tuple[Any, Any]:
    """Return Arrow's capsules over host memory, or over a copy of bools, which Arrow packs, and of strided arrays."""
    view = core_view(x)
    if view.device.type != "cpu":
        raise DeviceMismatchError(
            where=_WHERE, expected="host memory, because Arrow's columns are on the host",
            got=f"an array on {view.device}", fix='move it first: x.to_device("cpu")',
        )  # fmt: skip
    if view.ndim != 1:
        raise ShapeError(
            where=_WHERE, expected="an array of one axis, because it becomes a column",
            got=f"shape {view.shape}", fix="pass one column at a time: x[:, 0]",
        )  # fmt: skip
    try:
        pyarrow = import_module("pyarrow")
    except ImportError as error:
        raise MissingLibraryError(
            where=_WHERE, expected="pyarrow, which makes Arrow's capsules", got=str(error),
            fix="pip install pyarrow, or pass numpy.asarray(x)",
        ) from error  # fmt: skip
    if view.dtype == np.bool_ or not view.is_c_contiguous():
        copy_tracking.report_copy("host", view.nbytes, _WHERE)
    try:
        column = pyarrow.array(np.asarray(x))
    except pyarrow.ArrowNotImplementedError:
        raise ExportError(
            where=_WHERE, expected="a dtype that Arrow has", got=str(view.dtype),
            fix="cast it first: x.astype('float32')",
        ) from None  # fmt: skip
    capsules: tuple[Any, Any] = column.__arrow_c_array__(schema)
    return capsules

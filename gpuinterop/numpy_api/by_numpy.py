"""Functions whose usual calls NumPy's function of the same name carries out, in the core."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise.numpy_modules import words

T = TypeVar("T")

# They make views, so NumPy sees the shapes and strides of arrays on any device.
VIEWS = frozenset(
    """
    array_split atleast_1d atleast_2d atleast_3d dsplit expand_dims flip fliplr flipud hsplit imag matrix_transpose
    moveaxis permute_dims real rollaxis rot90 split squeeze swapaxes transpose unstack vsplit
    """.split()
)
# They move elements of arrays on "cpu": the number of the first arguments that are arrays, 0 for a list of them.
MOVES = {
    "append": 2, "column_stack": 0, "concat": 0, "dstack": 0, "hstack": 0, "pad": 1, "tril": 1, "triu": 1,
    "vstack": 0,
}  # fmt: skip
# Options that those calls may have; by default all parameters.
_PARAMETERS = {
    "pad": "array pad_width mode",
    "concat": "arrays axis",
    "hstack": "tup",
    "vstack": "tup",
}


def by_numpy(name: str) -> Callable[[T], T]:
    """Return the decorator of gpuinterop's function for numpy.`name`, which carries out the other calls."""
    if name not in VIEWS and name not in MOVES:
        return lambda function: function
    function = getattr(np, name)
    return _core.by_numpy(
        function,
        _PARAMETERS.get(name) or words(inspect.signature(function)),
        MOVES.get(name, 1),
        views=name in VIEWS,
    )

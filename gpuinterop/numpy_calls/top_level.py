"""Functions whose usual calls NumPy's function of the same name carries out, in the core."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from gpuinterop import _core

from .submodules import words

T = TypeVar("T")

# They make views, so NumPy sees the shapes and strides of arrays on any device.
VIEWS = frozenset(
    """
    array_split atleast_1d atleast_2d atleast_3d diagonal dsplit expand_dims flip fliplr flipud hsplit imag
    matrix_transpose moveaxis permute_dims ravel real reshape rollaxis rot90 split squeeze swapaxes transpose unstack
    vsplit
    """.split()
)
# They move elements of arrays on "cpu": the number of the first arguments that are arrays, 0 for a list of them.
MOVES = {
    "append": 2, "column_stack": 0, "concat": 0, "dstack": 0, "hstack": 0, "pad": 1, "tril": 1, "triu": 1,
    "vstack": 0,
}  # fmt: skip
# Options that those calls may have; by default all parameters.
_PARAMETERS = {
    "concat": "arrays axis",
    "hstack": "tup",
    "pad": "array pad_width mode",
    "ravel": "a",
    "reshape": "a shape order",
    "vstack": "tup",
}
# Those that they have. NumPy gets arrays of a GPU without elements, so it refuses a reshape that needs a copy.
_FIXED: dict[str, dict[str, object]] = {
    "ravel": {"shape": -1, "copy": False},
    "reshape": {"copy": False},
}
# Elements of an array; with more of them the package is faster.
_MOST = dict.fromkeys(("tril", "triu"), 4096)


def by_numpy(name: str) -> Callable[[T], T]:
    """Return the decorator of gpuinterop's function for numpy.`name`, which carries out the other calls."""
    if name not in VIEWS and name not in MOVES:
        return lambda function: function
    function = getattr(np, "reshape" if name == "ravel" else name)
    return _core.by_numpy(
        function,
        _PARAMETERS.get(name) or words(inspect.signature(function)),
        MOVES.get(name, 1),
        fixed=_FIXED.get(name),
        views=name in VIEWS,
        most=_MOST.get(name),
    )

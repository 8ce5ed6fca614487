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
    array_split atleast_1d atleast_2d atleast_3d diagonal dsplit expand_dims flip fliplr flipud hsplit imag
    matrix_transpose moveaxis permute_dims ravel real reshape rollaxis rot90 split squeeze swapaxes transpose unstack
    vsplit
    """.split()
)
# They compute with arrays on "cpu": the number of the first arguments that are arrays, 0 for a list of them, -1 for
# all but text.
MOVES = {
    "append": 2, "column_stack": 0, "concat": 0, "diag": 1, "diff": 1, "dstack": 0, "einsum": -1, "hstack": 0,
    "kron": 2, "matvec": 2, "outer": 2, "pad": 1, "tensordot": 2, "tril": 1, "triu": 1,
    "vecdot": 2, "vecmat": 2, "vstack": 0,
}  # fmt: skip
# Options that those calls may have; by default all parameters.
_PARAMETERS = {
    "concat": "arrays axis",
    "diff": "a n axis",
    "einsum": "subscripts x1 x2 x3 x4 x5 x6",
    "hstack": "tup",
    "matvec": "x1 x2",
    "outer": "a b",
    "pad": "array pad_width mode",
    "ravel": "a",
    "reshape": "a shape order",
    "vecdot": "x1 x2 * axis",
    "vecmat": "x1 x2",
    "vstack": "tup",
}
# Those that they have. A reshape that needs a copy is refused, because NumPy does not read the elements of views.
_FIXED: dict[str, dict[str, object]] = {
    "ravel": {"shape": -1, "copy": False},
    "reshape": {"copy": False},
}
# Elements of an array; for more of them the package's products are faster.
_MOST = {"einsum": 1024, "kron": 128, "outer": 128}


def by_numpy(name: str) -> Callable[[T], T]:
    """Return the decorator of gpuinterop's function for numpy.`name`, which carries out the other calls."""
    function = getattr(np, "reshape" if name == "ravel" else name, None)
    if function is None or (name not in VIEWS and name not in MOVES):  # NumPy 2.1 lacks two
        return lambda function: function
    return _core.by_numpy(
        function,
        _PARAMETERS.get(name) or words(inspect.signature(function)),
        MOVES.get(name, 1),
        fixed=_FIXED.get(name),
        views=name in VIEWS,
        most=_MOST.get(name),
    )

"""Lists of the package's names, read from its public parts."""

import numpy as np

import gpuinterop as gi


def dtype_names() -> tuple[str, ...]:
    """The names of all dtypes, in the order in which errors list them."""
    try:
        gi.zeros(1, "no such dtype", device="cpu")
    except gi.DTypeError as error:
        return tuple(error.expected.removeprefix("one of ").split(", "))
    raise AssertionError("a dtype of this name exists")


NAMES = dtype_names()
NUMPY_NAMES = tuple(name for name in NAMES if hasattr(np, name))
ML_NAMES = tuple(name for name in NAMES if name not in NUMPY_NAMES)

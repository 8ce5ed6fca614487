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
    atleast_1d atleast_2d atleast_3d fliplr flipud imag real squeeze
    """.split()
)


def by_numpy(name: str) -> Callable[[T], T]:
    """Return the decorator of gpuinterop's function for numpy.`name`, which carries out the other calls."""
    function = getattr(np, name)
    return _core.by_numpy(function, words(inspect.signature(function)), views=True)

"""Page-locked memory where there is no GPU: ordinary memory under the same names."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, DTypeError, ShapeError


def test_it_is_ordinary_memory_on_the_cpu():
    host = gi.pinned_empty((2, 3), device="cpu")
    assert (type(host), host.shape, host.dtype) == (np.ndarray, (2, 3), np.float32)
    assert gi.pinned_empty(4, "int8", device="cpu").nbytes == 4
    assert gi.pinned_empty((), bool, device="cpu").shape == ()


def test_without_a_driver_the_default_is_ordinary_memory():
    if gi.default_device().type == "cpu":
        assert gi.pinned_empty((2, 3)).flags.owndata


def test_copies_are_done_at_once_on_the_cpu():
    host = gi.pinned_empty((2, 3), device="cpu")
    x = gi.full((2, 3), 7, device="cpu")
    gi.copy_async(host, x)
    assert host.min() == 7
    host[...] = 8
    gi.copy_async(x.T[::-1], host.T[::-1])
    assert x.tolist() == host.tolist()


def test_what_does_not_fit_is_refused():
    host, x = gi.pinned_empty(3, device="cpu"), gi.zeros(4, device="cpu")
    with pytest.raises(ShapeError):
        gi.copy_async(x, host)
    with pytest.raises(DTypeError):
        gi.copy_async(host, gi.zeros(3, "float64", device="cpu"))
    with pytest.raises(ArgumentTypeError, match="pinned_empty"):
        gi.copy_async(host, [1, 2, 3])
    with pytest.raises(DTypeError):
        gi.pinned_empty(3, object, device="cpu")

"""Page-locked memory where there is no GPU: ordinary memory under the same names."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import (
    ArgumentTypeError,
    ContiguityError,
    DTypeError,
    ShapeError,
    UnsupportedError,
)


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
    with pytest.raises(DTypeError, match=r"^pinned_empty: "):
        gi.pinned_empty(3, object, device="cpu")
    with pytest.raises(ArgumentTypeError, match=r"^pinned_empty: "):
        gi.pinned_empty("3", device="cpu")


def test_masks_are_not_passed_over():
    x = gi.zeros(3, device="cpu")
    host = np.ma.masked_array(np.ones(3, np.float32), [0, 1, 0])
    for call in (lambda: gi.copy_async(x, host), lambda: gi.copy_async(host, x)):
        with pytest.raises(UnsupportedError, match="copy_async: expected data without a mask"):
            call()
    assert x.tolist() == [0, 0, 0]
    assert host.data.tolist() == [1, 1, 1]
    gi.copy_async(x, np.ma.masked_array(np.ones(3, np.float32)))  # nothing is masked
    assert x.tolist() == [1, 1, 1]


def test_a_destination_that_repeats_its_elements_is_refused():
    x = gi.arange(6, dtype="float32", device="cpu").reshape(2, 3)
    one = np.zeros(3, np.float32)
    repeated = np.lib.stride_tricks.as_strided(one, (2, 3), (0, 4))
    for target in (repeated, gi.from_any(repeated)):
        with pytest.raises(ContiguityError, match="axis 0") as error:
            gi.copy_async(target, x)
        assert error.value.axis == 0
    assert not one.any()
    gi.copy_async(x, repeated)  # to read from it is well
    assert not np.asarray(x).any()
    # A stride without a second element, or without any, repeats nothing.
    gi.copy_async(np.lib.stride_tricks.as_strided(one, (1, 3), (0, 4)), x[:1])
    gi.copy_async(np.lib.stride_tricks.as_strided(one, (2, 0), (0, 4)), x[:, :0])


def test_a_subclass_that_lies_about_its_shape_is_read_by_its_memory():
    class Liar(np.ndarray):
        shape = property(lambda self: (1000,))

    x = gi.zeros(1000, device="cpu")
    with pytest.raises(ShapeError):
        gi.copy_async(x, np.ones(3, np.float32).view(Liar))

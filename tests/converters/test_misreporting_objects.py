"""Objects whose attributes answer differently at each look, or say what is not so of their memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cases import agree

import gpuinterop as gi
from gpuinterop import converters


def refused(x, error, match):
    """Explained and converted in the same words."""
    _, _, raised = agree(x)
    assert type(raised) is error
    assert re.search(match, str(raised))


class Matrix:
    """As npmat's, in whatever way it has its array."""

    mat = None
    num_elems = 6

    def set_trans(self, flag):
        pass

    def reshape(self, shape):
        pass


class Kept(Matrix):
    def __init__(self, host):
        self.mat = self.numpy_array = host


class Garray:
    _is_alias_of = None

    def __init__(self, base, shape):
        self._base, self.shape = base, shape


class SaysAll(np.ndarray):
    shape = property(lambda self: (10**6,))
    strides = property(lambda self: (8,))
    dtype = property(lambda self: np.dtype("f8"))
    size = property(lambda self: 10**9)
    itemsize = property(lambda self: 8)
    flags = property(lambda self: None)
    ctypes = property(lambda self: None)


@pytest.mark.parametrize("make", [gi.from_any, converters.from_numpy])
@pytest.mark.parametrize("dtype", ["u1", "f4", ">f4"])
def test_a_subclass_is_taken_for_what_it_is(make, dtype):
    host = np.arange(6, dtype=dtype).reshape(2, 3)
    x = make(host.view(SaysAll), copyif=True)
    assert (x.shape, x.dtype, x.nbytes) == ((2, 3), host.dtype.newbyteorder("="), host.nbytes)
    assert np.array_equal(x.get(), host)
    assert gi.explain(host.view(SaysAll)).shared == host.dtype.isnative


def test_a_subclass_inside_a_matrix_is_taken_for_what_it_is():
    host = np.arange(4, dtype=np.float32).reshape(4, 1)
    m = Kept(host.view(SaysAll))
    assert np.array_equal(gi.from_any(m).get(), host)
    assert gi.from_any(Garray(m, (2, 2))).tolist() == [[0, 1], [2, 3]]
    refused(Garray(m, (10**6,)), gi.ExchangeError, "at most 4 elements")


@pytest.mark.parametrize("shape", [(2.5,), "4", (-2,)])
def test_a_shape_that_is_none_is_refused(shape):
    assert agree(Garray(Kept(np.zeros((4, 1), np.float32)), shape))[0].refused

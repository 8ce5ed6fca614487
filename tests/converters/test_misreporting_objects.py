"""Objects whose attributes answer differently at each look, or say what is not so of their memory."""

from __future__ import annotations

import gc
import re
import weakref

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


class MadeAnew(Matrix):
    """Each look gives another array, which nobody else holds."""

    def __init__(self):
        self.made = []

    @property
    def numpy_array(self):
        host = np.asfortranarray(np.full((20, 30), len(self.made) + 5, np.float32))
        self.made.append(weakref.ref(host))
        return host


class Garray:
    _is_alias_of = None

    def __init__(self, base, shape):
        self._base, self.shape = base, shape


def test_the_array_that_is_described_is_the_one_that_is_held():
    matrix = MadeAnew()
    for make in (converters.from_cudamat, lambda m: converters.from_gnumpy(Garray(m, (600,)))):
        matrix.made.clear()
        x = make(matrix)
        gc.collect()
        assert len(matrix.made) == 1
        assert matrix.made[0]() is not None
        assert np.all(x.get() == 5)
        x[...] = 7
        assert np.all(matrix.made[0]() == 7)
        del x
        gc.collect()
        assert matrix.made[0]() is None


class Counting:
    """A garray whose shape grows from look to look."""

    _is_alias_of = None
    looks = 0

    def __init__(self, base):
        self._base = base

    @property
    def shape(self):
        self.looks += 1
        return (4,) if self.looks < 2 else (10**6,)


def test_a_shape_is_read_once():
    g = Counting(Kept(np.zeros((4, 1), np.float32)))
    assert gi.from_any(g).shape == (4,)
    assert g.looks == 1


class SaysDtype(np.ndarray):
    dtype = property(lambda self: np.dtype("f8"))


class SaysSize(np.ndarray):
    size = property(lambda self: 10**9)


class SaysAll(np.ndarray):
    shape = property(lambda self: (10**6,))
    strides = property(lambda self: (8,))
    dtype = property(lambda self: np.dtype("f8"))
    size = property(lambda self: 10**9)
    itemsize = property(lambda self: 8)
    flags = property(lambda self: None)
    ctypes = property(lambda self: None)


@pytest.mark.parametrize("cls", [SaysDtype, SaysSize, SaysAll])
@pytest.mark.parametrize("make", [gi.from_any, converters.from_numpy])
@pytest.mark.parametrize("dtype", ["u1", "f4", ">f4"])
def test_a_subclass_is_taken_for_what_it_is(cls, make, dtype):
    host = np.arange(6, dtype=dtype).reshape(2, 3)
    x = make(host.view(cls), copyif=True)
    assert (x.shape, x.dtype, x.nbytes) == ((2, 3), host.dtype.newbyteorder("="), host.nbytes)
    assert np.array_equal(x.get(), host)
    assert gi.explain(host.view(cls)).shared == host.dtype.isnative


@pytest.mark.parametrize("cls", [SaysDtype, SaysSize, SaysAll])
def test_a_subclass_inside_a_matrix_is_taken_for_what_it_is(cls):
    host = np.arange(4, dtype=np.float32).reshape(4, 1)
    m = Kept(host.view(cls))
    assert np.array_equal(gi.from_any(m).get(), host)
    assert gi.from_any(Garray(m, (2, 2))).tolist() == [[0, 1], [2, 3]]
    refused(Garray(m, (10**6,)), gi.ExchangeError, "at most 4 elements")

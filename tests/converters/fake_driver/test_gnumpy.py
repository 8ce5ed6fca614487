"""Gnumpy's converter on a gnumpy for Python 3 with its reuse cache, over CUDAMat."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from doubles import fake_cudamat
from doubles.fake_pycuda import values

import gpuinterop as gi
from gpuinterop import converters


def host(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)


SHAPES = [(7,), (3, 4), (2, 3, 4), (1, 3), (3, 1), (2, 1, 3), ()]


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back_is_exact(gnumpy, gpu, shape):
    x = gpu(host(*shape))
    g = gi.cudandarray_to_garray(x)
    assert g.shape == shape
    assert np.array_equal(g.ndarray, host(*shape))
    back = gi.garray_to_cudandarray(g)
    assert (back.ptr, back.shape, back._strides) == (x.ptr, x.shape, x._strides)


@pytest.mark.parametrize("shape", SHAPES)
def test_from_garray(gnumpy, shape):
    x = gi.garray_to_cudandarray(gnumpy.garray(host(*shape)))
    assert np.array_equal(values(x), host(*shape))
    assert all(s == 0 for s, n in zip(x._strides, shape, strict=True) if n == 1)


def test_empty_garrays(gnumpy, gpu):
    g = gi.cudandarray_to_garray(gpu(host(0, 3)))
    assert g.shape == (0, 3)
    assert gi.garray_to_cudandarray(g).shape == (0, 3)


def test_the_reuse_cache_never_gets_memory_that_is_looked_at(gnumpy):
    g = gnumpy.garray(host(8))
    x = gi.garray_to_cudandarray(g)
    assert x.base is g
    del g
    gc.collect()
    scratch = gnumpy.empty((8,))
    scratch._base.numpy_array = None
    assert scratch._base.mat is not x.base._base.mat
    assert np.array_equal(values(x), host(8))
    del x
    gc.collect()
    assert len(gnumpy._cmsForReuse[8]) == 1  # now gnumpy may have it


def test_our_memory_never_enters_the_reuse_cache(gnumpy, gpu):
    x = gpu(host(6))
    g = gi.cudandarray_to_garray(x)
    del g
    gc.collect()
    assert not gnumpy._cmsForReuse[6]


def test_a_host_array_is_refused_in_gpu_mode(gnumpy):
    with pytest.raises(ValueError, match="to_device"):
        gi.cudandarray_to_garray(converters.from_numpy(host(3)))


def test_wrong_objects(gnumpy, gpu):
    for wrong in (host(3), object(), None):
        with pytest.raises(ValueError):
            gi.cudandarray_to_garray(wrong)
        with pytest.raises(ValueError):
            gi.garray_to_cudandarray(wrong)
    with pytest.raises(ValueError, match="float32"):
        converters.to_gnumpy(gi.array(np.zeros(3), device="cuda"))


def test_recognised_by_structure(driver, cudamat):
    other = fake_cudamat.gnumpy(cudamat, name="my_gnumpy")
    g = other.garray(host(3, 4))
    assert np.array_equal(values(gi.from_any(g)), host(3, 4))
    assert gi.explain(g, "cudandarray").shared

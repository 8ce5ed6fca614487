"""CUDAMat's and gnumpy's converters on fakes for Python 3: real struct, real pointers, the originals' faults.

The compatibility suite tries every layout; these are the particulars of the two libraries.
"""

import ctypes
import gc

import numpy as np
import pytest
from doubles.fake_pycuda import values
from helpers.cases import host

import gpuinterop as gi
from gpuinterop import converters


def address(m):
    return ctypes.cast(m.mat.data_device, ctypes.c_void_p).value


# ---- CUDAMat ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (5, 1)])
def test_matrices_share_both_ways(cudamat, gpu, shape):
    m = cudamat.CUDAMatrix(host(*shape))
    x = converters.from_cudamat(m)
    assert (x.shape, x.ptr, x.is_f_contiguous()) == (shape, address(m), True)
    assert np.array_equal(values(x), host(*shape))
    y = gpu(host(*shape[::-1])).T
    made = converters.to_cudamat(y)
    assert (made.shape, address(made), made.mat.is_trans) == (shape, y.ptr, 0)
    assert (made.mat.owns_data, made._base) == (0, y)
    assert np.array_equal(made.asarray(), values(y))


def test_the_flag_of_a_transposed_matrix_swaps_rows_and_columns(cudamat, gpu):
    m = cudamat.CUDAMatrix(host(3, 4))
    m.set_trans(True)
    x = converters.from_cudamat(m)
    assert (x.shape, x.is_c_contiguous()) == ((4, 3), True)
    assert np.array_equal(values(x), host(3, 4).T)
    y = gpu(host(3, 4))
    with pytest.raises(gi.ContiguityError, match="trans=True"):
        converters.to_cudamat(y)
    made = converters.to_cudamat(y, trans=True)
    assert (made.shape, made.mat.is_trans, address(made)) == ((4, 3), 1, y.ptr)
    assert np.array_equal(values(converters.from_cudamat(made)), host(3, 4))
    with gi.count_copies() as counted:
        made = converters.to_cudamat(y, copyif=True)
    assert (counted.count, counted.bytes) == (1, 48)
    assert (made.shape, made.mat.is_trans, address(made) == y.ptr) == ((3, 4), 0, False)


def test_slices_are_shared_where_cudamat_places_them_rightly(cudamat):
    for shape, part in (((3, 6), np.s_[:, 2:5]), ((1, 6), np.s_[:, 2:5])):
        x = converters.from_cudamat(cudamat.CUDAMatrix(host(*shape)).slice(2, 5))
        assert np.array_equal(values(x), host(*shape)[part])
    column = cudamat.CUDAMatrix(host(6, 1))
    assert np.array_equal(values(converters.from_cudamat(column.slice(0, 4))), host(6, 1)[:4])
    with pytest.raises(gi.BoundsError, match="slice"):
        converters.from_cudamat(column.slice(2, 4))


def test_matrices_without_device_memory_are_refused(cudamat):
    freed = cudamat.CUDAMatrix(host(2, 2))
    part = freed.slice(0, 1)
    freed.free_device_memory()
    for m in (cudamat.CUDAMatrix(host(2, 2), copy_to_device=False), freed, part):
        with pytest.raises(gi.ExchangeError, match="copy_to_device"):
            converters.from_cudamat(m)
        assert gi.explain(m).refused
    with pytest.raises(gi.ConversionTypeError, match=r"from_cudamat\(m\)\.T"):
        converters.from_cudamat(cudamat.CUDAMatrix(host(2, 3)).T)


def test_memory_cannot_be_freed_while_an_array_shares_it(cudamat):
    m = cudamat.CUDAMatrix(host(3, 4))
    x = converters.from_cudamat(m)
    y = converters.from_cudamat(m.slice(1, 3))
    m.free_device_memory()
    assert np.array_equal(values(x), host(3, 4))
    del x
    gc.collect()
    m.free_device_memory()
    assert np.array_equal(values(y), host(3, 4)[:, 1:3])
    del y
    gc.collect()
    assert (m.mat.owns_data, m.mat.on_device) == (1, 1)
    m.free_device_memory()
    assert m.mat.on_device == 0
    x = converters.from_cudamat(cudamat.CUDAMatrix(host(3, 4)))
    gc.collect()
    assert np.array_equal(values(x), host(3, 4))
    assert x.base.owner.shape == x.base.shape == (3, 4)


def test_theanos_names_reinterpret_and_round_trip(cudamat, gpu):
    x = gpu(host(3, 4))
    m = gi.cudandarray_to_cudamat(x)
    assert m.shape == (3, 4)
    # Theano's test recovers the values so.
    assert np.array_equal(m.asarray().T.reshape(3, 4), host(3, 4))
    back = gi.cudamat_to_cudandarray(m)
    assert (back.ptr, back.shape) == (x.ptr, (3, 4))
    logical = gi.cudamat_to_cudandarray(m, layout="logical")
    assert np.array_equal(values(logical), m.asarray())
    with pytest.raises(gi.ContiguityError):
        gi.cudandarray_to_cudamat(x[:, ::2])
    assert gi.cudandarray_to_cudamat(x[:, ::2], copyif=True).shape == (3, 2)
    assert gi.cudandarray_to_cudamat(x.T, layout="logical").shape == (4, 3)


# ---- gnumpy -------------------------------------------------------------------------------------


def test_the_reuse_cache_and_arrays_share_no_memory(gnumpy, gpu):
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
    g = gi.cudandarray_to_garray(gpu(host(6)))
    del g
    gc.collect()
    assert not gnumpy._cmsForReuse[6]


def test_arrays_that_they_cannot_hold_are_refused(gnumpy, gpu):
    with pytest.raises(gi.DeviceMismatchError, match="to_device"):
        gi.cudandarray_to_garray(converters.from_numpy(host(3)))
    for shape in ((), (3,), (2, 3, 4)):
        with pytest.raises(gi.ConversionTypeError, match="two dimensions"):
            gi.cudandarray_to_cudamat(gpu(host(*shape)))

"""Memory on the GPU that is not what its array says, and kernels that are given one array twice."""

import ctypes
import types

import numpy as np
import pytest
from doubles.fake_numba import DeviceNDArray, MemoryPointer
from doubles.fake_pycuda import values, window
from helpers.cases import host, refused

import gpuinterop as gi
from gpuinterop import _core, converters

CONTEXT = types.SimpleNamespace(device=types.SimpleNamespace(id=0))


# ---- byte order ---------------------------------------------------------------------------------


def test_foreign_byte_order_on_the_gpu_is_refused(pycuda):
    g = pycuda.gpuarray.to_gpu(np.arange(3).astype(">f4"))
    refused(g, gi.DTypeError, ">f4")
    with pytest.raises(gi.DTypeError, match=">f4"):
        gi.to_cudandarray(g)
    n = DeviceNDArray((3,), (4,), ">f4", 0, MemoryPointer(CONTEXT, int(g.gpudata), 12))
    refused(n, gi.DTypeError, ">f4")


# ---- kernels ------------------------------------------------------------------------------------


@pytest.fixture
def add_one(monkeypatch):
    """A kernel that adds 1 to 12 elements from the address that it is given first.

    The fake driver runs no kernels, strided copies among them: NumPy makes those, once the streams,
    which are threads there, have done what came before.
    """
    announced = _core.copy_into

    def copy_into(target, source, **options):
        announced(target, source, **options)
        gi.synchronize()
        window(target)[...] = window(source)

    monkeypatch.setattr(_core, "copy_into", copy_into)

    def function(dest, *rest, **options):
        gi.synchronize()
        address = ctypes.cast(int(dest), ctypes.POINTER(ctypes.c_float))
        np.ctypeslib.as_array(address, (12,))[...] += 1

    return function


def test_one_array_passed_twice_is_copied_once_and_keeps_the_result(gpu, add_one):
    x = gpu(host(6, 4))
    v = x[:, ::2]
    kernel = converters.pycuda.kernel(add_one, copyif=True)
    with gi.count_copies() as copies:
        kernel(v, v, x[:, ::2])
    assert copies.count == 2  # in and out
    expected = host(6, 4)
    expected[:, ::2] += 1
    assert np.array_equal(values(x), expected)


def test_a_read_only_view_of_the_same_elements_is_the_same_copy(gpu, add_one):
    x = gpu(host(6, 4))
    read = x[:, ::2]
    read.readonly = True
    converters.pycuda.kernel(add_one, copyif=True)(x[:, ::2], read)
    converters.pycuda.kernel(add_one, copyif=True)(
        x[:, ::2], x[:, 1::2]
    )  # apart: both may be written
    expected = host(6, 4)
    expected[:, ::2] += 2
    assert np.array_equal(values(x), expected)


@pytest.mark.parametrize("other", [np.s_[:, ::-1], np.s_[:], np.s_[:, 1:3]])
def test_views_that_overlap_are_refused(gpu, add_one, other):
    x = gpu(host(6, 4))
    for args in ((x[:, ::2], x[other]), (x[other], x[:, ::2])):
        with pytest.raises(gi.ContiguityError, match=r"argument \d.*does not overlap"):
            converters.pycuda.kernel(add_one, copyif=True)(*args)
    assert np.array_equal(values(x), host(6, 4))
    read = x[other]
    read.readonly = True
    converters.pycuda.kernel(add_one, copyif=True)(x[:, ::2], read)  # it only reads


# ---- memory that is not there -------------------------------------------------------------------


def test_freed_and_missing_memory_is_refused_by_the_plan_too(pycuda):
    made = pycuda.gpuarray.to_gpu(host(3))
    freed = int(made.gpudata)
    made.gpudata.free()
    for address in (freed, 0, None, freed + 2):
        made.gpudata = address
        refused(made, gi.GpuInteropError)


def test_a_shape_beyond_the_allocation(pycuda, cudamat, gnumpy):
    g = pycuda.gpuarray.to_gpu(host(3))
    g.shape = (1000,)
    refused(g, gi.ExchangeError)
    n = DeviceNDArray((1000,), (4,), "f4", 0, MemoryPointer(CONTEXT, int(g.gpudata), 12))
    refused(n, gi.ExchangeError)
    m = cudamat.CUDAMatrix(host(3, 4))
    for size in ((-2, 3), (1000, 4), (1000, 1000), (2**31 - 1, 2**31 - 1)):
        m.mat.size[0], m.mat.size[1] = size
        refused(m, gi.GpuInteropError)
    assert m.mat.owns_data == 1
    garray = gnumpy.garray(host(3, 4))
    garray.shape = (1000,)
    refused(garray, gi.ExchangeError, "the size of its matrix")

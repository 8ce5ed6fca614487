"""CUDAMat's converter on a CUDAMat for Python 3: real struct, real pointers, the original's faults."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from doubles import fake_cudamat
from doubles.fake_pycuda import values

import gpuinterop as gi
from gpuinterop import converters


def host(*shape, order="C"):
    return np.asarray(np.arange(np.prod(shape), dtype="float32").reshape(shape), order=order)


def address(m):
    return converters.cudamat.address(m.mat.data_device)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (3, 3), (1, 5), (5, 1), (1, 1)])
def test_from_cudamat_keeps_the_values(cudamat, shape):
    m = cudamat.CUDAMatrix(host(*shape))
    x = converters.from_cudamat(m)
    assert x.shape == shape
    assert x.ptr == address(m)
    assert np.array_equal(values(x), host(*shape))
    assert x.is_f_contiguous()


def test_is_trans_swaps_the_logical_shape(cudamat):
    m = cudamat.CUDAMatrix(host(3, 4))
    m.set_trans(True)
    x = converters.from_cudamat(m)
    assert (x.shape, x.is_c_contiguous()) == ((4, 3), True)
    assert np.array_equal(values(x), host(3, 4).T)


def test_slices_of_columns(cudamat):
    m = cudamat.CUDAMatrix(host(3, 6))
    x = converters.from_cudamat(m.slice(2, 5))
    assert np.array_equal(values(x), host(3, 6)[:, 2:5])


def test_a_slice_of_a_column_vector_is_refused_where_cudamat_misplaces_it(cudamat):
    m = cudamat.CUDAMatrix(host(6, 1))
    assert np.array_equal(values(converters.from_cudamat(m.slice(0, 4))), host(6, 1)[:4])
    with pytest.raises(ValueError, match="slice the array instead"):
        converters.from_cudamat(m.slice(2, 4))
    assert np.array_equal(values(converters.from_cudamat(m)[2:4]), host(6, 1)[2:4])


def test_a_slice_of_a_row_vector(cudamat):
    m = cudamat.CUDAMatrix(host(1, 6))
    assert np.array_equal(values(converters.from_cudamat(m.slice(2, 5))), host(1, 6)[:, 2:5])


def test_matrices_without_device_memory_are_refused(cudamat):
    on_host = cudamat.CUDAMatrix(host(2, 2), copy_to_device=False)
    with pytest.raises(ValueError, match="copy_to_device"):
        converters.from_cudamat(on_host)
    freed = cudamat.CUDAMatrix(host(2, 2))
    part = freed.slice(0, 1)
    freed.free_device_memory()
    for m in (freed, part):
        with pytest.raises(ValueError, match="GPU"):
            converters.from_cudamat(m)
        assert gi.explain(m).refused


def test_the_transposed_twin_is_refused(cudamat):
    m = cudamat.CUDAMatrix(host(2, 3))
    with pytest.raises(ValueError, match=r"from_cudamat\(m\)\.T"):
        converters.from_cudamat(m.T)


def test_memory_cannot_be_freed_while_it_is_looked_at(cudamat):
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


def equal_by_elements(self, other):
    return np.ones((2, 3)) == 1


@pytest.mark.parametrize(
    "names",
    [
        {"__eq__": equal_by_elements, "__hash__": None},
        {"__eq__": lambda self, other: True, "__hash__": lambda self: 1},
    ],
    ids=["by elements", "by value"],
)
def test_matrices_are_told_apart_whatever_their_class_calls_equal(cudamat, names):
    cls = type("Port", (cudamat.CUDAMatrix,), names)
    a, b = cls(host(2, 3)), cls(host(2, 3))
    x, y = gi.from_any(a), gi.from_any(b)
    assert (a.mat.owns_data, b.mat.owns_data) == (0, 0)
    del x
    gc.collect()
    assert (a.mat.owns_data, b.mat.owns_data) == (1, 0)
    del y
    gc.collect()
    assert (a.mat.owns_data, b.mat.owns_data) == (1, 1)


@pytest.mark.parametrize("size", [(-2, 3), (2, -3), (1000, 1000), (2**31 - 1, 2**31 - 1)])
def test_a_size_that_is_none_is_refused(cudamat, size):
    m = cudamat.CUDAMatrix(host(2, 3))
    m.mat.size[0], m.mat.size[1] = size
    assert gi.explain(m).refused
    with pytest.raises(gi.GpuInteropError):
        gi.from_any(m)
    assert m.mat.owns_data == 1


def test_a_slice_of_itself_has_an_end(cudamat):
    m = cudamat.CUDAMatrix(host(2, 3))
    m.sliceof = m
    assert np.array_equal(values(gi.from_any(m)), host(2, 3))


def test_the_matrix_lives_as_long_as_the_array(cudamat):
    x = converters.from_cudamat(cudamat.CUDAMatrix(host(3, 4)))
    gc.collect()
    assert np.array_equal(values(x), host(3, 4))
    assert x.base.owner.shape == (3, 4)
    assert x.base.shape == (3, 4)


@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (5, 1)])
def test_to_cudamat_shares_f_order_and_vectors(cudamat, gpu, shape):
    x = gpu(host(*shape[::-1])).T
    m = converters.to_cudamat(x)
    assert (m.shape, address(m), m.mat.is_trans, m.mat.owns_data) == (shape, x.ptr, 0, 0)
    assert np.array_equal(m.asarray(), values(x))
    assert m._base is x


def test_to_cudamat_of_c_order(cudamat, gpu):
    x = gpu(host(3, 4))
    with pytest.raises(ValueError, match="trans=True"):
        converters.to_cudamat(x)
    m = converters.to_cudamat(x, trans=True)
    assert (m.shape, m.mat.is_trans, address(m)) == ((4, 3), 1, x.ptr)
    assert np.array_equal(values(converters.from_cudamat(m)), host(3, 4))
    with gi.count_copies() as c:
        m = converters.to_cudamat(x, copyif=True)
    assert (c.count, c.bytes) == (1, 48)
    assert (m.shape, m.mat.is_trans) == ((3, 4), 0)
    assert address(m) != x.ptr


def test_the_documents_names_reinterpret_and_round_trip(cudamat, gpu):
    x = gpu(host(3, 4))
    m = gi.cudandarray_to_cudamat(x)
    assert m.shape == (3, 4)
    # The documents' test recovers the values so.
    assert np.array_equal(m.asarray().T.reshape(3, 4), host(3, 4))
    back = gi.cudamat_to_cudandarray(m)
    assert (back.ptr, back.shape) == (x.ptr, (3, 4))
    assert np.array_equal(values(back), host(3, 4))
    logical = gi.cudamat_to_cudandarray(m, layout="logical")
    assert np.array_equal(values(logical), m.asarray())
    with pytest.raises(ValueError):
        gi.cudandarray_to_cudamat(x[:, ::2])
    assert gi.cudandarray_to_cudamat(x[:, ::2], copyif=True).shape == (3, 2)
    assert gi.cudandarray_to_cudamat(x.T, layout="logical").shape == (4, 3)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_two_dimensions_only(cudamat, gpu, shape):
    x = gpu(host(*shape))
    for convert in (gi.cudandarray_to_cudamat, converters.to_cudamat):
        with pytest.raises(TypeError, match="two dimensions"):
            convert(x)


def test_wrong_objects_and_dtypes(cudamat, gpu):
    for wrong in (host(2, 2), object(), None):
        with pytest.raises(ValueError):
            gi.cudandarray_to_cudamat(wrong)
        with pytest.raises(ValueError):
            gi.cudamat_to_cudandarray(wrong)
    with pytest.raises(ValueError, match="float32"):
        converters.to_cudamat(gi.array(np.zeros((2, 2)), device="cuda"))
    with pytest.raises(gi.ArgumentTypeError):
        converters.to_cudamat(gpu(host(2, 2)), layout="row")


def test_a_module_is_given_memory_of_its_own_device(cudamat):
    # A host address as data_device would be written to by CUDAMat's kernels, and the other way round.
    on_host = converters.from_numpy(host(3, 4, order="F"))
    on_gpu = gi.array(host(4, 3), device="cuda").T
    for x, module in ((on_host, cudamat), (on_gpu, fake_cudamat.npmat())):
        for layout in ("logical", "memory"):
            for copyif in (False, True):
                plan = gi.explain(x, "cudamat", copyif, module=module, layout=layout)
                assert plan.refused
                with pytest.raises(gi.DeviceMismatchError) as raised:
                    converters.to_cudamat(x, copyif, module=module, layout=layout)
                assert str(raised.value) == str(plan.exception())
        with pytest.raises(gi.DeviceMismatchError):
            gi.cudandarray_to_cudamat(x, module=module)


def test_recognised_by_structure(driver, primary):
    other = fake_cudamat.cudamat(driver, name="my_cudamat")
    m = other.CUDAMatrix(host(3, 4))
    assert np.array_equal(values(gi.from_any(m)), host(3, 4))
    x = gi.array(host(4, 3), device="cuda").T
    assert type(converters.to_cudamat(x, module=other)).__module__ == "my_cudamat.cudamat"

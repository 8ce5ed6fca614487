"""CUDAMat and gnumpy in CPU mode: npmat-style objects share host memory."""

import gc
import types

import numpy as np
import pytest
from doubles import fake_cudamat, fake_pycuda
from helpers.cases import host

import gpuinterop as gi
from gpuinterop import converters


@pytest.fixture(params=[False, True], ids=["takes over", "copies"])
def npmat(monkeypatch, request):
    module = fake_cudamat.npmat(copies=request.param)
    fake_pycuda.installed(monkeypatch, module)
    return module


def test_nothing_is_copied_on_the_way(npmat):
    x = gi.ones((2, 3), device="cpu")
    with gi.no_copies():
        assert gi.shares_memory(gi.to(x.T, "cudamat"), x)
    before = npmat.CUDAMatrix.__init__
    given = []

    def counting(self, array, ref=True):
        given.append(array.size)
        before(self, array, ref)

    npmat.CUDAMatrix.__init__ = counting
    m = converters.to_cudamat(x.T)
    m.numpy_array[2, 1] = 7
    assert x[1, 2].item() == 7
    assert set(given) == {1}


def test_theano_names_reinterpret_memory(npmat):
    x = converters.from_numpy(host(3, 4))
    m = gi.cudandarray_to_cudamat(x)
    assert m.shape == (3, 4)
    assert np.array_equal(m.asarray().T.reshape(3, 4), host(3, 4))
    back = gi.cudamat_to_cudandarray(m)
    assert back.ptr == x.ptr
    assert np.array_equal(back.get(), host(3, 4))


def test_trans_needs_a_flag_that_npmat_lacks(npmat):
    x = converters.from_numpy(host(3, 4))
    with pytest.raises(ValueError, match="copyif") as raised:
        converters.to_cudamat(x, trans=True)
    assert "trans" not in raised.value.fix
    m = converters.to_cudamat(x, copyif=True, trans=True)
    assert np.array_equal(m.asarray(), host(3, 4))


def test_matrix_that_replaces_its_array_leaves_the_shared_array_unchanged(npmat):
    m = npmat.CUDAMatrix(np.asfortranarray(host(3, 4)))
    x = converters.from_cudamat(m)
    m.set_trans(True)
    gc.collect()
    assert np.array_equal(x.get(), host(3, 4))


def test_the_reuse_cache_in_cpu_mode(gnumpy):
    g = gnumpy.garray(host(8))
    x = gi.from_any(g)
    del g
    gc.collect()
    scratch = gnumpy.empty((8,))
    scratch._base.numpy_array[...] = -1
    assert np.array_equal(x.get(), host(8))


@pytest.mark.parametrize("layout", [np.array(["logical", "memory"]), [], "C"])
def test_layout_is_logical_or_memory(layout):
    x = converters.from_numpy(host(2, 3))
    for ask in (gi.to, gi.explain):
        with pytest.raises(gi.ArgumentTypeError, match="'memory'"):
            ask(x, "cudamat", layout=layout)


class Matrix:
    """The attributes of a CUDAMatrix that give the owner of its memory; all are equal, and have no hash."""

    def __init__(self, owns_data=1):
        self.mat = types.SimpleNamespace(owns_data=owns_data)

    def __eq__(self, other):
        return np.ones(3) == 1

    __hash__ = None


def guard(matrix):
    return converters.cudamat.FreeGuard(matrix, matrix, matrix.mat)


def test_a_matrix_owns_its_memory_again_after_its_last_guard():
    first, second, view = Matrix(), Matrix(), Matrix(owns_data=0)
    guards = [guard(first), guard(first), guard(second), guard(view)]
    assert (first.mat.owns_data, second.mat.owns_data) == (0, 0)
    del guards[0]
    assert (first.mat.owns_data, second.mat.owns_data) == (0, 0)
    del guards[0]
    assert (first.mat.owns_data, second.mat.owns_data) == (1, 0)
    guards.clear()
    assert (second.mat.owns_data, view.mat.owns_data) == (1, 0)

"""What scripts written for Theano rely on: the rules that are kept, the limits that are lifted."""

import copy

import numpy as np
import pytest

import gpuinterop as gi


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).random(shape, dtype=np.float32)


def test_zeros(device):
    for shape in [(3, 4, 5), (300,), (), (0, 7)]:
        host = np.zeros(shape, "float32")
        x = gi.CudaNdarray.zeros(shape, device=device)
        np.testing.assert_array_equal(x.get(), host)
        if host.size:
            assert x._strides == tuple(s // 4 for s in host.strides)
    # The running product with its zeros, and 0 for an extent of 1.
    assert gi.CudaNdarray.zeros((0, 7), device=device)._strides == (7, 1)
    assert gi.CudaNdarray.zeros((3, 0), device=device)._strides == (0, 1)
    assert gi.CudaNdarray.zeros((4, 1, 5), device=device)._strides == (5, 0, 1)
    with pytest.raises(TypeError):
        gi.CudaNdarray.zeros()


def test_copy_module_aliases_and_deepcopy_does_not(device):
    host = rand(5, 6)
    for x in (gi.CudaNdarray(host, device=device), gi.CudaNdarray(host, device=device)[:, ::-1]):
        alias, apart = copy.copy(x), copy.deepcopy(x)
        before = x.get().copy()
        x[...] = 9
        assert (alias.get() == 9).all()
        np.testing.assert_array_equal(apart.get(), before)
        assert apart.is_c_contiguous()
        assert apart.base is None
    memo: dict = {}
    pair = [x, x]
    twice = copy.deepcopy(pair, memo)
    assert twice[0] is twice[1]


def test_dimshuffle(device):
    x = gi.CudaNdarray(rand(3, 4, 5), device=device)
    host = x.get()
    np.testing.assert_array_equal(gi.dimshuffle(x, (2, 0, 1)).get(), host.transpose(2, 0, 1))
    y = gi.dimshuffle(x, (2, -1, 0, -2, 1))
    assert y.shape == (5, 1, 3, 1, 4)
    assert y._strides[1] == y._strides[3] == 0
    assert y.base is x
    one = gi.CudaNdarray(rand(1, 1), device=device)
    assert gi.dimshuffle(one, ()).shape == ()
    assert x.dimshuffle("x", 0, 1, 2).shape == (1, 3, 4, 5)


def test_stride_manipulation_step_by_step(device):
    host = rand(2, 3, 4)
    x = gi.CudaNdarray(host, device=device)
    v = x.view()
    v._dev_data += 0
    np.testing.assert_array_equal(v.get(), host)
    offset = 0
    for i, (n, step) in enumerate(zip(x.shape, x._strides, strict=True)):
        offset += (n - 1) * step
        v._set_stride(i, -step)
    # Half-way the view reaches outside its memory: it is shown, and refused for use.
    assert v._strides == tuple(-s for s in x._strides)
    for use in (lambda: v[0], v.get, v.copy, lambda: np.asarray(v), lambda: v.reshape(-1)):
        with pytest.raises(ValueError, match="inside"):
            use()
    v._dev_data += offset * 4
    np.testing.assert_array_equal(v.get(), host[::-1, ::-1, ::-1])
    np.testing.assert_array_equal(copy.deepcopy(v).get(), host[::-1, ::-1, ::-1])
    v._set_shape_i(0, 1)
    assert v.shape == (1, 3, 4)
    np.testing.assert_array_equal(v.get(), host[::-1, ::-1, ::-1][:1])
    for bad in [(5, 1), (-4, 1)]:
        with pytest.raises(ValueError, match="axis"):
            v._set_stride(*bad)
        with pytest.raises(ValueError, match="axis"):
            v._set_shape_i(*bad)


def test_setting_strides_is_checked(device):
    x = gi.CudaNdarray(rand(2, 3), device=device)
    v = x.view()
    v.strides = (4, 8)
    np.testing.assert_array_equal(v.get(), x.get().ravel().reshape(3, 2).T)
    v._strides = [1, 2]
    assert v.strides == (4, 8)
    for bad in [(1,), (1, 2, 3)]:
        with pytest.raises(ValueError, match="stride"):
            v._strides = bad
    for bad in [(4, 1), (-1, 1), (3, 3), (2**40, 1)]:
        with pytest.raises(ValueError, match="inside"):
            v._strides = bad
    with pytest.raises(ValueError, match="itemsize"):
        v.strides = (4, 6)
    with pytest.raises(TypeError):
        del v.strides
    with pytest.raises((TypeError, ValueError)):
        v.strides = "ab"
    assert v._strides == (1, 2)
    with pytest.raises(NotImplementedError, match="reshape"):
        x.shape = (3, 2)


def test_from_gpu_pointer(device):
    class Owner:
        """Something that holds memory."""

    x = gi.CudaNdarray(rand(4, 5), device=device)
    owner = Owner()
    y = gi.from_gpu_pointer(x.ptr, (4, 5), (5, 1), owner, device=device)
    assert y.base is owner
    assert y[1:].base is owner
    assert y.ptr == x.gpudata == x._dev_data
    y[0] = 7
    assert (x.get()[0] == 7).all()
    t = gi.CudaNdarray.from_pointer(x.ptr, (5, 4), (1, 5), x, device=device, nbytes=x.nbytes)
    np.testing.assert_array_equal(t.get(), x.get().T)
    with pytest.raises(ValueError, match="inside"):
        gi.CudaNdarray.from_pointer(x.ptr, (5, 5), None, x, device=device, nbytes=x.nbytes)
    with pytest.raises(ValueError, match="null"):
        gi.from_gpu_pointer(0, (4, 5), (5, 1), owner, device=device)
    with pytest.raises(ValueError, match="aligned"):
        gi.from_gpu_pointer(x.ptr + 1, (4, 4), None, owner, device=device)
    assert gi.from_gpu_pointer(0, (0, 5), (5, 1), None, device=device).base is None
    reverse = gi.from_gpu_pointer(x.ptr + 4 * 19, (20,), (-1,), x, device=device)
    np.testing.assert_array_equal(reverse.get(), x.get().ravel()[::-1])


def test_python_numbers(device):
    x = gi.CudaNdarray(np.float32([[2.5]]), device=device)
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5, True, 2.5)
    assert f"{x[0, 0]:.1f}" == "2.5"
    many = gi.zeros((2, 3), device=device)
    for convert in (float, int, bool):
        with pytest.raises(ValueError, match="one"):
            convert(many)
    assert not gi.zeros((), device=device)
    assert many.item(0) == many.item(1, 2) == many.item((1, 2)) == many.item(-1) == 0
    with pytest.raises(IndexError):
        many.item(6)
    with pytest.raises(TypeError, match="integers"):
        [1, 2, 3][gi.zeros((), device=device)]
    assert [1, 2, 3][gi.GpuArray(np.int64(1), device=device)] == 2


def test_repr_shows_values_and_place(device):
    x = gi.CudaNdarray(np.arange(4, dtype="float32"), device=device)
    assert "[0., 1., 2., 3.]" in repr(x)
    assert str(x.device) in repr(x)
    assert "strides=(8,)" in repr(x[::2])
    assert "shape=(0, 3)" in repr(gi.zeros((0, 3), device=device))
    assert "int32" in repr(gi.GpuArray(np.arange(3, dtype="int32"), device=device))

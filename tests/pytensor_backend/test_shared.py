"""Shared variables on a device: who owns the memory, what is copied, and where new values go."""

import gc
import weakref

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from arrays import values
from pytensor.configdefaults import config

import gpuinterop as gi
import gpuinterop.pytensor as backend


def array_of(w):
    return w.get_value(borrow=True, return_internal_type=True)


def test_only_float32_arrays_go_to_the_device(on_device):
    on = [np.zeros(3, "float32"), np.asarray(0.0, "float32"), np.zeros((0, 2), "float32")]
    off = [np.zeros(3), np.float32(0), 0.0, np.zeros(3, "int64"), [1.0]]
    assert all(isinstance(pytensor.shared(x).type, backend.CudaNdarrayType) for x in on)
    assert not any(isinstance(pytensor.shared(x).type, backend.GpuArrayType) for x in off)
    kept = pytensor.shared(np.zeros(3, "float32"), target="cpu")
    assert not isinstance(kept.type, backend.GpuArrayType)


@pytest.mark.parametrize("borrow", [True, False])
def test_value_made_from_numpy_is_never_shared(borrow, on_device):
    host = values(1, 4)
    w = pytensor.shared(host, borrow=borrow)
    expected = host.copy()
    host[:] = 0
    np.testing.assert_array_equal(w.get_value(), expected)
    w.get_value(borrow=borrow)[:] = 0
    np.testing.assert_array_equal(w.get_value(), expected)


def test_value_made_from_a_device_array_is_shared_only_with_borrow(on_device):
    array = gi.CudaNdarray(values(1, 4), device=on_device)
    assert array_of(pytensor.shared(array, borrow=True)) is array
    assert not gi.may_share_memory(array_of(pytensor.shared(array)), array)


def test_get_value_copies_without_borrow(on_device):
    w = pytensor.shared(values(1, 4))
    copy = w.get_value(return_internal_type=True)
    assert type(copy) is gi.CudaNdarray
    assert not gi.may_share_memory(copy, array_of(w))
    assert array_of(w) is array_of(w)


def test_set_value_keeps_memory_for_host_values_of_one_shape(on_device):
    w = pytensor.shared(values(1, 4, 4))
    array = array_of(w)
    for borrow in (True, False):
        w.set_value(values(2, 4, 4), borrow=borrow)
        assert array_of(w) is array
    w.set_value(values(3, 2, 4))
    assert w.get_value().shape == (2, 4)
    assert array.shape == (4, 4)


def test_set_value_borrows_device_arrays(on_device):
    w, array = pytensor.shared(values(1, 4)), gi.CudaNdarray(values(2, 4), device=on_device)
    w.set_value(array)
    assert not gi.may_share_memory(array_of(w), array)
    w.set_value(array, borrow=True)
    assert array_of(w) is array


def test_values_of_another_kind_are_refused(on_device):
    w = pytensor.shared(values(1, 4))
    for wrong in (np.zeros(4), np.zeros(4, "int64"), np.zeros((2, 2), "float32"), "text"):
        with pytest.raises((TypeError, ValueError)):
            w.set_value(wrong)
    w.set_value([1.0, 2.0])
    assert w.get_value().tolist() == [1, 2]
    loose = pytensor.shared(values(1, 4), allow_downcast=True)
    loose.set_value(np.ones(4))
    assert loose.get_value().tolist() == [1] * 4


def test_array_of_another_device_is_refused(on_device):
    w = pytensor.shared(values(1, 4))
    if gi.device(on_device).type == "cuda":
        with pytest.raises(TypeError, match="to_device"):
            w.set_value(gi.CudaNdarray(values(2, 4), device="cpu"), borrow=True)


def test_zero(on_device):
    w = pytensor.shared(values(1, 4))
    array = array_of(w)
    w.zero()
    assert array_of(w) is not array
    w.set_value(array, borrow=True)
    w.zero(borrow=True)
    assert array.tolist() == [0] * 4


def test_update_of_another_type_is_refused(on_device):
    w = pytensor.shared(values(1, 4))
    with pytest.raises(TypeError):
        pytensor.function([], [], updates={w: pt.cast(w, "float64")})
    with pytest.raises(TypeError):
        pytensor.function([], [], updates={w: w.sum()})


def test_updates_read_old_values(on_device):
    a, b = pytensor.shared(values(1, 3)), pytensor.shared(values(2, 3))
    f = pytensor.function([], [a, b], updates=[(a, b + 1), (b, a * 2)])
    x, y = a.get_value(), b.get_value()
    for _ in range(5):
        found = f()
        np.testing.assert_allclose([np.asarray(v) for v in found], [x, y], rtol=1e-6)
        x, y = y + 1, x * 2
    np.testing.assert_allclose([a.get_value(), b.get_value()], [x, y], rtol=1e-6)


def test_givens_replace_a_device_variable(on_device):
    w, x = pytensor.shared(values(1, 3)), pt.fvector("x")
    f = pytensor.function([x], w * 2, givens={w: x + 1})
    np.testing.assert_allclose(f(values(2, 3)), (values(2, 3) + 1) * 2, rtol=1e-6)


def test_result_that_is_a_shared_variable_is_a_copy(on_device):
    w = pytensor.shared(values(1, 3))
    kept = pytensor.function([], w)()
    w.set_value(values(2, 3))
    np.testing.assert_array_equal(kept.get(), values(1, 3))


@pytest.mark.lifetime
def test_memory_is_released_with_functions_and_variables(on_device):
    gc.collect()
    before = gi.memory_stats(on_device)["live_bytes"]
    w = pytensor.shared(values(1, 100, 100))
    f = pytensor.function([], [pt.exp(w).sum(), backend.gpu_from_host(w * 2)], updates={w: w * 0.5})
    for _ in range(4):
        f()
    gone = weakref.ref(array_of(w))
    del f, w
    gc.collect()
    assert gone() is None
    assert gi.memory_stats(on_device)["live_bytes"] <= before


def test_without_collection_results_keep_their_memory_until_free(on_device):
    config.allow_gc = False
    w = pytensor.shared(values(1, 100))
    f = pytensor.function([], (pt.exp(w) * pt.dot(w, w)).sum())
    first = f()
    assert f() == first
    f.free()
    assert f() == first

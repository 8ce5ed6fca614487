"""New values of shared variables that captured graphs write, even if memory or values have other users."""

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from arrays import is_replayed, values
from pytensor import Out

import gpuinterop as gi
import gpuinterop.pytensor as backend

pytestmark = pytest.mark.driver


def test_product_is_written_to_a_shared_variable_that_nothing_reads(on_device, monkeypatch):
    recordings, capture = [], gi.capture
    monkeypatch.setattr(
        gi, "capture", lambda **options: recordings.append(capture(**options)) or recordings[-1]
    )
    m, v, b = (pytensor.shared(values(i, 5, 5)) for i in range(3))
    y = pytensor.shared(values(3, 5, 5))
    f = pytensor.function([], [], updates={y: pt.dot(m, v) + b})
    for i in range(4):
        m.set_value(values(i, 5, 5))
        f()
        expected = values(i, 5, 5) @ values(1, 5, 5) + values(2, 5, 5)
        np.testing.assert_allclose(y.get_value(), expected, rtol=1e-5, atol=1e-5)
    assert is_replayed(f)
    assert [r.nodes for r in recordings] == [1]  # a copy would be a second node


@pytest.mark.parametrize("shared_by", ["result", "operand", "update"])
def test_unread_variable_whose_memory_or_new_value_has_other_users(shared_by, on_device):
    m, v = values(0, 5, 5), values(1, 5, 5)
    y = pytensor.shared(gi.CudaNdarray(m, device=on_device), borrow=True)
    z = pytensor.shared(values(2, 5, 5))
    internal = y.get_value(borrow=True, return_internal_type=True)
    left = (
        pytensor.shared(internal.T, borrow=True) if shared_by == "operand" else pytensor.shared(m.T)
    )
    new = pt.dot(left, pytensor.shared(v))
    result = backend.gpu_from_host(new.T if shared_by == "result" else new + left)
    updates = {y: new, z: new} if shared_by == "update" else {y: new}
    f = pytensor.function([], Out(result, borrow=True), updates=updates)
    for _ in range(5):
        if shared_by == "operand":
            y.set_value(internal, borrow=True)
        before = left.get_value().astype("float64")
        expected = before @ v
        returned = expected.T if shared_by == "result" else expected + before
        np.testing.assert_allclose(f().get(), returned, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(y.get_value(), expected, rtol=1e-5, atol=1e-5)
    assert is_replayed(f)
    if shared_by == "update":
        np.testing.assert_array_equal(z.get_value(), y.get_value())


def test_shared_variables_exchange_values(on_device):
    a, b = pytensor.shared(values(1, 4)), pytensor.shared(values(2, 4))
    f = pytensor.function([], [], updates={a: b, b: a})
    first, second = a.get_value(), b.get_value()
    for i in range(6):
        f()
        expected = (second, first) if i % 2 == 0 else (first, second)
        np.testing.assert_array_equal((a.get_value(), b.get_value()), expected)


def test_value_reversed_onto_itself(on_device):
    w = pytensor.shared(values(1, 7))
    f = pytensor.function([], w, updates={w: w[::-1]})
    expected, kept = w.get_value(), []
    for i in range(6):
        kept.append(f())
        np.testing.assert_array_equal(kept[-1].get(), expected[:: 1 if i % 2 == 0 else -1])
    for i, result in enumerate(kept):
        np.testing.assert_array_equal(result.get(), expected[:: 1 if i % 2 == 0 else -1])

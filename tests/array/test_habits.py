"""Names that NumPy's users type without looking: as NumPy has them, checked against it."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    "given", [(1,), (2,), (1, 3), (2, 4), (0, 4, 2), (3, 1, -1), (0.5, 2), (0,)]
)
def test_ranges_of_truths(device, given):
    made = gi.arange(*given, dtype=bool, device=device)
    expected = np.arange(*given, dtype=bool)
    assert made.dtype == expected.dtype
    assert made.tolist() == expected.tolist()


def test_longer_ranges_of_truths_are_refused(device):
    for dtype in (bool, "bool", np.bool_):
        with pytest.raises(TypeError):
            np.arange(3, dtype=dtype)
        with pytest.raises(gi.DTypeError, match="at most two") as caught:
            gi.arange(3, dtype=dtype, device=device)
        assert caught.value.fix == "say which are true: gpuinterop.arange(n) > 0"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "complex64"])
@pytest.mark.parametrize(
    "given", [(0, 1), (0, 10, 4), (0, 10, 4, False), (3, 3, 1), (5, 250, 7), (0, 1, 0)]
)
def test_linspace(device, given, dtype):
    made = gi.linspace(*given, dtype=dtype, device=device)
    np.testing.assert_array_equal(made.get(), np.linspace(*given, dtype=dtype))
    assert (made.dtype, str(made.device)) == (dtype, device)


def test_linspace_is_float32_and_rounds_integers_down(device):
    made = gi.linspace(-1, 1, 7, device=device)
    assert type(made) is gi.CudaNdarray
    np.testing.assert_array_equal(made.get(), np.linspace(-1, 1, 7).astype("float32"))
    whole = gi.linspace(-1, 1, 7, dtype="int64", device=device)
    assert whole.tolist() == np.linspace(-1, 1, 7, dtype="int64").tolist()


@pytest.mark.parametrize("given", [("a", 1), (0, None), (0, 1, -1), (0, 1, 2.5)])
def test_linspace_of_no_numbers(given):
    with pytest.raises(gi.ShapeError, match="linspace"):
        gi.linspace(*given, device="cpu")


def test_take_and_broadcast_to(device):
    x = gi.asarray(HOST, device=device)
    assert gi.take(x, [2, 0], 1).tolist() == np.take(HOST, [2, 0], 1).tolist()
    assert gi.take(x, [5, -1]).tolist() == [5, 5]
    view = gi.broadcast_to(x, (4, 2, 3))
    assert view.tolist() == np.broadcast_to(HOST, (4, 2, 3)).tolist()
    assert gi.shares_memory(view, x)
    assert view.readonly
    with pytest.raises(gi.ArgumentTypeError, match="asarray"):
        gi.broadcast_to([1.0], (2, 1))


def test_allclose(device):
    x = gi.asarray(HOST, device=device)
    for other in (x, HOST, HOST + 1e-9, x * 1.1, 3.0, np.float32("nan")):
        host = other if not isinstance(other, gi.CudaNdarray) else other.get()
        assert gi.allclose(x, other) is np.allclose(HOST, host)
        assert gi.allclose(other, x) is np.allclose(host, HOST)
    nan = gi.full((2,), np.nan, device=device)
    assert not gi.allclose(nan, nan)
    assert gi.allclose(nan, nan, equal_nan=True)
    assert gi.allclose(x * 1.1, x, rtol=0.2)
    with pytest.raises(gi.ArgumentTypeError, match="asarray"):
        gi.allclose([1.0], [1.0])


def test_shapes_as_arrays(device):
    x = gi.asarray(HOST, device=device)
    assert x.reshape(np.array([3, 2])).shape == (3, 2)
    assert x.reshape(np.array(6)).shape == x.reshape(np.int64(6)).shape == (6,)
    assert x.transpose(np.array([1, 0])).shape == (3, 2)
    with pytest.raises(gi.GpuInteropError):
        x.reshape(np.array([3.0, 2.0]))


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ((0, 300, 3), "int8"),
        ((-1, 3, 5), "uint8"),
        ((0, 2**64 - 1, 2), "uint64"),
        ((0, 9, 2), "int4"),
    ],
)
def test_linspace_wraps_no_integers(device, given, dtype):
    with pytest.raises(gi.DTypeError, match=f"linspace: expected a number that {dtype} can hold"):
        gi.linspace(*given, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", ["uint64", "int64", "uint8", "float32", "bool"])
def test_truths_go_into_every_dtype(device, dtype):
    assert gi.full(2, True, dtype, device=device).tolist() == [1, 1]
    assert gi.asarray([True, False], dtype, device=device).tolist() == [1, 0]


def test_subclasses_that_only_look_are_shared_without_a_copy(tmp_path):
    kept = np.memmap(tmp_path / "kept", "f4", "w+", shape=(4,))
    for host in (kept, np.ones(2, "f4").view(np.recarray), np.ma.array(np.ones(3, "f4"))):
        assert gi.shares_memory(gi.asarray(host, device="cpu", copy=False), host)
    for value in (np.ones(3, ">f4"), [1.0, 2.0], np.float32(1)):
        with pytest.raises(gi.CopyForbiddenError):
            gi.asarray(value, device="cpu", copy=False)


@pytest.mark.parametrize("shape", [(4,), (2, 2), (2, 1, 2), (0, 3)])
def test_in_asks_the_elements_as_numpy_does(device, shape):
    theirs = np.arange(int(np.prod(shape)), dtype="float32").reshape(shape)
    ours = gi.asarray(theirs, device=device)
    for value in (0, 3.0, 7, float("nan"), None, theirs[..., :1]):
        assert (value in ours) == (value in theirs)

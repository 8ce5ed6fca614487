"""Arrays without a protocol are accepted wherever arrays are, by their converter, as the last resort."""

import numpy as np
import pytest

import gpuinterop as gi

VALUES = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(params=["npmat", "gnumpy"])
def known(request):
    """An array of host memory that implements no protocol."""
    library = request.getfixturevalue(request.param)
    if request.param == "npmat":
        return library.CUDAMatrix(np.asfortranarray(VALUES))
    return library.garray(VALUES.copy())


@pytest.fixture(autouse=True)
def on_cpu():
    with gi.device("cpu"):
        yield


def test_asarray_shares(known):
    x = gi.asarray(known)
    assert type(x) is gi.CudaNdarray
    assert np.array_equal(x.get(), VALUES)
    assert gi.shares_memory(x, gi.from_any(known))
    assert gi.shares_memory(gi.asarray(known, copy=False), x)
    assert gi.asarray(known, "float64").dtype == "float64"
    with pytest.raises(gi.CopyForbiddenError):
        gi.asarray(known, "float64", copy=False)


@pytest.mark.parametrize("make", [gi.array, gi.CudaNdarray, gi.GpuArray])
def test_constructors_copy(known, make):
    x = make(known)
    assert np.array_equal(x.get(), VALUES)
    assert not gi.shares_memory(x, gi.from_any(known))


def test_assigned(known):
    x = gi.zeros((2, 3))
    x[:, ::-1] = known
    assert np.array_equal(x.get(), VALUES[:, ::-1])
    with pytest.raises(gi.ShapeError):
        x[:1] = known


def test_operands(known):
    x = gi.ones((2, 3))
    for found, expected in [
        (x + known, VALUES + 1),
        (known - x, VALUES - 1),
        (x < known, VALUES > 1),
        (gi.maximum(x, known), np.maximum(VALUES, 1)),
    ]:
        assert np.array_equal(found.get(), expected)


def test_from_dlpack_is_strict_and_names_the_way(known):
    with pytest.raises(gi.ConversionTypeError, match="none") as caught:
        gi.from_dlpack(known)
    assert "gpuinterop.from_any" in caught.value.fix
    assert np.array_equal(gi.from_any(known).get(), VALUES)

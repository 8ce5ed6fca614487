"""How NumPy reads arrays, and their flags, against NumPy."""

import numpy as np
import pytest

import gpuinterop as gi

# ---- numpy.asarray, by the rules of NumPy 2 ---------------------------------------------------


def test_numpy_requests_or_forbids_a_copy(device):
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)[:, ::-1]
    on_the_host = x.device.type == "cpu"
    expected = np.arange(6, dtype="float32").reshape(2, 3)[:, ::-1]
    for read in (
        lambda **how: np.array(x, **how),
        lambda **how: x.__array__(**how),
    ):
        for copy in (True, None):
            found = read(copy=copy)
            np.testing.assert_array_equal(found, expected, strict=True)
            shared = on_the_host and found.ctypes.data == x.ptr
            assert shared == (on_the_host and copy is None)
        if on_the_host:
            assert read(copy=False).ctypes.data == x.ptr
            assert read(copy=False).strides == x.strides
        else:
            with pytest.raises(ValueError, match="download"):
                read(copy=False)
        # Another dtype is a copy, so it cannot be had without one.
        assert read(dtype="float64").dtype == np.float64
        with pytest.raises(ValueError):
            read(dtype="float64", copy=False)


def test_later_writes_reach_numpy_only_on_the_host(device):
    x = gi.zeros(3, device=device)
    seen = np.asarray(x)
    x[1] = 5
    assert seen[1] == (5 if x.device.type == "cpu" else 0)


def test_get_fills_an_array_that_fits(device):
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)[:, ::2]
    out = np.empty((2, 2), "float32")
    assert x.get(out) is out
    assert out.tolist() == [[0, 2], [3, 5]]


def test_flags(device):
    x = gi.zeros((2, 3), device=device)
    assert (x.flags.c_contiguous, x.flags.f_contiguous, x.flags.forc) == (True, False, True)
    assert x.T.flags["F"]
    assert not x.T.flags.c_contiguous
    assert x.flags.owndata
    assert not x[0].flags.owndata
    assert not x[:, ::2].flags.forc
    assert not x.broadcast_to(2, 2, 3).flags.writeable
    assert x.flags == gi.ones((2, 3), device=device).flags
    with pytest.raises(KeyError):
        x.flags["nonsense"]
    with pytest.raises(KeyError):
        x.flags[0]
    with pytest.raises(KeyError):
        x.flags["_private"]


def test_flags_are_numpys():
    host = np.zeros((3, 4), "float32")
    frozen = host.copy()
    frozen.flags.writeable = False
    for view in (host, host.T, host[:, ::2], host[:1], host[0], host[:0], frozen, frozen.T):
        x = gi.from_any(view)
        for key in ("C", "F", "W", "A", "B", "CA", "FNC", "FORC", "CONTIGUOUS", "FORTRAN"):
            assert x.flags[key] == view.flags[key], (view.flags, key)
        assert np.isfortran(x) == np.isfortran(view)


@pytest.mark.parametrize("key", ["writeable", "W", "WRITEABLE"])
def test_flags_make_an_array_read_only(device, key):
    x = gi.ones(3, device=device)
    flags, before = x.flags, x[1:]
    if key == "writeable":
        flags.writeable = False
    else:
        flags[key] = False
    assert x.readonly
    assert not flags.writeable
    assert x[1:].readonly
    assert not before.readonly  # an array of its own, as in NumPy
    with pytest.raises(gi.ReadOnlyError):
        x.fill(7)
    with pytest.raises(gi.ReadOnlyError):
        flags.writeable = True
    before.flags.writeable = True
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["c_contiguous", "aligned", "owndata", "forc"])
def test_flags_that_are_facts_take_no_assignment(name):
    x = gi.ones(3, device="cpu")
    with pytest.raises(AttributeError):
        setattr(x.flags, name, False)
    with pytest.raises(AttributeError):
        x.flags[name] = False
    assert getattr(x.flags, name)

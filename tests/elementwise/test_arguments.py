"""Wrong arguments: an error that says what to do, and never a look outside the memory."""

import functools
import sys

import numpy as np
import pytest
from helpers.property_tests import examples
from hypothesis import example, given
from hypothesis import strategies as st

import gpuinterop as gi
from gpuinterop.errors import ContiguityError

HOST = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def x(device):
    return gi.GpuArray(HOST, device=device)


# ---- outs -------------------------------------------------------------------------------------


@pytest.fixture(params=[(0, 0), (1, 1), (0, 1), (3, 3), (2, 1)], ids=str)
def folded(request, device):
    """An array some of whose elements share their place."""
    return gi.GpuArray(np.zeros(16, np.float32), device=device)._restrided((2, 3), request.param, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: gi.add(x, 1, out=out),
        lambda x, out: gi.concatenate([x[:1], x[:1]], out=out),
        lambda x, out: gi.stack([x[0], x[1]], out=out),
        lambda x, out: x.take([0, 1], axis=0, out=out),
        lambda x, out: gi.where(x, x, 0, out=out),
        lambda x, out: np.exp(x, out=out),
        lambda x, out: out.__iadd__(x),
        lambda x, out: x[None].sum(axis=0, out=out),
        lambda x, out: np.sum(x[None], axis=0, out=out),
    ],
    ids=["add", "concatenate", "stack", "take", "where", "exp", "+=", "sum", "numpy.sum"],
)
def test_out_with_overlapping_elements_is_refused(x, folded, call):
    with pytest.raises(ContiguityError, match="do not overlap"):
        call(x, folded)
    assert not folded.get().any()


@examples(300)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-12, 12)), min_size=1, max_size=3))
@example([(2, 2), (4, 4), (2, 14)])  # only x[1, 3, 0] and x[0, 0, 1] have one place
def test_out_is_accepted_if_its_elements_do_not_overlap(layout):
    shape, steps = map(list, zip(*layout, strict=True))
    out = gi.GpuArray(np.zeros(400, np.int16), device="cpu")._restrided(shape, steps, 200)
    places = np.indices(shape).reshape(len(shape), -1).T @ np.array(steps)
    own = len(set(places.tolist())) == len(places)
    call = functools.partial(gi.negative, gi.zeros(shape, np.int16, device="cpu"), out=out)
    if own:
        assert call() is out
    else:
        with pytest.raises(ContiguityError, match="do not overlap"):
            call()


# ---- numbers ------------------------------------------------------------------------------------


def test_integer_powers(device):
    base = gi.GpuArray(np.array([1, -1, -1, 2, 0, 3]), device=device)
    with pytest.raises(ValueError, match="exponent"):
        base ** np.int64(-1)
    # No kernel can raise for an element: the true value, cut towards zero, on both devices.
    exponent = gi.GpuArray(np.array([-1, -3, -2, -1, -1, 3]), device=device)
    assert (base**exponent).tolist() == [1, -1, 1, 0, 0, 27]
    assert (2**exponent).tolist() == [0, 0, 0, 0, 0, 8]
    assert (base.astype("float64") ** -1)[3].item() == 0.5
    with pytest.raises(OverflowError, match="wider"):
        base.astype("int8") + 300


def test_bools_are_rounded_to_float16(device):
    host = np.array([True, False])
    x = gi.GpuArray(host, device=device)
    for got in (x.round(), gi.round(x), np.round(x), gi.round(x, 0)):
        assert got.dtype == np.round(host).dtype == "float16"
        assert got.tolist() == [1, 0]
    for decimals in (1, -1):  # NumPy has no answer
        assert x.round(decimals).dtype == "float64"
    assert x.round(1).tolist() == [1, 0]


# ---- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"bogus": 1}, {"bogus": None}, {"casting": "unsafe"}, {"order": "F"}, {"subok": False},
     {"where": np.array([True, False, True])}, {"signature": "f->f"}],
    ids=str,
)  # fmt: skip
def test_no_option_is_ignored(x, options, monkeypatch):
    monkeypatch.setitem(
        sys.modules, "cupy", None
    )  # would be asked on a GPU, and cannot run on the fake driver
    for function in (gi.exp, np.exp):
        with pytest.raises((TypeError, ValueError)):
            function(x, **options)
    with pytest.raises(TypeError):
        np.clip(x, 0, 1, bogus=1)
    for call in (gi.concatenate, gi.stack):
        with pytest.raises(TypeError):
            call([x], bogus=1)
    with pytest.raises(TypeError):
        x.take([0], bogus=1)


def test_options_that_request_the_default_are_accepted(x):
    for options in ({"casting": "same_kind"}, {"order": "K"}, {"where": True}, {"subok": True}):
        np.testing.assert_allclose(gi.exp(x, **options).get(), np.exp(HOST), rtol=1e-6)
    assert np.clip(x, 0, 1, dtype="int32").dtype == np.int32


# ---- NumPy's functions ------------------------------------------------------------------------------


def test_what_gpuinterop_cannot_compute_is_left_to_another_library(x):
    class Other:
        def __array_ufunc__(self, *args, **kwargs):
            return "other"

        def __array_function__(self, *args):
            return "other"

    # Two functions of docs/reference/missing-functions.md.
    assert np.logaddexp2(x, Other()) == "other"
    assert np.lexsort((x, Other())) == "other"
    assert np.add(x, Other()) == np.matmul(x, Other()) == "other"  # no operand of gpuinterop's


@pytest.mark.parametrize("name", ["exp", "add", "where", "clip"])
def test_none_is_refused_as_an_operand(x, name):
    operands = {"exp": (None,), "add": (x, None), "where": (None, x, x), "clip": (None, 0, 1)}
    with pytest.raises(gi.ConversionTypeError, match="number"):
        getattr(gi, name)(*operands[name])

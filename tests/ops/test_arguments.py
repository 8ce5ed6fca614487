"""Wrong arguments: an error that says what to do, and never a look outside the memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.errors import (
    ArgumentTypeError,
    BoundsError,
    ContiguityError,
    ShapeError,
)
from gpuinterop.ops.concat_split import alloc

HOST = np.arange(6, dtype=np.float32).reshape(2, 3)


class Liar(gi.GpuArray):
    """Says of itself what is not so."""

    shape = property(lambda self: (1000, 1000))
    strides = property(lambda self: (8000, 8))
    ndim = property(lambda self: 2)
    size = property(lambda self: 10**6)
    nbytes = property(lambda self: 8 * 10**6)
    itemsize = property(lambda self: 8)
    dtype = property(lambda self: np.dtype("float64"))
    ptr = gpudata = property(lambda self: 64)
    readonly = property(lambda self: False)

    def is_c_contiguous(self):
        return True

    def copy(self, order="C"):
        return self


def plain(x):
    return _core.view(gi.GpuArray, x)


@pytest.fixture
def x(device):
    return gi.GpuArray(HOST, device=device)


@pytest.fixture
def liar(x):
    return _core.view(Liar, x)


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
    ],
    ids=["add", "concatenate", "stack", "take", "where", "exp", "+="],
)
def test_elements_of_an_out_have_places_of_their_own(x, folded, call):
    with pytest.raises(ContiguityError, match="do not overlap"):
        call(x, folded)
    assert not folded.get().any()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_folds_are_told_exactly(data):
    n = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 5)) for _ in range(n)]
    steps = [data.draw(st.integers(-12, 12)) for _ in range(n)]
    a = gi.GpuArray(np.zeros(400, np.int16), device="cpu")._restrided(shape, steps, 200)
    places = np.indices(shape).reshape(n, -1).T @ np.array(steps)
    assert _core._overlaps_itself(a) == (len(set(places.tolist())) < len(places))


# ---- subclasses that lie ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda a, x: a.take([5, 0]), HOST.take([5, 0])),
        (lambda a, x: a.take([1], axis=0), HOST[1:]),
        (lambda a, x: gi.concatenate([a, x]), np.concatenate([HOST, HOST])),
        (lambda a, x: gi.concatenate([x, a], axis=None), np.tile(HOST.ravel(), 2)),
        (lambda a, x: gi.stack([a, x]), np.stack([HOST, HOST])),
        (lambda a, x: gi.split(a, 3, axis=1)[2], HOST[:, 2:]),
        (lambda a, x: gi.where(a, a, x), HOST),
        (lambda a, x: a + x, HOST + HOST),
        (lambda a, x: gi.astype(a, "int32"), HOST.astype("int32")),
        (lambda a, x: gi.exp(x, out=a), np.exp(HOST)),
        (lambda a, x: gi.concatenate([x[:1], x[1:]], out=a), HOST),
        (lambda a, x: alloc(a, 2, 2, 3), np.broadcast_to(HOST, (2, 2, 3))),
        (lambda a, x: gi.clip(a, 1, 2), HOST.clip(1, 2)),
    ],
)
def test_only_real_geometry_counts(x, liar, call, expected):
    np.testing.assert_allclose(plain(call(liar, x)).get(), expected, rtol=1e-6)


def test_indices_are_checked_against_the_real_extent(liar):
    with pytest.raises(IndexError):
        liar.take([6])
    assert plain(liar.diagonal(1)).tolist() == [1.0, 5.0]
    assert plain(liar.diagonal(900)).shape == (0,)


# ---- numbers ------------------------------------------------------------------------------------


def test_integer_powers(device):
    base = gi.GpuArray(np.array([1, -1, -1, 2, 0, 3]), device=device)
    with pytest.raises(BoundsError, match="exponent of 0 or more"):
        base**-1
    with pytest.raises(ValueError, match="exponent"):
        base ** np.int64(-1)
    # No kernel can raise for an element: the true value, cut towards zero, on both devices.
    exponent = gi.GpuArray(np.array([-1, -3, -2, -1, -1, 3]), device=device)
    assert (base**exponent).tolist() == [1, -1, 1, 0, 0, 27]
    assert (2**exponent).tolist() == [0, 0, 0, 0, 0, 8]
    assert (base.astype("float64") ** -1)[3].item() == 0.5
    with pytest.raises(OverflowError, match=r"fix: cast the array to a wider dtype"):
        base.astype("int8") + 300


def test_truths_are_rounded_to_float16(device):
    host = np.array([True, False])
    x = gi.GpuArray(host, device=device)
    for got in (x.round(), gi.round(x), np.round(x), gi.round(x, 0)):
        assert got.dtype == np.round(host).dtype == "float16"
        assert got.tolist() == [1, 0]
    for decimals in (1, -1):  # NumPy has no answer
        assert x.round(decimals).dtype == "float64"
    assert x.round(1).tolist() == [1, 0]


@pytest.mark.parametrize("decimals", ["a", 1.5, None, [1]])
def test_decimals_are_a_whole_number(x, decimals):
    with pytest.raises(ArgumentTypeError, match="round: expected a whole number"):
        x.round(decimals)
    with pytest.raises(BoundsError):
        x.round(400)


# ---- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"bogus": 1}, {"bogus": None}, {"casting": "unsafe"}, {"order": "F"}, {"subok": False},
     {"where": np.array([True, False, True])}, {"signature": "f->f"}],
    ids=str,
)  # fmt: skip
def test_no_option_is_ignored(x, options):
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


def test_options_that_ask_for_what_is_done_anyway(x):
    for options in ({"casting": "same_kind"}, {"order": "K"}, {"where": True}, {"subok": True}):
        np.testing.assert_allclose(gi.exp(x, **options).get(), np.exp(HOST), rtol=1e-6)
    assert np.clip(x, 0, 1, dtype="int32").dtype == np.int32


def test_sequences(x):
    for call in (gi.concatenate, gi.stack):
        with pytest.raises(ArgumentTypeError, match="sequence of arrays"):
            call(3)
        with pytest.raises(ShapeError, match="at least one array"):
            call([])
    for sections in ("ab", 1.5, None, [0.5]):
        with pytest.raises(ArgumentTypeError, match="split: expected a number of parts"):
            gi.split(x, sections)
    with pytest.raises(ArgumentTypeError, match="take: expected an int as axis"):
        x.take([0], axis="a")
    with pytest.raises(ArgumentTypeError, match="integer indices"):
        x.take([0.5])


# ---- NumPy's functions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("numpy.linalg.inv", lambda x: np.linalg.inv(x)),
        ("numpy.sort", lambda x: np.sort(x)),
        ("numpy.fft.fft", lambda x: np.fft.fft(x)),
        ("numpy.unique", lambda x: np.unique(x)),
        ("numpy.frexp", lambda x: np.frexp(x)),
        ("numpy.add.accumulate", lambda x: np.add.accumulate(x)),
    ],
)
def test_what_is_missing_says_how_to_download(x, name, call):
    with pytest.raises(
        TypeError, match=rf"{name}: expected .*\n.*\n  fix: download first: {name}\(x\.get"
    ):
        call(x)


def test_results_do_not_go_into_numpys_memory(x):
    out = np.zeros_like(HOST)
    with pytest.raises(TypeError, match=r"out\[\.\.\.\] = numpy\.exp"):
        np.exp(x, out=out)
    with pytest.raises(TypeError, match=r"numpy\.add"):
        out += x
    assert not out.any()


def test_other_libraries_are_asked_first(x):
    class Other:
        def __array_ufunc__(self, *args, **kwargs):
            return "other"

        def __array_function__(self, *args):
            return "other"

    assert np.logaddexp2(x, Other()) == "other"
    assert np.lexsort((x, Other())) == "other"


HALF_IMPORTED = """
import sys, types
import numpy
from gpuinterop import _core
x = _core.import_any(None, numpy.ones((2, 2), "float32"))
assert "gpuinterop.ops" not in sys.modules
for home in ("gpuinterop.ops", "gpuinterop.ops.blas"):
    sys.modules[home] = types.ModuleType(home)
for call in (lambda: x + x, lambda: x @ x):
    try:
        call()
    except RuntimeError as error:
        print(error)
"""


def test_operations_while_their_module_is_being_imported() -> None:
    """As a finaliser may ask for them: the import of its own thread is then not over."""
    done = subprocess.run([sys.executable, "-c", HALF_IMPORTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "gpuinterop.ops has no operation add yet",
        "gpuinterop.ops has not filled the hook prepare yet",
    ]


@pytest.mark.parametrize("name", ["exp", "add", "where", "clip"])
def test_none_is_refused_as_an_operand(x, name):
    operands = {"exp": (None,), "add": (x, None), "where": (None, x, x), "clip": (None, 0, 1)}
    with pytest.raises(gi.ConversionTypeError, match="expected an array or a number"):
        getattr(gi, name)(*operands[name])


def test_none_is_refused_as_an_operand_of_a_kernel(x):
    double = gi.ElementwiseKernel("T a", "T c", "c = a * 2", "double_it", host=lambda a: a * 2)
    with pytest.raises(gi.ConversionTypeError, match="double_it: expected an array or a number"):
        double(None)

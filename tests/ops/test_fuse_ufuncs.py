"""NumPy's ufuncs, their keywords and their methods inside of fused functions."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError

HOST = np.arange(1, 7).reshape(2, 3)

COMPUTED = {
    "dtype": lambda np_, x: np_.add(x, x, dtype="float64"),
    "dtype of an integer": lambda np_, x: np_.exp(x, dtype="float32"),
    "dtype of truths": lambda np_, x: np_.less(x, 3, dtype=bool),
    "casting": lambda np_, x: np_.multiply(x, x, casting="same_kind"),
}
BY_METHOD = {
    "round": lambda x: (x * 0.26).round(1),
    "round to tens": lambda x: x.round(-1),
    "conj": lambda x: x.conj() * 2,
    "astype": lambda x: gi.astype(x * 2, "complex128", copy=False),
}
REDUCED = {
    "add": lambda x: np.add.reduce(x),
    "add, all axes": lambda x: np.add.reduce(x * x, axis=None),
    "maximum": lambda x: np.maximum.reduce(x, axis=1, keepdims=True),
    "logical_and": lambda x: np.logical_and.reduce(x > 1),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("module", [np, gi], ids=["numpy", "gpuinterop"])
def test_keywords_of_ufuncs(device, name, dtype, module):
    host = HOST.astype(dtype)
    x = gi.GpuArray(host, device=device)
    found = gi.fuse(lambda x: COMPUTED[name](module, x))(x)
    single, expected = COMPUTED[name](module, x), COMPUTED[name](np, host)
    assert found.dtype == single.dtype == expected.dtype
    assert found.get().tobytes() == single.get().tobytes()
    np.testing.assert_allclose(found.get(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", BY_METHOD)
@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64"])
def test_what_goes_element_by_element_is_fused(device, name, dtype):
    if dtype == "complex64" and name.startswith("round"):
        dtype = "float64"
    x = gi.GpuArray(HOST * 7, dtype=dtype, device=device)
    found, single = gi.fuse(BY_METHOD[name])(x), BY_METHOD[name](x)
    assert found.dtype == single.dtype
    assert found.get().tobytes() == single.get().tobytes()
    assert gi.capture(gi.fuse(BY_METHOD[name]), x).nodes == 1


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_by_ufuncs(device, name):
    host = HOST.astype("float32")
    found = gi.fuse(REDUCED[name])(gi.GpuArray(host, device=device))
    np.testing.assert_array_equal(found.get(), REDUCED[name](host))


REFUSED = {
    "numpy.add.accumulate": lambda x: np.add.accumulate(x),
    "numpy.multiply.outer": lambda x: np.multiply.outer(x, x),
    "numpy.add.at": lambda x: np.add.at(x, 0, 1),
    "numpy.modf": lambda x: np.modf(x),
    "numpy.matmul": lambda x: np.matmul(x, x),
    "numpy.nextafter": lambda x: np.nextafter(x, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_ufuncs_cannot_do_is_named(name):
    with pytest.raises(ArgumentTypeError) as caught:
        gi.fuse(REFUSED[name])(gi.asarray([1.0, 2.0], device="cpu"))
    assert caught.value.got == f"{name}, which cannot be fused"
    assert caught.value.fix.startswith(f"call {name} outside")


@pytest.mark.parametrize("function", [np.add, gi.add], ids=["numpy", "gpuinterop"])
def test_elements_are_not_selected_by_a_keyword(function):
    with pytest.raises(ArgumentTypeError, match="select elements with gpuinterop") as caught:
        gi.fuse(lambda x: function(x, x, where=x > 0))(gi.asarray([1.0], device="cpu"))
    assert caught.value.got == "where=<array in a fused function>"


@pytest.mark.parametrize("module", [np, gi], ids=["numpy", "gpuinterop"])
def test_an_argument_as_out_is_refused_by_name(module):
    x = gi.asarray([1.0], device="cpu")
    for name, function in {
        "exp": lambda x: module.exp(x, out=x),
        "add": lambda x: module.add(x, x, x),
        "divmod": lambda x: module.divmod(x, x, out=(x, x)),
        "sqrt": lambda x: module.sqrt(x, x),
    }.items():
        with pytest.raises(ArgumentTypeError, match="no out inside of a fused function") as caught:
            gi.fuse(function)(x)
        assert caught.value.where.removeprefix("numpy.") == name

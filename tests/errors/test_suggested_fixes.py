"""The fix that an error suggests runs as it is written."""

import pickle
import re
import sys

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(6, dtype="float32").reshape(2, 3)


def refused(call, *arguments, **named) -> gi.GpuInteropError:
    with pytest.raises(gi.GpuInteropError) as caught:
        call(*arguments, **named)
    return caught.value


@pytest.fixture
def x(device):
    return gi.asarray(HOST.copy(), device=device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "call", [lambda x: x & x, lambda x: ~x, lambda x: 1 >> x, lambda x: gi.gcd(x, x)]
)
def test_bits_of_floats(x, dtype, call):
    x = x.astype(dtype)
    fix = refused(lambda: call(x)).fix
    found = call(eval(fix.partition(": ")[2].partition(", ")[0]))
    expected = call(gi.asarray(HOST.astype("int32"), device=x.device))
    assert found.get().tolist() == expected.get().tolist()


def test_out_of_another_shape(device, x):
    error = refused(lambda: x.__iadd__(gi.ones((4, 2, 3), device=device)))
    assert (error.expected, error.got) == ("x with shape (4, 2, 3)", "x with shape (2, 3)")
    assert "x = x + y" in error.fix
    two = gi.empty((2, 2, 3), device=device)
    assert gi.exp(x, out=two) is two  # repeated, as in NumPy
    np.testing.assert_allclose(two.get()[1], np.exp(HOST), rtol=1e-6)
    error = refused(lambda: gi.divmod(x, 2, out=(x.copy(), two)))
    assert (error.expected, error.got) == ("out= with shape (2, 2, 3)", "out= with shape (2, 3)")


def test_a_mask_of_another_shape(x):
    for mask in (x[:1] > 3, [True], np.ones((2, 2), bool)):
        assert "slices" in refused(x.__getitem__, mask).fix
        assert "slices" in refused(x.__setitem__, mask, 7).fix


def test_a_misspelt_device_for_unpickling(monkeypatch):
    pickled = pickle.dumps(gi.ones(2, device="cpu"))
    monkeypatch.setenv("GPUINTEROP_UNPICKLE_DEVICE", "cpuu")
    error = refused(pickle.loads, pickled)
    assert error.where == "GPUINTEROP_UNPICKLE_DEVICE"
    assert '"cpu"' in error.expected
    assert "pickled" not in error.expected


TOO_MUCH = {
    "arange": lambda: gi.arange(10**15, dtype="float32"),
    "zeros": lambda: gi.zeros(10**15, device="cpu"),
    "get": lambda: _repeated().get(),
    "tolist": lambda: _repeated().tolist(),
    "astype": lambda: _repeated().astype("float64"),
    "pinned_empty": lambda: gi.pinned_empty(10**15, device="cpu"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_out_of_host_memory_error_names_the_free_memory(name):
    error = refused(TOO_MUCH[name])
    assert isinstance(error, gi.OutOfMemoryError)
    free, total = map(int, re.search(r"(\d+) bytes free of (\d+)", error.got).groups())
    assert 0 < free < total == gi.mem_info("cpu")[1]


def _repeated():
    return gi.ones(1, device="cpu").broadcast_to(10**15)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2", "int1", "uint1"])
def test_integers_of_a_few_bits_are_cast_first(device, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if not hasattr(ml_dtypes, dtype):
        pytest.skip("needs ml_dtypes 0.6")
    host = np.array([[1, 0], [1, 1], [0, 1]], dtype)
    x = gi.asarray(host, device=device)
    assert refused(lambda: x + x).fix.endswith("x.astype('int32')")
    for wanted in ("int32", "float32", "bool", "complex64", "bfloat16", dtype):
        for order in ("C", "F"):
            found = x[::-1].astype(wanted, order=order)
            assert found.dtype == wanted
            assert found.get().tolist() == host[::-1].astype(wanted).tolist()
            assert found.is_f_contiguous() == (order == "F")
    assert type(x.astype("float32")) is gi.GpuArray
    with pytest.raises(gi.CaptureError):  # the values are the host's to read
        gi.capture(lambda: x.astype("int32"), device=device)
    assert (x.astype("int32") + 1).get().tolist() == (host.astype("int32") + 1).tolist()


@pytest.mark.parametrize("value", [[1, 2], (1.0,), 3, 0.5, np.float32(3)], ids=repr)
def test_numbers_have_no_memory_to_share(value):
    error = refused(gi.asarray, value, device="cpu", copy=False)
    assert type(value).__name__ in error.got
    assert "memory" in error.got
    assert "byte order" not in error.got


@pytest.mark.parametrize("value", [2**24 + 1, [2**24 + 1, 0.5], 2**64 - 1, 10**30])
def test_fix_for_integers_that_a_cudandarray_would_round(value):
    fix, first = refused(gi.CudaNdarray, value).fix, np.ravel(np.array(value, object))[0]
    *kept, rounded = re.findall(r"'(\w+)'", fix)
    assert len(kept) == fix.count("a GpuArray's") == (first < 2**64)
    for dtype in kept:
        assert np.ravel(gi.GpuArray(value, dtype=dtype).tolist())[0] == first
    assert gi.CudaNdarray(value, dtype=rounded).get().flat[0] == np.float32(first)


def test_masks_as_indices(x):
    for mask in (HOST > 2, gi.asarray(HOST, device=x.device) > 2):
        fix = refused(lambda mask=mask: x.take(mask)).fix
        found = eval(fix.partition("with a mask: ")[2], {"x": x, "mask": mask})
        assert found.tolist() == HOST[HOST > 2].tolist()


def test_functions_that_are_missing(x, monkeypatch):
    """On a GPU without CuPy; NumPy computes them on the host."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    for call in (
        lambda: np.percentile(x, 5, axis=0), lambda: np.multiply.at(x, [0], 1), lambda: np.select([x > 0], [x]),
    ):  # fmt: skip
        if x.device.type == "cpu":
            call()
            continue
        error = refused(call)
        assert error.where.startswith("numpy.")
        assert "x.get()" in error.fix


@pytest.mark.parametrize("number", [2.5, 1j])
def test_number_of_another_kind_for_bits(x, number):
    x, whole = gi.GpuArray(x), x.astype("int32")
    for call in (lambda: whole & number, lambda: number << whole):
        assert refused(call).fix == "pass an int"
    assert "astype('int32'), and pass an int" in refused(lambda: x ^ number).fix
    assert refused(lambda: x % 1j).fix == "pass a float"


def test_other_orders_of_a_norm(x):
    error = refused(gi.norm, x[0], 3)
    call = re.search(r"gpuinterop\.linalg\.norm\(x, ord\)", error.fix)[0]
    found = eval(call, {"gpuinterop": gi, "x": x[0], "ord": 3})
    np.testing.assert_allclose(found.get(), np.linalg.norm(HOST[0], 3), rtol=1e-6)
    assert found.device == x.device

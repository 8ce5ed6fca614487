"""``gi.via``: functions of other libraries on the memory of the arrays."""

import numpy as np
import pytest
from helpers.profile import PACKAGE, functions_of

import gpuinterop as gi

X = np.array([[3.0, 1.0], [2.0, 4.0]], "float32")


@pytest.fixture
def x():
    return gi.array(X, device="cpu")


def test_numpy(x):
    with gi.no_copies():
        got = gi.via.numpy.sort(x, axis=1)
        assert gi.shares_memory(gi.via.numpy.real(x), x)
    assert type(got) is gi.CudaNdarray
    assert got.tolist() == np.sort(X, axis=1).tolist()
    assert gi.via.numpy.pi == np.pi
    assert gi.via.numpy.zeros(2, dtype=gi.via.numpy.int8).dtype == "int8"
    assert gi.via.numpy.median(x).tolist() == 2.5


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_usual_calls_run_no_function_of_the_package(x, library):
    pytest.importorskip(library)
    absolute = getattr(gi.via, library).abs
    assert not functions_of(lambda: absolute(x), PACKAGE)
    assert not functions_of(lambda: absolute(x, out=x), PACKAGE)


def test_scipy_takes_numpys_arrays(x):
    special = pytest.importorskip("scipy.special")
    np.testing.assert_array_equal(gi.via.scipy.special.erfcx(x).get(), special.erfcx(X))
    solved = gi.via.scipy.linalg.solve(x, gi.GpuArray([1.0, 2.0], dtype="float64", device="cpu"))
    np.testing.assert_allclose(solved.get(), np.linalg.solve(X, [1.0, 2.0]))


def test_torch(x):
    torch = pytest.importorskip("torch")
    with gi.no_copies():
        values = gi.via.torch.linalg.svd(x)
    assert type(values).__name__ == "linalg_svd"
    np.testing.assert_allclose(values.S.get(), np.linalg.svd(X).S, rtol=1e-6)
    assert [type(part) for part in values] == [gi.CudaNdarray] * 3
    assert gi.via.torch.nn.functional.relu_(x) is x
    assert gi.via.torch.neg(x, out=x) is x
    assert x.tolist() == (-X).tolist()
    made = gi.via.torch.zeros(3, dtype=np.dtype("float64"), device=x.device)
    assert (type(made), made.dtype, str(made.device)) == (gi.GpuArray, "float64", "cpu")
    assert gi.via.torch.float32 is torch.float32
    parts = gi.via.torch.split(x, 1)
    assert [type(part) for part in parts] == [gi.CudaNdarray] * 2
    mixed = gi.via.torch.add(x, torch.ones(2))  # a tensor among the arguments
    assert mixed.tolist() == (1 - X).tolist()
    assert gi.via.torch.add(x, np.ones(2, "f4")).tolist() == (1 - X).tolist()
    host = -np.ones(2, "f4")
    assert gi.via.torch.nn.functional.relu_(host) is host
    assert not host.any()


def test_jax(x):
    pytest.importorskip("jax")
    got = gi.via.jax.numpy.cumsum(x, axis=1)
    assert got.tolist() == np.cumsum(X, axis=1).tolist()
    assert got.readonly


def test_results_of_wide_arrays_stay_wide():
    y = gi.GpuArray(X.copy(), device="cpu")
    assert type(gi.via.numpy.sort(y)) is gi.GpuArray
    assert type(gi.via.numpy.zeros(2, "float32")) is gi.GpuArray


def test_containers_and_other_values(x):
    assert gi.via.numpy.concatenate([x, x]).shape == (4, 2)
    assert gi.via.numpy.array_equal(x, x) is True
    grid = gi.via.numpy.meshgrid(x[0], x[1])
    assert [part.shape for part in grid] == [(2, 2), (2, 2)]
    words = gi.via.numpy.array2string(x)
    assert words == np.array2string(X)
    assert gi.via.numpy.array(["a"]).dtype.kind == "U"  # no dtype of ours


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.take(np.array(["a", "b"]), 1),
        lambda m: m.max(np.array(["2020-01-01", "2021-01-01"], "M8[D]")),
        lambda m: m.datetime_as_string(np.datetime64("2020-01-01")),
        lambda m: m.sum(np.ones(3, "longdouble")),
    ],
)
def test_a_scalar_without_a_dtype_of_gpuinterop_stays_a_scalar(call):
    found, expected = call(gi.via.numpy), call(np)
    assert (type(found), found) == (type(expected), expected)


def test_what_would_be_copied_is_refused(x):
    pytest.importorskip("torch")
    mirrored = x[:, ::-1]
    with pytest.raises(gi.ContiguityError, match="copyif=True"):
        gi.via.torch.neg(mirrored)
    with gi.count_copies() as copies:
        assert gi.via(copyif=True).torch.neg(mirrored).tolist() == (-X[:, ::-1]).tolist()
    assert copies.count == 1


def test_read_only_memory_is_refused_with_a_call_that_works():
    pytest.importorskip("torch")
    host = np.ones(3, "float32")
    host.flags.writeable = False
    constant = gi.from_any(host)
    with pytest.raises(gi.ReadOnlyError) as refused:
        gi.via.torch.neg(constant)
    assert refused.value.fix == "write gpuinterop.via(copyif=True), whose calls copy"
    assert gi.via(copyif=True).torch.neg(constant).tolist() == [-1, -1, -1]


def test_lazy_tensors_and_gradients_are_refused(x):
    torch = pytest.importorskip("torch")
    weights = torch.ones(2, requires_grad=True)
    with pytest.raises(gi.ExportError, match="detach"):
        gi.via.torch.mul(x, weights)
    with pytest.raises(gi.ExportError, match="resolve_conj"):
        gi.via.torch.conj(gi.GpuArray([1j], dtype="complex64", device="cpu"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: gi.via.no_such_library, gi.ConversionTypeError, "a library: .*scipy"),
        (lambda: gi.via.nope, gi.ConversionTypeError, "pass one of these"),
        (lambda: gi.via.scippy, gi.ConversionTypeError, "pass 'scipy'"),
        (lambda: gi.via.np, gi.ArgumentTypeError, "write gpuinterop.via.numpy"),
        (lambda: gi.via.jnp, gi.ArgumentTypeError, "write gpuinterop.via.jax"),
        (lambda: gi.via.buffer, gi.ArgumentTypeError, "no package"),
        (lambda: gi.via.numpy.no_such_name, gi.MissingNameError, "no_such_name"),
        (lambda: gi.via.numpy(gi.ones(2)), gi.ArgumentTypeError, r"gpuinterop\.to\(x, 'numpy'\)"),
        (lambda: gi.via(copyif=1), gi.ArgumentTypeError, "copyif"),
    ],
)
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_names_are_listed():
    assert {"numpy"} <= {*dir(gi.via)}
    assert "sort" in dir(gi.via.numpy)
    assert repr(gi.via.numpy.linalg) == "<numpy.linalg, for gpuinterop arrays>"
    assert gi.via.numpy.sort.__doc__ == np.sort.__doc__
    assert not hasattr(gi.via, "__wrapped__")

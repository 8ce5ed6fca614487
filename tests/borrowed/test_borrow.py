"""NumPy's functions that gpuinterop lacks run on the memory of the arrays: by NumPy on "cpu", by CuPy on CUDA."""

import importlib.machinery
import importlib.util
import itertools
import sys

import numpy as np
import pytest
from doubles import fake_cupy

import gpuinterop as gi

# Seven patterns of arguments; a function that takes none of them is not seen here.
SQUARE = np.array([[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]])
ROW = np.array([3.0, 1.0, 2.0])
PATTERNS = [
    (SQUARE,),
    (ROW,),
    (SQUARE, SQUARE),
    (ROW, ROW),
    (SQUARE, 1),
    (1, ROW),
    ((ROW, ROW),),
    (ROW, ROW, ROW),
]
# They answer with memory that they did not set, with objects of Python's, or write files.
LEFT_OUT = {
    "empty_like", "array2string", "array_repr", "array_str", "savetxt", "save", "savez", "savez_compressed",
    "may_share_memory", "shares_memory", "genfromtxt", "loadtxt", "fromfile", "common_type", "min_scalar_type",
}  # fmt: skip
# What gpuinterop computes otherwise, or not: an integer divided by 0; conditions that are not bool; kernels for complex
# numbers; distinct values in any order; an `out` with more dimensions than the result; a shape given as an array; a
# number that widens float32.
OTHERWISE = {
    "reciprocal",
    "compress",
    "matmul",
    "resize",
    "dot",
    "inner",
    "unique_values",
    "vecdot",
}
# NumPy refuses these calls: an array in the place of a dtype, one bound of two, an array that has no dtype to join.
WIDER = {"astype", "clip", "empty_like", "full_like", "ones_like", "zeros_like", "result_type"}
REAL_ONLY = set("expm1 log1p log2 log10 acos acosh asin asinh atan atanh".split())
REAL_ONLY |= {name.replace("a", "arc", 1) for name in REAL_ONLY if name[0] == "a"}


def functions():
    for prefix, module in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        for name in sorted(vars(module)):
            function = getattr(module, name)
            if hasattr(function, "_implementation") or isinstance(function, np.ufunc):
                yield prefix + name, function


NAMED = {name: f for name, f in functions() if name.rpartition(".")[2] not in LEFT_OUT}


def flat(value):
    """The arrays and numbers of a result, NumPy's or ours, as NumPy arrays."""
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in flat(item)]
    return [value.get() if isinstance(value, gi.GpuArray | gi.CudaNdarray) else np.asarray(value)]


def on(device, value, dtype):
    if isinstance(value, tuple):
        return tuple(on(device, item, dtype) for item in value)
    return (
        gi.GpuArray(value.astype(dtype), device=device) if isinstance(value, np.ndarray) else value
    )


def host(value, dtype):
    if isinstance(value, tuple):
        return tuple(host(item, dtype) for item in value)
    return value.astype(dtype) if isinstance(value, np.ndarray) else value


def outcome(function, args):
    try:
        return flat(function(*args))
    except Exception as error:
        return error


def outcome_without_copies(function, args):
    """The test's own downloads of the result may copy, the call may not."""
    try:
        with gi.no_copies():
            result = function(*args)
        return flat(result)
    except Exception as error:
        return error


def transfers_an_array(error, pattern):
    """Copies on the device are what some functions are for. Numbers, indices and tuples of arrays cross the bus."""
    read = "device to host" in str(error) and ", 8 bytes" not in str(error)
    return read and not isinstance(pattern[0], tuple)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "complex128"])
def test_every_function_gives_numpys_values(dtype):
    seen, wrong = set(), []
    for (name, function), pattern in itertools.product(NAMED.items(), PATTERNS):
        expected = outcome(function, host(pattern, dtype))
        got = outcome(function, on("cpu", pattern, dtype))
        if name in OTHERWISE | (REAL_ONLY if dtype == "complex128" else set()):
            continue
        case = f"{name} of {len(pattern)} arguments"
        if isinstance(expected, Exception):
            accepted = not isinstance(got, Exception) and name not in WIDER
            wrong += [f"{case}: {got} where NumPy refuses"] * accepted
            continue
        seen.add(name)
        if isinstance(got, Exception):
            wrong += [f"{case}: {type(got).__name__}: {got}"]
        elif len(got) != len(expected):
            wrong += [f"{case}: {len(got)} results"]
        else:
            wrong += [
                f"{case}: {a} for {b}" for a, b in zip(got, expected, strict=True) if not same(a, b)
            ]
    assert wrong == [], "\n".join(map(str, [len(seen), *wrong]))
    assert len(seen) > 250


def same(got, expected):
    if expected.dtype.kind in "OUSM":
        return str(got) == str(expected)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    return np.allclose(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


X = np.array([[3.0, 1.0], [2.0, 4.0]], "float32")


def test_memory_is_shared_and_written_in_place():
    x = gi.array(X, device="cpu")
    with gi.no_copies():
        assert gi.shares_memory(np.real(x), x)
        np.fill_diagonal(x, 9)
        assert np.cumsum(x, axis=1, out=x) is x
    assert x.tolist() == [[9, 10], [2, 11]]


def test_results_at_odd_addresses_are_copied():
    bins = np.frombuffer(b"x" + np.array([0.0, 2, 5]).tobytes(), offset=1)
    counts, edges = np.histogram(gi.arange(6, device="cpu"), bins=bins)
    assert (counts.tolist(), edges.tolist()) == ([2, 4], [0, 2, 5])


def test_results_have_the_class_of_the_operands():
    x = gi.array(X, device="cpu")
    assert type(np.sort(x)) is gi.CudaNdarray
    assert type(np.argsort(x)) is type(np.sort(gi.GpuArray(x))) is gi.GpuArray
    decomposition = np.linalg.svd(x)
    assert type(decomposition).__name__ == "SVDResult"
    assert type(decomposition.S) is gi.CudaNdarray
    assert type(np.size(x)) is int


def test_numpys_own_errors_arrive():
    x = gi.array(X, device="cpu")
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(-x)
    with pytest.raises(ValueError, match="read-only"):
        np.fill_diagonal(x.broadcast_to((2, 2, 2))[0], 0)
    with pytest.raises(gi.CaptureError):
        gi.capture(lambda a: np.percentile(a, 5), x)


def test_a_ufunc_with_a_mask():
    """gpuinterop's functions compute all elements, and NumPy's with where= those that a mask selects."""
    x = gi.asarray(np.arange(4.0), device="cpu")
    out = gi.zeros(4, "float64", device="cpu")
    assert np.divide(1, x, where=x > 1, out=out) is out
    assert out.tolist() == [0, 0, 0.5, 1 / 3]
    assert np.add(x, 1, where=True).tolist() == [1, 2, 3, 4]


def test_a_foreign_ufunc():
    special = pytest.importorskip("scipy.special")
    x = gi.array(X, device="cpu")
    np.testing.assert_array_equal(special.jv(0, x).get(), special.jv(0, X))
    out = gi.empty((2, 2), device="cpu")
    assert special.expit(x, out=out) is out
    np.testing.assert_array_equal(out.get(), special.expit(X))


def test_the_name_of_a_ufunc_loads_no_lazy_module(monkeypatch):
    class Loader(importlib.machinery.SourcelessFileLoader):
        def exec_module(self, module):
            raise AssertionError("loaded")

    loader = importlib.util.LazyLoader(Loader("lazy", "lazy.pyc"))
    spec = importlib.util.spec_from_loader("lazy", loader)
    lazy = importlib.util.module_from_spec(spec)
    loader.exec_module(lazy)
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    twice = np.frompyfunc(lambda a: 2 * a, 1, 1)
    assert np.asarray(twice(gi.array([1, 2], device="cpu"))).tolist() == [2, 4]


def test_a_subclass_of_another_library_decides_itself():
    class Other:
        def __array_function__(self, *call):
            return "other"

    assert np.percentile(gi.asarray(X, device="cpu"), Other()) == "other"


@pytest.mark.driver
@pytest.mark.parametrize("name", ["percentile", "expit"])
def test_error_on_a_gpu_without_cupy_says_what_to_install(device, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "cupy", None)
    percentile = name == "percentile"
    function = (
        (lambda x: np.percentile(x, 5))
        if percentile
        else pytest.importorskip("scipy.special").expit
    )
    with pytest.raises(gi.ArgumentTypeError, match=rf"{name}: expected a call that") as caught:
        function(gi.array(X, device=device))
    assert "pip install cupy-cuda13x" in caught.value.fix
    assert ("gpuinterop.sigmoid(x)" in caught.value.fix) == (name == "expit")


# Interpolation between places that are not in order has no defined value, vectors of eigh and svd have no defined
# sign, and shifts are read on the host.
ON_A_GPU = {"interp", "linalg.eigh", "linalg.svd", "roll"}


def equal(a, b):
    return a.shape == b.shape and np.allclose(a, b, equal_nan=True)


def walked(device):
    """How many functions computed on a GPU, by gpuinterop or by CuPy as far as it has them, and the faults."""
    seen, wrong = set(), []
    for (name, function), pattern in itertools.product(NAMED.items(), PATTERNS):
        expected = outcome(function, host(pattern, "float64"))
        if isinstance(expected, Exception) or name in OTHERWISE | ON_A_GPU:
            continue
        args = on(device, pattern, "float64")
        got = outcome_without_copies(function, args)
        if isinstance(got, gi.CopyForbiddenError) and transfers_an_array(got, pattern):
            wrong.append(f"{name}: {got}")
        if isinstance(got, Exception):
            continue  # CuPy lacks it, or takes other arguments
        seen.add(name)
        wrong += [
            f"{name}: {a} for {b}"
            for a, b in zip(got, expected, strict=True)
            if not (a == b == None if b.dtype == object else equal(a, b))  # noqa: E711
        ]
    return len(seen), wrong


@pytest.mark.gpu
@pytest.mark.cupy
@pytest.mark.filterwarnings("ignore")
def test_functions_on_a_gpu_give_numpys_values_without_a_transfer(device):
    pytest.importorskip("cupy")
    count, wrong = walked(device)
    assert wrong == [], "\n".join(wrong)
    assert count > 200


@pytest.mark.fake_driver
def test_methods_of_ufuncs_that_cupy_lacks_are_refused():
    pytest.importorskip("scipy.special")
    code = """
        import types
        import gpuinterop as gi
        from scipy import special

        sys.modules["cupyx.scipy.special"].module = types.SimpleNamespace(erf=special.erf)
        x = gi.asarray([0.5, 1.0], device="cuda:0")
        for call in (special.owens_t.reduce, special.owens_t.accumulate):
            try:
                call(x)
            except gi.errors.ArgumentTypeError as error:
                assert error.where.startswith("scipy.special.owens_t."), error.where
            else:
                raise AssertionError(call)
    """
    fake_cupy.run(code)


@pytest.mark.fake_driver
def test_functions_on_a_fake_gpu_give_numpys_values_without_a_transfer():
    code = """
        import test_borrow

        count, wrong = test_borrow.walked("cuda:0")
        assert wrong == [], wrong
        assert count > 250, count
    """
    fake_cupy.run(code, "borrowed")


@pytest.mark.fake_driver
def test_a_foreign_ufunc_reads_memory_that_is_read_only():
    pytest.importorskip("scipy.special")
    code = """
        import gpuinterop as gi
        from scipy import special

        sys.modules["cupyx.scipy.special"].module = special
        x = gi.asarray([[0.5, 0.25]] * 3, device="cuda:0")
        x.readonly = True
        out = gi.zeros((3, 2), "float64", device="cuda:0")
        special.ndtri(x, out=out)
        assert special.jv(0, x).tolist() == special.jv(0, x.get()).tolist()
        assert out.tolist() == special.ndtri(x.get()).tolist()
        try:
            special.jv(0, out, out=x)
        except gi.ReadOnlyError:
            pass
        else:
            raise AssertionError("jv wrote to read-only memory")
    """
    fake_cupy.run(code)

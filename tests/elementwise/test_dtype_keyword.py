"""dtype= of an elementwise function: NumPy's result in NumPy's dtype, or refused where NumPy refuses."""

import itertools

import numpy as np
import pytest

import gpuinterop as gi

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
]
DTYPES = ("bool", "int8", "int32", "uint8", "int64", "float16", "float32", "float64", "complex64")
# NumPy calls its products ufuncs.
OTHERS = ("matmul", "matvec", "vecdot", "vecmat", "nextafter")  # products, and a borrowed one
UFUNCS = [n for n in gi.__all__ if isinstance(getattr(np, n, None), np.ufunc) and n not in OTHERS]
# See docs/reference/differences.md: these have no kernels for complex numbers.
REAL = "expm1 log2 log10 log1p arcsin arccos arctan arcsinh arccosh arctanh".split()


def answer(function, operands, dtype, *refusals):
    try:
        found = function(*operands, dtype=dtype)
    except refusals:
        return None
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", UFUNCS)
def test_dtype_keyword_matches_numpy(name):
    numpy_function = getattr(np, name)
    pairs = list(itertools.product(DTYPES, repeat=numpy_function.nin))[
        :: 1 if numpy_function.nin == 1 else 17
    ]
    cases = [[np.array([1, 2, 3], d) for d in dtypes] for dtypes in pairs]
    if numpy_function.nin == 2:
        cases += [[np.array([1, 2, 3], d), number] for d in DTYPES[::3] for number in (2, 1.5, 1j)]
        cases += [[300, 1], [np.array([1, 2, 3], "uint8"), -1]]
    for hosts, wanted in itertools.product(cases, DTYPES):
        if wanted == "complex64" and numpy_function.__name__ in REAL:
            continue
        arrays = [gi.GpuArray(h, device="cpu") if isinstance(h, np.ndarray) else h for h in hosts]
        expected = answer(numpy_function, hosts, wanted, TypeError, ValueError, OverflowError)
        got = answer(
            getattr(gi, name), arrays, wanted, gi.DTypeError, gi.BoundsError, gi.RangeError
        )
        assert (expected is None) == (got is None), (hosts, wanted)
        for a, b in zip(expected or (), got or (), strict=True):
            assert a.dtype == b.dtype, (hosts, wanted)
            np.testing.assert_allclose(b.get(), a, rtol=1e-3)


def test_other_libraries_arrays_are_cast_too(device):
    x, y = gi.GpuArray([0.1], dtype="float64", device=device), np.array([0.1])
    for first, second in ((x, y), (y, x), (x, np.float64(0.1)), (x, np.array(0.1))):
        assert np.add(first, second, dtype="float32").dtype == np.float32
    torch = pytest.importorskip("torch")
    assert gi.add(x, torch.tensor([0.1], dtype=torch.float64), dtype="float32").dtype == np.float32


def test_small_floats_and_cudandarrays(device):
    x = gi.CudaNdarray([1, 2], device=device)
    assert gi.add(x, 2, dtype="bfloat16").astype("float32").tolist() == [3, 4]
    assert type(np.add(x, x, dtype="float64")) is gi.GpuArray
    with pytest.raises(gi.DTypeError, match=r"dtype=float64[\s\S]*\.astype\('float64'\)"):
        np.equal(x, x, dtype="float64")

"""`gpuinterop.array_api.special`: SciPy's special functions on the device of their operands, compared with SciPy's."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import array_api as xp

special = pytest.importorskip("scipy.special")
VALUES = np.array([0.25, 0.5, 0.75, 1.0, 2.0, 3.0])
OWN = ["erf", "erfc", "erfinv", "expit", "gamma", "gammaln"]
# Their first arguments are integers, numbers of trials or orders.
ORDERS = {"bdtr", "bdtrc", "bdtri", "expn", "nbdtr", "nbdtrc", "nbdtri", "pdtri", "yn", "jn"}


def compared(name, device, dtype):
    """Return gpuinterop's and SciPy's values for positive arguments of a dtype."""
    ufunc = getattr(special, name)
    host = [(VALUES / (1 + k)).astype(dtype) for k in range(ufunc.nin)]
    given = [gi.array(h, device=device) for h in host]
    with gi.downloads("refuse"), gi.log_transfers() as log:
        found = getattr(xp.special, name)(*given)
    assert not log
    assert type(found) is gi.GpuArray
    assert found.device == given[0].device
    with np.errstate(all="ignore"):
        return found.get(), ufunc(*host)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("name", OWN)
def test_functions_that_gpuinterop_computes(device, name, dtype):
    found, expected = compared(name, device, dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(expected.dtype).eps)


@pytest.mark.parametrize(
    "given", [(1.0,), (np.ones(2),), ()], ids=["a number", "of NumPy", "nothing"]
)
def test_calls_without_an_array_are_refused(given):
    with pytest.raises(
        gi.errors.ArgumentTypeError, match=r"special\.erf: expected a gpuinterop array"
    ):
        xp.special.erf(*given)


def test_poles(device):
    x = gi.array(np.array([0.0, -0.0, -1.0, -2.0, np.inf, np.nan]), device=device)
    np.testing.assert_array_equal(xp.special.gammaln(x).get(), special.gammaln(x.get()))
    np.testing.assert_array_equal(xp.special.gamma(x).get(), special.gamma(x.get()))


@pytest.mark.gpu
@pytest.mark.cupy
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_functions_that_cupy_computes(device, dtype):
    """They have CuPy's values, in SciPy's dtype."""
    cupy, theirs = pytest.importorskip("cupy"), pytest.importorskip("cupyx.scipy.special")
    names = [n for n in dir(special) if isinstance(getattr(special, n), np.ufunc)]
    names = [n for n in names if hasattr(xp.special, n) and n not in ORDERS and n not in OWN]
    wrong = []
    for name in names:
        try:
            found, expected = compared(name, device, dtype)
        except TypeError:  # SciPy's ufunc takes other dtypes
            continue
        ufunc = getattr(special, name)
        wide = (
            [np.dtype(dtype)] * ufunc.nin
            if expected.dtype == dtype
            else [expected.dtype] * ufunc.nin
        )
        host = [(VALUES / (1 + k)).astype(dtype).astype(w) for k, w in enumerate(wide)]
        direct = getattr(theirs, name)(*map(cupy.asarray, host)).get()
        close = device == "cpu" or np.allclose(found, direct, rtol=1e-5, equal_nan=True)
        wrong += (
            [] if found.dtype == expected.dtype and close else [f"{name}: {found} for {direct}"]
        )
    assert wrong == [], "\n".join(wrong)
    assert len(names) > 60


@pytest.mark.parametrize("name", ["zeta", "softmax", "betaincinv", "no_such_name"])
def test_others_are_left_to_scipy(name):
    assert not hasattr(xp.special, name)

"""The functions that SciPy delegates to CuPy alone, by SciPy's own table, through `gi.via`."""

import importlib

import numpy as np
import pytest
from doubles import fake_cupy

import gpuinterop as gi

table = pytest.importorskip("scipy._lib._array_api").xp_capabilities_table
RNG = np.random.default_rng(0)
IMAGE, ROW = RNG.random((8, 8)), RNG.random(32)
MASK, LABELS = IMAGE > 0.3, (np.arange(64).reshape(8, 8) // 16).astype("int32")
SPECTRUM = np.fft.fft2(IMAGE)
B, A = np.array([0.2, 0.3, 0.2]), np.array([1.0, -0.4, 0.1])
SOS = np.array([[0.2, 0.3, 0.2, 1.0, -0.4, 0.1]])
LARGE = RNG.random((40, 40))
INDEX = np.array([0, 1, 2, 3])
THIRDS = np.array([0.25, 0.5, 0.75])
# A function is tried with all of them, and takes some.
PATTERNS = [
    (IMAGE,), (IMAGE, 3), (IMAGE, 1.5), (IMAGE, IMAGE[:3, :3].copy()), (IMAGE, B), (IMAGE, 1, 3), (IMAGE, 30, 3),
    (IMAGE, np.array([[1.0, 0.1], [0.0, 0.9]])), (IMAGE, (3, 3)), (MASK,), (SPECTRUM, 2), (SPECTRUM, 1.5),
    (IMAGE, LABELS, INDEX), (IMAGE, 0, 1, 4, LABELS, INDEX), (LABELS,), (MASK, 2),
    (ROW,), (ROW, 3), (ROW, 5, 2), (ROW, 16), (ROW, 2, 3), (B, A, ROW), (B, A), (SOS,), (SOS, ROW), (B, ROW), (ROW, B),
    (3, 0.3), (3, 1, 0.3), (3, 20, 0.3), (3, 1, 20, 0.3), (0.2, 0.3, 1, 40), ((B, A),), (A, B, 0.5), (IMAGE, B, B),
    (33, np.array([0.0, 0.5, 1.0]), np.array([1.0, 1.0, 0.0])), (ROW, np.linspace(0.0, 31.0, 9)), (5, 3),
    (THIRDS,), (THIRDS, THIRDS + 1), (THIRDS, THIRDS + 1, THIRDS), (INDEX, INDEX + 3, INDEX / 8.0),
    (INDEX, INDEX / 2.0), (INDEX, INDEX / 2.0 + 1), (THIRDS * 4, INDEX[1:], THIRDS), (1, INDEX[1:], THIRDS),
    (ROW, ROW[::-1].copy(), ROW**2), (IMAGE, np.ones((3, 3)), 4), (LABELS.astype("uint8"), LABELS), (LARGE, 0.5),
]  # fmt: skip
# They order zeros or sections in their own way, or take a function of Python's.
OTHERWISE = {
    "zpk2sos",
    "tf2sos",
    "ellip",
    "generic_filter",
    "generic_filter1d",
    "labeled_comprehension",
}


def delegated():
    """The places and names of the functions; their modules fill the table."""
    for module in ("ndimage", "signal", "special"):
        importlib.import_module(f"scipy.{module}")
    for function, row in table.items():
        others = {"torch", "jax.numpy"} & {*row["exceptions"]}
        only = row["cpu_only"] and "cupy" in row["exceptions"] and not others
        if only and not isinstance(function, type):
            path = (getattr(function, "__module__", None) or "scipy.special").split(".")
            yield path[1], function.__name__


NAMES = sorted({*delegated()})


def on(value, make):
    if isinstance(value, tuple):
        return tuple(on(item, make) for item in value)
    return make(value) if isinstance(value, np.ndarray) else value


def leaves(value):
    if not isinstance(value, (tuple, list, dict)):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [leaf for item in items for leaf in leaves(item)]


def flat(value):
    own = gi.GpuArray | gi.CudaNdarray
    return [x.get() if isinstance(x, own) else np.asarray(x) for x in leaves(value)]


def compared(module, name, own, args):
    """What is wrong with a call through via, "" for nothing; None if the function does not take these arguments."""
    package = "scipy" if own is host else "cupyx.scipy"
    try:  # the same function on arrays of its own library, which is the oracle
        direct = getattr(importlib.import_module(f"{package}.{module}"), name)
        expected = on_host(direct(*on(args, np.copy if own is host else cupys().asarray)))
    except Exception:
        return None
    library = gi.via.scipy if own is host else gi.via.cupyx.scipy
    given = on(args, own)
    with gi.downloads("refuse"), gi.log_transfers() as log:
        found = getattr(getattr(library, module), name)(*given)
    if log:
        return f"{name}: {log}"
    found = flat(found)
    return "" if alike(found, expected) else f"{name} of {args}: {found} for {expected}"


def cupys():
    return importlib.import_module("cupy")


def on_host(value):
    return [np.asarray(x.get() if hasattr(x, "get") else x) for x in leaves(value)]


def alike(found, expected):
    return len(found) == len(expected) and all(map(close, found, expected))


def close(a, b):
    if b.dtype == object:  # None
        return repr(a) == repr(b)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True)


def host(value):
    return gi.array(value, device="cpu")


def outcomes(module, own):
    """Return how many functions took some arguments, those that took none, and the faults."""
    names = [name for place, name in NAMES if place == module and name not in OTHERWISE]
    found = {}
    for name in names:
        faults = (compared(module, name, own, args) for args in PATTERNS)
        found[name] = next((fault for fault in faults if fault is not None), None)
    left = [name for name, fault in found.items() if fault is None]
    return len(names) - len(left), left, [fault for fault in found.values() if fault]


LEAST = {"ndimage": 64, "signal": 28, "special": 42}
# CuPy's functions take none of these arguments.
NOT_BY_CUPY = {"generic_gradient_magnitude", "generic_laplace", "watershed_ift"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", LEAST)
def test_arguments_reach_all_functions(module):
    """On the host, so that the tests on a GPU are known to compare something."""
    count, left, wrong = outcomes(module, host)
    assert (left, wrong) == ([], [])
    assert count >= LEAST[module]


@pytest.mark.gpu
@pytest.mark.cupy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["gpuinterop", "torch"])
@pytest.mark.parametrize("module", LEAST)
def test_cupys_functions_on_a_gpu(module, library):
    pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    makers = {
        "gpuinterop": lambda value: gi.array(value, device="cuda:0"),
        "torch": lambda value: torch.tensor(value, device="cuda:0"),
    }
    count, left, wrong = outcomes(module, makers[library])
    assert wrong == [], "\n".join(wrong)
    if module == "special":
        assert count > LEAST[module] // 2
    else:
        assert {*left} <= NOT_BY_CUPY


@pytest.mark.fake_driver
def test_cupys_functions_on_a_fake_gpu():
    code = """
        import gpuinterop as gi, test_scipy_delegates

        for module, least in test_scipy_delegates.LEAST.items():
            count, left, wrong = test_scipy_delegates.outcomes(module, lambda v: gi.array(v, device="cuda:0"))
            assert (left, wrong) == ([], []), (left, wrong)
            assert count >= least, count
    """
    fake_cupy.run(code, "borrowed")

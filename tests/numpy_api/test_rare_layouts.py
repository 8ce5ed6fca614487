"""Empty arrays and rare layouts: every public function and method ends with an array or an error, as NumPy does."""

import re

import numpy as np
import pytest

import gpuinterop as gi

SHAPES = [(0,), (3, 0), (2, 0, 3)]  # the transposed ones are views
DTYPES = ["float32", "float64", "int16", "bool", "complex64"]
ARGUMENTS = [
    ("x",),
    ("x", "x"),
    ("x", "x", "x"),
    (["x"],),
    (["x", "x"],),
    ("x", "float64"),
    ("x", 0),
]
# The first two return memory with any content; the others act on the process and not on arrays.
LEFT_OUT = {"empty", "empty_like", "empty_cache", "device_info", "capture", "fuse"}
FUNCTIONS = [
    name
    for name in dir(gi)
    if not name.startswith("_")
    and name not in LEFT_OUT
    and callable(getattr(gi, name))
    and not isinstance(getattr(gi, name), type)
]
# Without the names that only raise, which other tests read.
METHODS = [n for n in dir(gi.GpuArray) if not n.startswith("_") and hasattr(gi.GpuArray, n)]


# Of zeros, of which results are exact.
LAYOUTS = {
    "0-d": lambda dtype: np.zeros((), dtype),
    "one element": lambda dtype: np.zeros((1, 1, 1), dtype)[:, ::-1],
    "repeated": lambda dtype: np.broadcast_to(np.zeros((3, 1), dtype), (3, 5)),
    "backwards, with gaps": lambda dtype: np.zeros((7, 9), dtype)[5::-2, 8:0:-3],
    "64 dimensions": lambda dtype: np.zeros((*[1] * 62, 2, 3), dtype)[..., ::-1],
}


def views(host, x):
    yield host, x
    if host.ndim > 1:
        yield host.T, x.T
        yield host[::-1], x[::-1]


def put_in(arguments, x):
    """The arguments with x for every "x"."""
    return [[x] * len(a) if isinstance(a, list) else x if a == "x" else a for a in arguments]


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:  # which one is the subject of other tests
        return error


def require_agreement(ours, numpys):
    if isinstance(ours, (gi.GpuArray, gi.CudaNdarray)) and isinstance(numpys, np.ndarray):
        np.testing.assert_array_equal(ours.get(), numpys)


def numpy_survives(name, host):
    """NumPy 2.1 ends the process where it sorts more than 32 axes."""
    return host.ndim <= 32 or hasattr(np, "matvec") or not re.search("sort|partition", name)


def check_all(whole, made):
    for host, x in views(whole, made):
        for arguments in ARGUMENTS:
            for name in FUNCTIONS:
                ours = outcome(getattr(gi, name), *put_in(arguments, x))
                if hasattr(np, name) and numpy_survives(name, host):
                    require_agreement(ours, outcome(getattr(np, name), *put_in(arguments, host)))
            for name in METHODS:
                method = outcome(getattr, x, name)
                if callable(method):
                    ours = outcome(method, *put_in(arguments[1:], x))
                    known = hasattr(host, name) and name not in ("get", "astype")
                    if known and numpy_survives(name, host):
                        numpys = outcome(getattr(host, name), *put_in(arguments[1:], host))
                        require_agreement(ours, numpys)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("shape", "dtype"), [(s, DTYPES[0]) for s in SHAPES] + [(SHAPES[-1], d) for d in DTYPES[1:]]
)
def test_functions_and_methods_of_empty_arrays(device, shape, dtype):
    whole = np.zeros(shape, dtype)
    check_all(whole, gi.asarray(whole, device=device))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, ("float64", "int16")[i % 2]) for i, name in enumerate(LAYOUTS)]
)
def test_functions_and_methods_of_rare_layouts(name, dtype):
    host = LAYOUTS[name](dtype)
    host.flags.writeable = False  # no function changes it, with x as `out`
    check_all(host, gi.asarray(host, device="cpu", copy=False))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_casts_of_empty_arrays(device, shape):
    for dtype in [*DTYPES, "bfloat16", "float16"]:
        x = gi.empty(shape, dtype, device=device)
        for target in [*DTYPES, "bfloat16", "float16"]:
            for cast in (x.astype(target), x.astype(target, "F"), gi.astype(x, target)):
                assert (cast.shape, cast.dtype.name) == (shape, target)

"""Any call of a function with NumPy's name gives NumPy's dtype, shape and values, or raises where NumPy does."""

import inspect
import itertools

import numpy as np
import pytest
from helpers.layouts import pair, recipes
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

pytestmark = pytest.mark.filterwarnings("ignore")
DTYPES = ["bool", "int8", "uint16", "int64", "float32", "float64", "complex64", "complex128"]
BOOLS = st.booleans()


def among(*values):
    return st.sampled_from(values)


def axes(x):
    """One axis."""
    return st.integers(-x.ndim, x.ndim - 1) if x.ndim else st.just(0)


def optional(x):
    return st.none() | axes(x) if x.ndim else st.none()


def several(x):
    """None, an axis, or some different ones."""
    return optional(x) | st.lists(axes(x), max_size=2, unique_by=lambda i: i % x.ndim).map(tuple)


def of_norm(x):
    return {"ord": among(None, 1, 2, np.inf, -np.inf, "fro"), "axis": several(x), "keepdims": BOOLS}


def transform(x):
    return {"n": among(None, 1, 4, 7), "axis": axes(x), "norm": among(None, "ortho", "forward")}


def transforms(x):
    return {
        "axes": st.none()
        | st.lists(axes(x), min_size=1, max_size=2, unique_by=lambda i: i % max(x.ndim, 1)).map(
            tuple
        )
    }


FEW = st.integers(-3, 3)
# By the function's name, the options of a call for an array.
OF_ONE = {
    **dict.fromkeys(("sort", "argsort"), lambda x: {"axis": optional(x), "kind": st.just("stable")}),
    **dict.fromkeys(("cumsum", "ptp"), lambda x: {"axis": optional(x)}),
    "cumulative_sum": lambda x: {"axis": axes(x), "include_initial": BOOLS},
    "unique": lambda x: {name: BOOLS for name in ("return_index", "return_inverse", "return_counts")},
    "ravel": lambda x: {"order": among(*"CFAK")},
    **dict.fromkeys(
        "transpose real imag nan_to_num unique_all fft.fftshift linalg.matrix_transpose".split(), lambda x: {}
    ),
    **dict.fromkeys(("flip", "count_nonzero", "squeeze"), lambda x: {"axis": several(x)}),
    "rot90": lambda x: {"k": FEW},
    "roll": lambda x: {"shift": st.integers(-9, 9), "axis": optional(x)},
    "diff": lambda x: {"n": among(0, 1, 2), "axis": axes(x), "prepend": st.integers(0, 1)},
    "round": lambda x: {"decimals": among(-1, 0, 2) if x.dtype != "bool" else st.just(0)},
    **dict.fromkeys(
        ("diagonal", "trace"), lambda x: {"offset": FEW, "axis1": axes(x), "axis2": axes(x)}
    ),
    **dict.fromkeys(("tril", "triu", "diag"), lambda x: {"k": FEW}),
    "pad": lambda x: {"pad_width": among(0, 1, (2, 1)), "mode": among("constant", "edge", "reflect", "wrap")},
    "tile": lambda x: {"reps": among(2, (2, 1), (0, 2), ())},
    "repeat": lambda x: {"repeats": among(0, 2, [2]), "axis": optional(x)},
    "moveaxis": lambda x: {"source": axes(x), "destination": axes(x)},
    "expand_dims": lambda x: {"axis": st.integers(-x.ndim - 1, x.ndim)},
    "array_split": lambda x: {"indices_or_sections": among(1, 3, [1, 2], [-1]), "axis": axes(x)},
    # NumPy takes any index of an empty axis where the result is empty too; we refuse it, as subscripts do.
    "take": lambda x: {"indices": among(0, [-1, 0], [[0]]) if x.size else st.just([]), "axis": optional(x)},
    **dict.fromkeys(("fft.fft", "fft.ifft", "fft.rfft", "fft.ihfft", "fft.irfft", "fft.hfft"), transform),
    **dict.fromkeys(("fft.fftn", "fft.ifftn", "fft.rfftn", "fft.irfftn"), transforms),
    "linalg.norm": of_norm,
    "linalg.vector_norm": lambda x: {"ord": among(0, 1, 2, 3), "axis": several(x), "keepdims": BOOLS},
    "linalg.matrix_norm": lambda x: {"ord": among("fro", "nuc", 1, 2, np.inf)},
}  # fmt: skip
# Functions of two arrays that broadcast.
OF_TWO = {
    **dict.fromkeys(
        "isin isclose outer kron vecdot matvec vecmat matmul inner linalg.cross nextafter".split(), lambda x: {}
    ),
    "tensordot": lambda x: {"axes": among(0, 1)},
    "append": lambda x: {"axis": optional(x)},
    "searchsorted": lambda x: {"side": among("left", "right")},
}  # fmt: skip
OF_TWO = {name: options for name, options in OF_TWO.items() if hasattr(np, name.partition(".")[0])}


@st.composite
def shapes(draw):
    return tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4]), min_size=1, max_size=3)))


def of(module, name):
    for part in name.split("."):
        module = getattr(module, part)
    return module


def outcome(function, *args, **options):
    """The result of a call as arrays, or None if it raises."""
    try:
        found = function(*args, **options)
    except (TypeError, ValueError, IndexError):
        return None
    return list(found) if isinstance(found, (tuple, list)) else [found]


def compare(name, args, given, options):
    if "norm" in name and not args[0].size and np.lib.NumpyVersion(np.__version__) < "2.4.0":
        return  # NumPy refused these
    if name in ("fft.irfft", "fft.hfft", "fft.irfftn") and not args[0].size:
        return  # NumPy's result has uninitialized elements
    expected = outcome(of(np, name), *args, **options)
    got = outcome(of(gi, name), *given, **options)
    assert (got is None) == (expected is None), (got, expected)
    for a, b in zip(got or [], expected or [], strict=True):
        found, wanted = np.asarray(a), np.asarray(b)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        single = wanted.dtype in (np.float32, np.complex64)
        size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
        np.testing.assert_allclose(found, wanted, 0, (1e-4 if single else 1e-10) * size)


def drawn(draw, options):
    return {name: draw(strategy) for name, strategy in options.items()}


@pytest.mark.parametrize("name", OF_ONE)
@given(st.data())
@examples(32)
def test_a_call_with_one_array(device, name, data):
    shape = data.draw(shapes())
    recipe, dtype = data.draw(recipes(shape)), data.draw(st.sampled_from(DTYPES))
    _, host, _, x = pair(recipe, dtype, data.draw(st.integers(0, 9)), device)
    host, x = np.broadcast_to(host, shape), x.broadcast_to(shape)
    compare(name, (host,), (x,), drawn(data.draw, OF_ONE[name](host)))
    np.testing.assert_array_equal(x.get(), host)


def call_with_two_arrays(device, name, data):
    shape = data.draw(shapes())
    other = shape[data.draw(st.integers(0, len(shape))) :]
    hosts, arrays = [], []
    for one in (shape, other):
        _, host, _, x = pair(
            data.draw(recipes(one)), data.draw(st.sampled_from(DTYPES)), len(one), device
        )
        hosts.append(np.broadcast_to(host, one))
        arrays.append(x.broadcast_to(one))
    if name == "searchsorted":
        hosts[0] = np.sort(hosts[0], axis=None)
        arrays[0] = gi.GpuArray(hosts[0], device=device)
    compare(name, hosts, arrays, drawn(data.draw, OF_TWO[name](hosts[0])))


@pytest.mark.parametrize("name", [name for name in OF_TWO if name != "nextafter"])
@given(st.data())
@examples(32)
def test_a_call_with_two_arrays(device, name, data):
    call_with_two_arrays(device, name, data)


@given(st.data())
@examples(32)
def test_nextafter_of_two_arrays(data):
    call_with_two_arrays("cpu", "nextafter", data)  # CUDA has it through CuPy alone


@pytest.mark.parametrize("name", ["concatenate", "stack", "vstack", "hstack"])
@given(st.data())
@examples(64)
def test_a_call_with_a_list_of_arrays(device, name, data):
    shape = data.draw(shapes())
    hosts, arrays = [], []
    for i in range(data.draw(st.integers(1, 3))):
        _, host, _, x = pair(
            data.draw(recipes(shape)), data.draw(st.sampled_from(DTYPES)), i, device
        )
        hosts.append(np.broadcast_to(host, shape))
        arrays.append(x.broadcast_to(shape))
    options = {
        "dtype": st.none() | st.sampled_from(DTYPES),
        "casting": among("no", "equiv", "safe", "same_kind", "unsafe"),
    }
    if "axis" in inspect.signature(of(gi, name)).parameters:
        options["axis"] = st.integers(0, len(shape) - 1)
    compare(name, (hosts,), (arrays,), drawn(data.draw, options))


def test_clip_of_all_dtypes():
    hosts = {dtype: np.ones(1, dtype) for dtype in (*DTYPES, "float16", "uint8")}
    arrays = {dtype: gi.GpuArray(host, device="cpu") for dtype, host in hosts.items()}
    for names in itertools.product(hosts, repeat=3):
        found = gi.clip(*(arrays[name] for name in names))
        assert found.dtype == np.clip(*(hosts[name] for name in names)).dtype, names


@given(st.data())
@examples(100)
def test_any_subscripts_of_einsum(device, data):
    lengths = {letter: data.draw(st.integers(0, 3)) for letter in "ijk"}
    words = data.draw(st.lists(st.text("ijk", max_size=3), min_size=1, max_size=3))
    hosts, arrays = [], []
    for i, word in enumerate(words):
        shape = tuple(lengths[letter] for letter in word)
        dtype = data.draw(st.sampled_from([d for d in DTYPES if d != "bool"]))
        _, host, _, x = pair(data.draw(recipes(shape)), dtype, i, device)
        hosts.append(np.broadcast_to(host, shape))
        arrays.append(x.broadcast_to(shape))
    text = ",".join(words)
    letters = sorted({*"".join(words)})
    if data.draw(BOOLS) and letters:
        text += "->" + "".join(data.draw(st.lists(st.sampled_from(letters), unique=True)))
    compare("einsum", (text, *hosts), (text, *arrays), {})

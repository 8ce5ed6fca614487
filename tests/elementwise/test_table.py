"""Every row of the table, on every kind of type, against NumPy in double precision."""

import operator

import numpy as np
import pytest
from doubles.on_fake import FAKE

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.elementwise import calls, host_program
from gpuinterop.elementwise.table import ROWS
from gpuinterop.errors import DTypeError

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
]
DTYPES = (
    "bool",
    "int8",
    "uint16",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
# Units in the last place of the result's type; the float32 functions of the device promise at most 4
# for most, pow, gamma and the like up to 16.
ULPS = {"float16": 2, "float32": 16, "float64": 32, "complex64": 64, "complex128": 256}
FLOATS = [-77.5, -3, -1.5, -1, -0.5, -0.25, -0.0, 0.0, 1e-4, 0.125, 0.5, 0.75, 1, 1.5, 2, 2.5, 7.75, 12,
          np.inf, -np.inf, np.nan]  # fmt: skip


def sample(dtype: str, which: int) -> np.ndarray:
    """All values in a vector; those of both operands occur in all pairs."""
    t = np.dtype(dtype)
    if t.kind == "b":
        values = np.array([False, True])
    elif t.kind in "iu":
        info = np.iinfo(t)
        values = np.array([0, 1, 2, 3, 7, 100, info.max, info.min, info.min + 1, info.max // 2], t)
    elif t.kind == "f":
        values = np.array(FLOATS, t)
    else:
        parts = [-2.5, -0.5, 0.0, 0.25, 1.0, 3.0]
        values = np.array([complex(a, b) for a in parts for b in parts], t)
    n = len(values)
    return np.tile(values, n) if which == 0 else np.repeat(values, n)


def operands(row, dtype: str) -> list[np.ndarray]:
    found = [sample(dtype, 0), sample(dtype, 1), sample(dtype, 1)[::-1].copy()][: row.inputs]
    if row.name in ("power", "left_shift", "right_shift") and np.dtype(dtype).kind == "i":
        found[1] = np.abs(found[1] % 13)
    if row.name == "where":
        found[0] = found[0] == found[0].dtype.type(1)
    return found


def function_of(row):
    """NumPy's function, or the core's own, which tests/elementwise/test_accuracy.py measures, in double precision."""
    own = getattr(gi, row.name)
    return row.numpy or (lambda x: own(gi.GpuArray(x, "float64", device="cpu")).get())


def oracle(row, hosts: list[np.ndarray]) -> list[np.ndarray]:
    """NumPy, in double precision where the operation is a float's, as on "cpu" where NumPy lacks it."""
    with np.errstate(all="ignore"):
        kinds = {h.dtype.kind for h in hosts}
        python = row.name not in ("where", "clip") and not isinstance(row.numpy, np.ufunc)
        if kinds & set("fc") or python:
            wide = np.complex128 if "c" in kinds else np.float64
            hosts = [
                h if h.dtype.kind == "b" and row.name == "where" else h.astype(wide) for h in hosts
            ]
        found = function_of(row)(*hosts)
        if row.name == "reciprocal" and found.dtype.kind in "iu":
            found = np.where(hosts[0] == 0, 0, found)  # NumPy leaves 1 / 0 to the processor
    return list(found) if row.results > 1 else [found]


def check(got: np.ndarray, expected: np.ndarray, name: str) -> None:
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=name)
        return
    with np.errstate(all="ignore"):
        rounded = expected.astype(got.dtype)
        ulps = ULPS[got.dtype.name]
        if got.dtype.kind == "c":
            finite = np.isfinite(expected) & np.isfinite(rounded)
            error = np.abs(got.astype(complex) - expected)[finite]
            assert np.all(
                error <= ulps * np.finfo(got.dtype).eps * np.abs(expected[finite]) + 1e-30
            ), name
            return
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        finite = np.isfinite(got) & np.isfinite(rounded)
        size = np.maximum(np.abs(expected), np.finfo(got.dtype).tiny)
        if name.startswith("logaddexp"):
            size = np.maximum(size, 1)  # a sum that may cancel
        close = finite & (
            np.abs(got.astype(float) - expected) <= ulps * np.finfo(got.dtype).eps * size
        )
        assert np.all(same | close), (name, got[~(same | close)][:5], rounded[~(same | close)][:5])


def quick(index: int, dtype: str) -> bool:
    """On the fake driver each kernel costs a compilation: float32, and two other types in turn."""
    return not FAKE or dtype in ("float32", "int8") or DTYPES.index(dtype) % 4 == index % 4


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows(device, row):
    tried = 0
    for dtype in DTYPES:
        if row.name == "cast" or not quick(ROWS.index(row), dtype):
            continue
        hosts = operands(row, dtype)
        arrays = [gi.GpuArray(h, device=device) for h in hosts]
        try:
            if row.name not in ("where", "clip"):
                function_of(row)(*(h[:1] for h in hosts))
            known = np.dtype(dtype).kind != "c" or row.expressions.get("c") is not None
        except TypeError:
            known = False
        if not known:
            with pytest.raises(DTypeError):
                getattr(gi, row.name)(*arrays)
            continue
        result = getattr(gi, row.name)(*arrays)
        tried += 1
        for got, expected in zip(
            result if row.results > 1 else [result], oracle(row, hosts), strict=True
        ):
            if device == "cpu" and isinstance(row.numpy, np.ufunc):
                assert got.dtype == (row.numpy(*(h[:1] for h in hosts))[0] if row.results > 1
                                     else row.numpy(*(h[:1] for h in hosts))).dtype  # fmt: skip
            check(got.get(), np.asarray(expected), f"{row.name} of {dtype}")
    assert tried or FAKE or row.name == "cast"


CASTS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
         "float32", "float64", "complex64", "complex128")  # fmt: skip


@pytest.mark.parametrize("source", CASTS)
def test_casts_match_numpy(device, source):
    t = np.dtype(source)
    values = [0, 1, 2, 100, 127] if t.kind != "b" else [0, 1]
    if t.kind in "fc":
        values += [-1.5, 0.1, 2.5, -100.75, 65504.0, 1e-7]
    if t.kind == "i":
        values += [-1, -100]
    host = np.resize(np.array(values, t), 1000)
    x = gi.GpuArray(host, device=device)
    for target in CASTS if not FAKE else CASTS[CASTS.index(source) % 3 :: 3]:
        for part in (slice(None), slice(None, None, -3), slice(1, None)):
            given, got = host[part], x[part].astype(target).get()
            if t.kind in "fc" and np.dtype(target).kind == "u":  # others have no value there
                given, got = given[np.real(given) >= 0], got[np.real(given) >= 0]
            expected = given.astype(target)
            np.testing.assert_array_equal(got, expected, f"{source} to {target}", strict=True)


SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4",
         "float8_e4m3", "float8_e4m3b11fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
         "float4_e2m1fn")  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_floats_convert_as_in_ml_dtypes(device, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    small = np.dtype(getattr(ml_dtypes, name))
    bits = np.arange(2 ** (8 * small.itemsize) if small.itemsize == 1 else 65536)
    if name in ("float6_e2m3fn", "float6_e3m2fn"):
        bits = bits[:64]
    if name == "float4_e2m1fn":
        bits = bits[:16]
    every = bits.astype(f"u{small.itemsize}").view(small)
    x = gi.GpuArray(every, device=device)
    np.testing.assert_array_equal(x.astype("float32").get(), every.astype(np.float32))
    if name == "float8_e8m0fnu":
        zeros = gi.GpuArray(np.array([0.0, -0.0, 1.0]), device=device).astype(small)
        np.testing.assert_array_equal(zeros.astype("float32").get(), [np.nan, np.nan, 1])
        return  # ml_dtypes rounds ties of this one differently from release to release
    numbers = every.astype(np.float64)
    numbers = np.unique(numbers[~np.isnan(numbers)])
    between = np.concatenate(
        [numbers, (numbers[1:] + numbers[:-1]) / 2, numbers * 1.01, numbers * 0.99, -0.0 * numbers]
    )
    for dtype in ("float32", "float64"):
        host = between.astype(dtype)
        with np.errstate(all="ignore"):
            expected = host.astype(small).astype(np.float32)
        got = gi.GpuArray(host, device=device).astype(small).astype("float32").get()
        np.testing.assert_array_equal(got, expected)


@pytest.mark.driver
@pytest.mark.parametrize("name", ["float16", "float32", "float64", *SMALL])
def test_integers_are_rounded_once_on_cuda(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    small = np.dtype(getattr(ml_dtypes, name, name))
    digits = ml_dtypes.finfo(small).nmant + 1

    def rounded(number: int) -> int:
        """To `digits` binary digits; ties to even, of a scale, which has one digit, away from zero."""
        shift = max(abs(number).bit_length() - digits, 0)
        kept, rest = divmod(abs(number), 1 << shift)
        up = 2 * rest > 1 << shift or (
            shift and 2 * rest == 1 << shift and (kept % 2 or digits == 1)
        )
        return (kept + bool(up) << shift) * (-1 if number < 0 else 1)

    near = {(m << k) + (1 << k >> 1) + d for k in range(64) for d in (-1, 0, 1)
            for m in (1, (1 << digits) - 1, (1 << digits - 1) | 1, 1 << digits - 1)}  # fmt: skip
    assign = gi.GpuArray(np.zeros(0, small), device="cuda:0")
    ways = {
        "astype": lambda x: x.astype(small),
        "fuse": gi.fuse(lambda x: x.astype(small)),
        "copy": lambda x: assign.__class__(x, dtype=small),
    }
    for dtype in ("int64", "uint64", "int32"):
        bounds = np.iinfo(dtype)
        numbers = sorted(n for n in {*near, *(-n for n in near)} if bounds.min <= n <= bounds.max)
        x = gi.GpuArray(np.array(numbers, dtype), device="cuda:0")
        with np.errstate(all="ignore"):
            expected = np.array([float(rounded(n)) for n in numbers]).astype(small)
        for way, cast in ways.items():
            got = cast(x).get().astype("f8")
            np.testing.assert_array_equal(got, expected.astype("f8"), f"{way} of {dtype}")


# A sequence means something else by + and *, and a 0-d integer would be its repetition.
OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, divmod, operator.and_, operator.lshift, operator.iadd, operator.imul, operator.ipow,
)  # fmt: skip


LISTS = ([1, 2], (True, False), [0.5, 2], [1j, 2], range(1, 3), [[1], [2]])


@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "complex64", "bfloat16"])
@pytest.mark.parametrize("values", LISTS, ids=str)
def test_lists_count_as_their_numbers_do(device, dtype, values):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = gi.GpuArray([1, 2], dtype, device)
    host = np.array(values)
    for compute in (operator.add, operator.mul, operator.eq, gi.maximum):
        for pair in ((x, values), (values, x)):
            found = compute(*pair)
            number = host.ravel()[0].item()  # of the list's kind
            assert found.dtype == compute(x, number).dtype
            wide = np.result_type(host, np.float32)
            read = (host if p is values else p.get().astype(wide) for p in pair)
            numpys = np.maximum if compute is gi.maximum else compute
            np.testing.assert_array_equal(
                found.get().astype(wide), numpys(*read).astype(found.dtype).astype(wide)
            )


def test_lists_beside_a_cudandarray_and_alone_are_float32(device):
    x = gi.CudaNdarray([1.0, 2.0], device=device)
    y = x
    y += [1, 2]
    assert y is x
    assert (type([1, 2] - x), (x == (2, 4)).tolist()) == (gi.CudaNdarray, [True, True])
    with gi.device(device):
        for found in (
            gi.exp([0, 0]),
            gi.sum([[0.5, 0.5]]),
            gi.add([0, 1], [1, 0]),
            gi.stack([[1], x[:1] - 1]),
        ):
            assert (found.dtype, found.device, set(found.ravel().tolist())) == (
                "float32",
                x.device,
                {1.0},
            )
    assert (x @ [1, 2]).item() == 10


def test_lists_that_are_no_operands(device):
    x = gi.CudaNdarray([1.0, 2.0], device=device)
    for values, error in [([1j, 2], gi.DTypeError), (["a"], gi.ConversionTypeError), ([[1], [1, 2]], gi.ShapeError),
                          ([10**40, 1], gi.DTypeError)]:  # fmt: skip
        with pytest.raises(error):
            x + values
    for values in ([x, x], [[x[0]], [np.ones(())]]):
        with pytest.raises(gi.ConversionTypeError, match=r"gpuinterop\.stack"):
            x + values
    with pytest.raises(gi.DTypeError):
        gi.GpuArray([1], "int8", device).__add__([1000])
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32"])
@pytest.mark.parametrize("bounds", [(-300, 300), (-1, 5), (0, 127), (1, 2**40), (-(2**70), 2**70)])
def test_bounds_that_no_element_passes_do_not_cut_in_fused_functions_either(device, dtype, bounds):
    host = np.array([0, 1, 2, 100], dtype)
    x = gi.GpuArray(host, device=device)
    expected = np.clip(host, *bounds) if dtype != "float32" else x.clip(*bounds).get()
    for found in (x.clip(*bounds), gi.fuse(lambda x: x.clip(*bounds))(x)):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.get(), expected)


def test_without_numpys_table_of_loops_the_results_are_the_same(monkeypatch):
    monkeypatch.setattr(host_program, "_loop_index", lambda *_: None)
    _core._forget_calls()
    try:
        for dtype in ("float32", "int64", "complex128"):
            x, y = (
                np.random.default_rng(i).integers(0, 9, (50, 40)).astype(dtype) for i in range(2)
            )
            for name, row in (("add", np.add), ("multiply", np.multiply), ("equal", np.equal)):
                found = getattr(gi, name)(gi.from_any(x), gi.from_any(y)).get()
                np.testing.assert_array_equal(found, row(x, y), strict=True)
        fused = gi.fuse(lambda x, y: gi.sqrt(x * x + y * y))
        x, y = (np.random.default_rng(i).random(10000, "float32") for i in range(2))
        np.testing.assert_allclose(
            fused(gi.from_any(x), gi.from_any(y)).get(), np.sqrt(x * x + y * y), rtol=1e-6
        )
    finally:
        _core._forget_calls()


def test_only_ufuncs_of_numpy_have_loops():
    """And only their loops whose results have a dtype of the core, which holds them in memory without gaps."""
    for name in ("??->?", "dd->d", "gg->g", "OO->O"):
        index = np.add.types.index(name)
        assert _core._has_loop(np.add, index) == (name in ("??->?", "dd->d"))
    for wrong, index in ((np.add, -1), (np.add, 10000), (3, 0), ("add", 0), (np.sum, 0),
                         (type("Ufunc", (), {"nin": 2, "nout": 1}), 0)):  # fmt: skip
        assert not _core._has_loop(wrong, index)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_computes_the_numpy_function_of_its_name(row):
    """The other tests use row.numpy as the reference; this one checks which function it is."""
    ufunc = getattr(np, row.name, None)
    if isinstance(ufunc, np.ufunc):
        assert row.numpy is ufunc
    else:  # a function that NumPy lacks has a function of its own
        assert row.name in ("where", "clip") or row.numpy is None or not hasattr(np, row.name)


@pytest.mark.parametrize("name", calls.HOMES)
def test_each_module_named_for_a_call_defines_it(name):
    calls._fill(name)
    assert callable(calls.CALLS[name])

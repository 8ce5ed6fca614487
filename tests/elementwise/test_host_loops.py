"""Device "cpu" computes in NumPy's inner loops: the results are NumPy's, for every dtype and layout."""

import warnings
from functools import cache, partial
from itertools import product

import numpy as np
import pytest
from helpers.layouts import values, views
from helpers.profile import functions_of
from helpers.threads import in_threads

import gpuinterop as gi

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
          "float32", "float64", "complex64", "complex128"]  # fmt: skip
UFUNCS = [name for name in dir(gi) if isinstance(getattr(np, name, None), np.ufunc)]
NOT_ELEMENTWISE = {"matmul", "vecdot", "matvec", "vecmat", "nextafter"}  # which is borrowed


def on_cpu(host):
    return gi.GpuArray(host, device="cpu")


def shared(host):
    return gi.from_any(host) if host.flags.writeable else gi.asarray(host, device="cpu", copy=False)


def close(found, expected):
    """Equal but for the last places: NumPy's loops for other strides may round otherwise."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    atol = 1e-7
    if expected.dtype.kind == "c":
        atol = 1e-6  # a part near 0 is the difference of terms of the other part's size
        kind = expected.real.dtype
        found, expected = (np.ascontiguousarray(x).view(kind) for x in (found, expected))
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(found.dtype).eps, atol=atol)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", sorted(set(UFUNCS) - NOT_ELEMENTWISE))
def test_every_loop_and_layout(name):
    for dtype in DTYPES:
        check_loop(name, dtype)


def check_loop(name, dtype):
    ufunc, function = getattr(np, name), getattr(gi, name)
    host = [values(dtype, (4, 6, 20), i) for i in range(ufunc.nin)]
    if name.endswith("_shift"):
        host[1] = np.abs(host[1])
    if name in ("power", "pow") and host[0].dtype.kind == "i":
        host[1] = np.abs(host[1])
    with np.errstate(all="ignore"):
        try:
            function(*map(on_cpu, host))
        except gi.DTypeError:
            return
        for given in zip(*map(views, host), strict=True):
            expected = ufunc(*given)
            if name == "reciprocal" and given[0].dtype.kind in "iu":
                expected = np.where(given[0] == 0, 0, expected).astype(expected.dtype)
            found = function(*map(shared, given))
            for one, other in zip(
                *((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True
            ):
                close(one.get(), np.asarray(other))


STEPS = (*range(-9, 10), 16, 17)
# Every rest of a vector of up to 16 elements, with none, two or four of these before it.
LENGTHS = (*range(1, 18), 31, 32, 33, 63, 64, 65, 70)
LONGEST = LENGTHS[-1]
ENDS = np.cumsum([0, *LENGTHS])  # of results of these lengths, one after the other
PREFIXES = np.concatenate([np.arange(n) for n in LENGTHS])
REDUCING = ("add", "multiply", "maximum", "minimum", "fmax", "fmin", "logical_or", "logical_and")
OTHERS = {"clip": np.clip, "where": np.where}


@cache
def lines(dtype, seed):
    """The first elements of views with each step: of NumPy, and as core arrays of each length."""
    host = values(dtype, LONGEST * 17, seed)
    if seed and host.dtype.kind == "i":  # a shift or an exponent
        host = np.abs(host)
    found = {}
    for step in STEPS:
        whole = np.broadcast_to(host[:1], LONGEST) if step == 0 else host[::step][:LONGEST]
        found[step] = whole, [shared(whole)[:n] for n in LENGTHS]
    return found


def same(found, expected):
    if not np.array_equal(found, expected):
        close(found, expected)


@cache
def operands(name, dtype):
    """The dtypes of a function's operands, or None if it does not take this dtype."""
    ufunc = getattr(np, name)
    dtypes = {"where": ["bool", dtype, dtype], "clip": [dtype] * 3}.get(name) or [dtype] * ufunc.nin
    if name == "ldexp":
        dtypes[1] = "int32"
    try:
        getattr(gi, name)(*(on_cpu(np.ones(1, d)) for d in dtypes))
    except gi.DTypeError:
        return None
    return dtypes


def reference(name, host):
    """NumPy's results of contiguous copies, as a tuple."""
    expected = getattr(np, name)(*map(np.ascontiguousarray, host))
    if name == "reciprocal" and host[0].dtype.kind in "iu":
        expected = np.where(host[0] == 0, 0, expected).astype(expected.dtype)
    return expected if isinstance(expected, tuple) else (expected,)


@pytest.mark.parametrize("name", sorted({*UFUNCS, *OTHERS} - NOT_ELEMENTWISE))
def test_every_loop_with_every_step(name):
    """One input has the step, into results without gaps; NumPy has other loops for some steps and lengths."""
    function = getattr(gi, name)
    for dtype in DTYPES:
        with np.errstate(all="ignore"):
            dtypes = operands(name, dtype)
            for which, step in product(range(len(dtypes or ())), STEPS):
                given = [lines(d, i)[step if i == which else 1] for i, d in enumerate(dtypes)]
                expected = reference(name, [whole for whole, _ in given])
                outs = [shared(np.empty(ENDS[-1], e.dtype)) for e in expected]
                for n, inputs in enumerate(zip(*(parts for _, parts in given), strict=True)):
                    out = tuple(o[ENDS[n] : ENDS[n + 1]] for o in outs)
                    function(*inputs, out=out if len(out) > 1 else out[0])
                for out, e in zip(outs, expected, strict=True):
                    same(out.get(), e[PREFIXES])


@pytest.mark.parametrize("name", REDUCING)
def test_every_reducing_loop_with_every_step(name):
    """NumPy's reduce calls the loop as the core does: the accumulator has a step of 0."""
    for dtype, step in product(DTYPES, STEPS):
        reduce = partial(getattr(np, name).reduce, dtype=None if "logical" in name else dtype)
        whole = lines(dtype, 0)[step][0]
        with np.errstate(all="ignore"):
            for n in LENGTHS:
                same(*(np.asarray(reduce(x)) for x in (whole[:n], whole[:n].copy())))


@cache
def numbers(dtype, seed):
    return values(dtype, 8 * 600, seed)


@pytest.mark.parametrize("name", sorted({*UFUNCS, *OTHERS} - NOT_ELEMENTWISE))
def test_every_loop_into_results_with_gaps(name):
    """Also in place. NumPy writes wrong values there with some steps of the inputs."""
    function = getattr(gi, name)
    for dtype, n, gap, step in product(DTYPES, (1, 5, 37, 600), (2, 3, 4, 8, -1, -2), (1, 4, -4)):
        if n == 600 and (gap, step) != (4, 4):  # longer than the buffer of a loop
            continue
        with np.errstate(all="ignore"):
            dtypes = operands(name, dtype)
            if dtypes is None:
                continue
            host = [
                numbers(d, i)[: 8 * n].copy()[::s][:n]
                for i, (d, s) in enumerate(zip(dtypes, (step, gap, 1)[: len(dtypes)], strict=True))
            ]
            if len(host) > 1 and host[1].dtype.kind == "i":
                host[1] = np.abs(host[1])
            expected = reference(name, host)
            canvas = [np.zeros(8 * n, e.dtype) for e in expected]
            out = tuple(shared(c)[::gap][:n] for c in canvas)
            given = [*map(shared, host)]
            function(*given, out=out if len(out) > 1 else out[0])
            for c, e in zip(canvas, expected, strict=True):
                same(c[::gap][:n].copy(), e)
                c[::gap][:n] = 0
                assert not c.any()
            if len(expected) == 1 and expected[0].dtype == host[0].dtype:
                function(*given, out=given[0])
                same(given[0].get(), expected[0])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy.testing, in NumPy 2.1
def test_casts_to_and_from_halves_round_once():
    every = np.arange(1 << 16, dtype="uint16").view("float16")
    with np.errstate(invalid="ignore"):  # NumPy 2.1 warns where signalling NaNs are compared
        for dtype in ("float32", "float64", "complex64", "bool"):
            np.testing.assert_array_equal(on_cpu(every).astype(dtype).get(), every.astype(dtype))
    finite = every[np.isfinite(every)].astype("float64")
    middles = (finite[:-1] + finite[1:]) / 2
    near = [finite, middles, np.nextafter(middles, 1e9), np.nextafter(middles, -1e9)]
    edge = np.array(
        [65519.99999, 65520, 1e300, np.inf, -np.inf, 2**-25, np.nextafter(2**-25, 1), 1e-300]
    )
    with np.errstate(all="ignore"):
        for x in (*near, edge, -edge):
            for dtype in ("float32", "float64"):
                host = x.astype(dtype)
                found, expected = on_cpu(host).astype("float16").get(), host.astype("float16")
                np.testing.assert_array_equal(found.view("u2"), expected.view("u2"))


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 4095, 4096, 4097, 8192, 20000])
def test_fused_functions_of_many_blocks(n):
    host = [values(d, n, i) for i, d in enumerate(("float32", "int16", "float64"))]
    fused = gi.fuse(lambda x, k, z: (gi.tanh(x * k + x), gi.where(x > 0, z, k) / 3, k + 1))
    for step in (1, -1, 2):
        x, k, z = (h[::step] for h in host)
        expected = np.tanh(x * k + x), np.where(x > 0, z, k) / 3, k + 1
        for found, other in zip(fused(*map(shared, (x, k, z))), expected, strict=True):
            close(found.get(), other)


def test_fused_functions_of_short_lines():
    host = [values("float32", (300, 5), i)[:, :3] for i in range(2)]
    found = gi.fuse(lambda x, y: gi.exp(x * y) + y)(*map(shared, host))
    close(found.get(), np.exp(host[0] * host[1]) + host[1])


def test_an_operand_that_the_result_of_a_graph_overlaps_is_copied():
    x = on_cpu(np.arange(20.0))
    graph = gi.capture(lambda a: gi.add(a[:-1], 1, out=a[1:]), x)
    for _ in range(2):
        before = x.get().copy()
        graph()
        np.testing.assert_array_equal(x.get()[1:], before[:-1] + 1)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_powers_of_integers(dtype):
    signed = np.dtype(dtype).kind == "i"
    base = np.arange(-5 if signed else 0, 6).astype(dtype)
    exponents = np.arange(-3 if signed else 0, 12).astype(dtype)
    x, y = np.meshgrid(base, exponents)
    low = y < 0
    power = np.power(x, np.where(low, 0, y).astype(dtype))
    inverse = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    expected = np.where(low, inverse, power).astype(dtype)
    np.testing.assert_array_equal((on_cpu(x) ** on_cpu(y)).get(), expected)
    for exponent in (0, 1, 2, 3):
        for view in (base, base[::-2]):
            np.testing.assert_array_equal(
                (on_cpu(view) ** exponent).get(), view**exponent, strict=True
            )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_squares_are_products(dtype):
    for host in (values(dtype, 100), values(dtype, (10, 10))[::2, ::-3]):
        x = on_cpu(host)
        for exponent in (2, 2.0, gi.GpuArray(2.0, dtype=dtype, device="cpu")):
            close((x**exponent).get(), host * host)
        close((x**3).get(), host**3)
        close(gi.fuse(lambda x: x**2 + 1)(x).get(), host * host + 1)
    same = on_cpu(values(dtype, 50))
    expected = same.get() * same.get()
    same **= 2
    close(same.get(), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "float32", "float64", "complex64"])
def test_limits(dtype):
    host = values(dtype, 1000)
    if host.dtype.kind in "fc":
        host[::7] = np.nan
    low, high = (np.array(v, dtype) for v in (1, 3))
    for view in (host, host[::-3]):
        for bounds in ((low, high), (high, low), (view[::-1] * 0 + low, high), (low, host[0])):
            found = gi.clip(on_cpu(view), *map(on_cpu, bounds)).get()
            np.testing.assert_array_equal(found, np.minimum(np.maximum(view, bounds[0]), bounds[1]))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_logistic_functions_keep_their_digits_everywhere(dtype):
    x = np.concatenate(
        [np.linspace(-800, 800, 40_001), np.linspace(-1, 1, 999), [np.inf, -np.inf, np.nan]]
    )
    x = x.astype(dtype)
    wide = x.astype("longdouble")
    with np.errstate(all="ignore"):
        t = np.exp(-np.abs(wide))
        expected = {
            "sigmoid": np.where(wide < 0, t, 1) / (1 + t), "softplus": np.maximum(wide, 0) + np.log1p(t),
            "rsqrt": 1 / np.sqrt(wide),
        }  # fmt: skip
        for name, exact in expected.items():
            rounded = exact.astype(dtype)
            spacing = np.spacing(np.abs(rounded)).astype("longdouble")
            for view in (slice(None), slice(None, None, -3)):
                found = getattr(gi, name)(shared(x)[view]).get()
                finite = np.isfinite(rounded[view])
                np.testing.assert_array_equal(found[~finite], rounded[view][~finite])
                error = np.abs(found.astype("longdouble") - exact[view]) / spacing[view]
                assert error[finite].max() < 4, name


def test_choices_of_every_size():
    condition = values("bool", (30, 40))
    for dtype in ("bool", "int16", "float32", "float64", "complex128"):
        x, y = (values(dtype, (30, 40), i) for i in range(2))
        for a, b in (
            (x, y),
            (x[:1, :1], y),
            (x, y[0, 0]),
            (x[::-1], y.T.reshape(30, 40)),
            (x[0], y),
        ):
            found = gi.where(on_cpu(condition), on_cpu(a), on_cpu(b)).get()
            np.testing.assert_array_equal(found, np.where(condition, a, b), strict=True)


def test_no_call_warns_or_raises_for_floats():
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for dtype in ("float16", "float32", "float64", "int32", "uint8", "complex64"):
            x = on_cpu(np.zeros(100, dtype))
            for value in (
                x / x,
                x // x if x.dtype.kind != "c" else x,
                gi.log(x),
                x.astype("float16"),
            ):
                assert value.shape == (100,)
        assert on_cpu(np.full(3, 1e300)).astype("float32").get().max() == np.inf
        assert np.add(np.ones(3), 1).sum() == 6  # NumPy sees no flag of the calls before


def test_threads_compute_large_arrays_at_the_same_time():
    x = on_cpu(np.ones(1 << 20, "float32"))
    found = in_threads(lambda factor: float((gi.sqrt(x * factor) + x).max()), [4] * 4)
    assert found == [3.0] * 4


def test_a_replay_runs_no_python_function():
    x, y = (on_cpu(values("float32", (4, 5), i)) for i in range(2))
    graph = gi.capture(lambda a, b: (gi.tanh((a + b) * 2) - a[::-1], a.T.argmax(0)), x, y)
    x *= -1
    replay = graph._recorder.replay
    assert functions_of(lambda: replay()) == []
    close(graph.outputs[0].get(), np.tanh((x.get() + y.get()) * 2) - x.get()[::-1])
    np.testing.assert_array_equal(graph.outputs[1].get(), x.get().argmax(1))


@pytest.mark.parametrize("columns", [255, 257, 4095, 4097, 9000])
def test_reductions_of_many_columns(columns):
    """More results than accumulators, on the stack and in memory of their own."""
    host = values("float32", (2, 5, columns))
    for view in (host, host[..., ::-2], host.transpose(1, 0, 2)):
        for name in ("sum", "max", "mean", "var", "any"):
            expected = getattr(view.astype("float64"), name)(axis=1)
            canvas = np.zeros((*expected.shape[:1], 2 * expected.shape[1]), expected.dtype)
            out = shared(canvas.astype("bool" if name == "any" else "float32"))[:, ::-2]
            getattr(shared(view), name)(axis=1, out=out)
            np.testing.assert_allclose(out.get(), expected, rtol=1e-6, atol=1e-7)

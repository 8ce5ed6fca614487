"""Operations on more than 2^31 and 2^32 elements: every row of both tables, copies, indices, joins and products.

All arrays repeat a short block of prime length. The expected values are NumPy's, of one block; pieces of the result
are compared with them on the host, and the whole result, on the device, with its own first block. On "cpu" the same
tests run on small arrays.
"""

import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from test_table import ROWS, check, operands, oracle

import gpuinterop as gi

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
]
PERIOD = 1009
NORMS = {"norm2": 2, "norm1": 1, "norm_max": np.inf, "norm_min": -np.inf}
TOTALS = ("sum", "prod", "mean", "var", "std", "norm1", "norm2")
NEED_ELEMENTS = ("min", "max", "argmin", "argmax", "norm_min", "norm_max")
REDUCTIONS = (*TOTALS, *NEED_ELEMENTS, "any", "all")


@pytest.fixture(
    scope="module",
    params=["cpu", pytest.param("cuda:0", marks=[pytest.mark.gpu, pytest.mark.slow])],
)
def large(request):
    """The device, and numbers of elements just above 2^31 and 2^32, on the host above 2^12 and 2^13."""
    bits = 31 if request.param != "cpu" else 12
    yield SimpleNamespace(device=request.param, n=2**bits + 3, more=2 ** (bits + 1) + 3)
    kept.cache_clear()
    if request.param != "cpu":
        gi.synchronize(request.param)
        gi.empty_cache(request.param)  # other tests and processes need the memory


def block(dtype: str) -> np.ndarray:
    """Odd integers, so that no product is 0; for floats the same divided by 64; for bool a few that are true."""
    values = np.random.default_rng(0).integers(-63, 63, PERIOD) * 2 + 1
    if dtype == "bool":
        return values > 120
    return (values / 64).astype(dtype) if "float" in dtype else values.astype(dtype)


def repeated(values: np.ndarray, n: int, device: str):
    """`n` elements or rows that repeat `values` along the first axis."""
    whole = n // len(values)
    x = gi.empty((n, *values.shape[1:]), values.dtype, device=device)
    block = gi.asarray(values, device=device)
    x[: whole * len(values)].reshape(whole, *values.shape)[...] = block
    x[whole * len(values) :] = block[: n - whole * len(values)]
    return x


@functools.lru_cache(maxsize=2)
def kept(content: bytes, dtype: str, n: int, device: str):
    """The same for values of a dtype, made once for the tests that only read it."""
    return repeated(np.frombuffer(content, dtype), n, device)


@gi.fuse
def same(x, y):
    return ((x == y) | ((x != x) & (y != y))).all()


def require_repeated(got, expected: np.ndarray, name: str) -> None:
    """`got` repeats `expected` along the first axis."""
    n, period = len(got), len(expected)
    random = np.random.default_rng(n).integers(0, max(n - 40, 1), 5).tolist()
    edges = [2**k - 20 for k in (12, 13, 31, 32) if 2**k + 20 < n]
    begins = [0, *edges, *random, max(n - 40, 0)]
    places = np.concatenate([np.arange(begin, min(begin + 40, n)) for begin in begins])
    pieces = gi.concatenate([got[begin : begin + 40] for begin in begins])
    check(pieces.get(), expected[places % period], name)
    whole, first = n // period, got[:period]
    equal = same(got[whole * period :], first[: n - whole * period])
    if whole:
        equal &= same(got[: whole * period].reshape(whole, *expected.shape), first)
    assert equal.item(), name


# ---- elementwise --------------------------------------------------------------------------------


def smallest_dtype(row) -> str:
    """The smallest dtype for which the row has a kernel."""
    dtypes = {"i": "int8", "b": "bool", "f": "float16"}
    return next(name for kind, name in dtypes.items() if kind in row.expressions)


def laid_out(layout: str, hosts: list[np.ndarray], large) -> tuple[list, list[np.ndarray]]:
    """The operands on the device, and those of which the result is repeated."""
    if layout in ("flat", "longer"):
        n = large.n if layout == "flat" else large.more
        return [kept(h.tobytes(), h.dtype.name, n, large.device) for h in hosts], hosts
    # A column, a row, and a row that is read backwards.
    rows, columns = (-(-large.n // PERIOD), PERIOD) if layout == "broadcast" else (large.n, 2)
    column = kept(hosts[0].tobytes(), hosts[0].dtype.name, rows, large.device)[:, None]
    if len(hosts) == 1:
        shown = np.broadcast_to(hosts[0][:, None], (PERIOD, columns))
        return [column.broadcast_to((rows, columns))], [shown]
    lines = [h[:columns][::step] for h, step in zip(hosts[1:], (1, -1), strict=False)]
    on_device = [gi.asarray(h[:columns], device=large.device) for h in hosts[1:]]
    return [column, on_device[0], *(x[::-1] for x in on_device[1:])], [hosts[0][:, None], *lines]


OPERATIONS = sorted((row for row in ROWS if row.name != "cast"), key=smallest_dtype)


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
@pytest.mark.parametrize("layout", ["flat", "longer", "broadcast", "tall"])
def test_rows(large, layout, row):
    hosts = [np.resize(h, PERIOD) for h in operands(row, smallest_dtype(row))]
    arrays, hosts = laid_out(layout, hosts, large)
    got = getattr(gi, row.name)(*arrays)
    for result, expected in zip(got if row.results > 1 else [got], oracle(row, hosts), strict=True):
        require_repeated(result, np.asarray(expected), f"{row.name}, {layout}")


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64"])
def test_large_dtypes(large, dtype):
    host = block("int8").astype(dtype)
    x = repeated(host, large.n, large.device)
    x += x[::-1][-1]
    require_repeated(x, host + host[0], dtype)


CASTS = [("int8", "float16"), ("float16", "int8"), ("int8", "bool"), ("bool", "uint8"), ("float16", "float32"),
         ("uint8", "int64")]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts(large, source, target):
    host = block(source)
    x = repeated(host, large.more if np.dtype(target).itemsize < 4 else large.n, large.device)
    require_repeated(x.astype(target), host.astype(target), f"{source} to {target}")


def test_fills_and_copies(large):
    host = block("int8")
    x = repeated(host, large.more, large.device)
    y = gi.empty_like(x)
    y[...] = x
    require_repeated(y, host, "copy")
    y[::-1] = x
    require_repeated(y[::-1], host, "reversed copy")
    require_repeated(
        x[1::2].copy(), np.resize(host, 2 * PERIOD)[1::2], "copy of every second element"
    )
    y.fill(5)
    y[::2] = 7
    assert y[-2:].tolist() == y[2**12 - 1 : 2**12 + 1][::-1].tolist()[::-1]
    require_repeated(
        y[: large.more - 1].reshape(-1, 2), np.full((PERIOD, 2), [7, 5], "int8"), "fill"
    )
    side = math.isqrt(large.more) // PERIOD * PERIOD or PERIOD
    square = repeated(host, side * side, large.device).reshape(side, side)
    square[1:] = square[:1]
    require_repeated(square.T.copy(), np.broadcast_to(host[:, None], (PERIOD, side)), "transposed")


# ---- reductions ---------------------------------------------------------------------------------


def reduced(name: str, values: np.ndarray, starts: np.ndarray, step: int, count: int) -> np.ndarray:
    """NumPy's reduction of `count` repeated values at start, start + step, ... in double precision, by multiplicity."""
    full, rest = divmod(count, PERIOD)
    wide = values.astype(np.float64) if values.dtype.kind == "f" else values
    once = wide[(starts[:, None] + step * np.arange(min(count, PERIOD))) % PERIOD]
    if name not in TOTALS:
        if name in NORMS:
            return getattr(np, name[-3:])(abs(once.astype(np.float64)), axis=1)
        return getattr(np, name)(once, axis=1)

    def total(of=lambda x: x):
        part = of(once[:, :rest]).sum(axis=1)
        return part if full == 0 else part + full * of(once).sum(axis=1)

    match name:
        case "sum":
            return total()
        case "prod":
            first = once[:, :rest].prod(axis=1)
            if values.dtype.kind == "f" or full == 0:
                return first if full == 0 else first * once.prod(axis=1) ** full
            powers = [pow(int(p), full, 2**64) for p in once.prod(axis=1)]
            return first * np.array(powers, np.uint64).astype(np.int64)
        case "mean":
            return total() / np.float64(count)
        case "norm1":
            return total(lambda x: abs(x.astype(np.float64)))
        case "norm2":
            return np.sqrt(total(lambda x: x.astype(np.float64) ** 2))
    mean = total() / np.float64(count)
    found = total(lambda x: (x - mean[:, None]) ** 2) / count
    return np.sqrt(found) if name == "std" else found


def reduce(x, name: str, axis: int | None):
    if name in NORMS:
        return gi.norm(x.ravel() if axis is None else x, NORMS[name], axis=axis)
    return getattr(x, name)(axis=axis)


def shapes(large) -> dict[str, tuple[int, ...]]:
    side = math.isqrt(large.n) + 1
    return {
        "flat": (large.n,), "longer": (large.more,), "matrix": (side, side + 1),
        "tall": (large.n, 2), "wide": (2, large.n), "column": (large.n, 1), "row": (1, large.n),
    }  # fmt: skip


REDUCED = [("int8", shape, axis) for shape in ("matrix", "tall", "wide") for axis in (0, 1)]
REDUCED += [
    ("int8", "column", 1),
    ("int8", "row", 0),
    ("int8", "column", 0),
    ("int8", "longer", None),
]
REDUCED += [("float16", *case) for case in (("longer", None), ("matrix", 0), ("matrix", 1))]
REDUCED += [("bool", "flat", None)]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(("dtype", "shape", "axis"), REDUCED)
def test_reductions(large, dtype, shape, axis, name):
    extents = shapes(large)[shape]
    values = block(dtype)
    if dtype == "bool" and name in NORMS:
        values = values.astype("uint8")
    n = math.prod(extents)
    x = kept(values.tobytes(), values.dtype.name, n, large.device).reshape(extents)
    got = reduce(x, name, axis)
    starts = np.arange(PERIOD)
    if axis is None:
        expected = reduced(name, values, starts[:1], 1, math.prod(extents))[0]
        check(got.get(), np.asarray(expected), name)
        return
    step, across = (extents[1], 1) if axis == 0 else (1, extents[1])
    expected = reduced(name, values, starts * across % PERIOD, step % PERIOD, extents[axis])
    require_repeated(got, expected[: len(got)], f"{name}, {shape}, axis {axis}")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_empty_axes(large, name):
    tall, wide = (gi.empty(s, "int8", device=large.device) for s in ((large.n, 0), (0, large.n)))
    for x, along, beside in ((tall, 1, 0), (wide, 0, 1)):
        assert reduce(x, name, beside).shape == (0,)
        if name in NEED_ELEMENTS:
            with pytest.raises(gi.ShapeError):
                reduce(x, name, along)
            continue
        expected = reduced(name, np.zeros(PERIOD, "int8"), np.arange(PERIOD), 1, 0)
        require_repeated(reduce(x, name, along), expected, f"{name} of nothing")


def test_positions_and_values_near_the_end(large):
    x = gi.zeros(large.more, "int8", device=large.device)
    x[-2] = 3
    x[large.n - 1] = -3
    assert x.argmax().item() == large.more - 2
    assert x.argmin().item() == large.n - 1
    assert (x.max().item(), x.min().item(), x.sum().item()) == (3, -3, 0)
    assert x.any().item()
    assert not x[large.n : -2].any().item()
    assert gi.argmax(x.reshape(1, -1), axis=1).tolist() == [large.more - 2]
    assert gi.argmax(x.reshape(-1, 1), axis=0).tolist() == [large.more - 2]
    assert gi.flatnonzero(x).tolist() == [large.n - 1, large.more - 2]


# ---- indices, joins, products -------------------------------------------------------------------


def test_indices_and_masks(large):
    n, host = large.more, block("int8")
    x = repeated(host, n, large.device)
    places = np.unique(
        np.r_[0, large.n - 4, large.n - 3, n - 1, np.random.default_rng(0).integers(0, n, 99)]
    )
    expected = host[places % PERIOD]
    i = gi.asarray(places, device=large.device)
    for got in (x.take(i), x[i], gi.take(x.reshape(-1, 1), i, axis=0)[:, 0], x.take(i - n)):
        np.testing.assert_array_equal(got.get(), expected)
    with pytest.raises(IndexError):
        x[i + 1]
    x.fill(0)
    x[i] = 7
    assert x.sum().item() == 7 * len(places)
    np.testing.assert_array_equal(gi.flatnonzero(x).get(), places)
    np.testing.assert_array_equal(x.reshape(1, -1).nonzero()[1].get(), places)
    gi.add.at(x, gi.concatenate([i, i[:5]]), 1)
    np.testing.assert_array_equal(x[x > 0].get(), np.where(np.arange(len(places)) < 5, 9, 8))
    x[x > 8] = -1
    np.testing.assert_array_equal(gi.flatnonzero(x < 0).get(), places[:5])
    gi.put(x, i, 3)
    assert gi.compress(x == 3, x).sum().item() == 3 * len(places)
    columns = gi.take_along_axis(x.reshape(1, -1), i.reshape(1, -1), axis=1)
    np.testing.assert_array_equal(columns.get(), np.full((1, len(places)), 3))


def test_a_mask_that_selects_more_than_fits_31_bits(large):
    host = block("int8")
    x = repeated(host, large.more, large.device)
    selected = host[host > -60]
    got = x[x > -60]
    assert (
        got.size
        == (large.more // PERIOD) * len(selected) + (host[: large.more % PERIOD] > -60).sum()
    )
    require_repeated(got, selected, "x[mask]")
    del got
    x[x > -60] = 1
    require_repeated(x, np.where(host > -60, 1, host).astype("int8"), "x[mask] = 1")


def test_joins(large):
    host = block("int8")
    whole = large.n // PERIOD * PERIOD
    x = repeated(host, whole, large.device)
    require_repeated(gi.concatenate([x, x]), host, "concatenate")
    pairs = gi.stack([x, x], axis=1)
    require_repeated(pairs, np.stack([host, host], axis=1), "stack")
    require_repeated(gi.split(pairs, 2, axis=1)[1].ravel(), host, "split")
    require_repeated(gi.repeat(x, 2), np.repeat(host, 2), "repeat")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_products_of_one_long_axis(large, dtype):
    """Powers of two, whose sums are exact: in every place 2^-10, but for the last two."""
    n = large.n
    x = gi.full((2, n), 2.0**-10, dtype=dtype, device=large.device)
    v = gi.full((n,), 2.0**-10, dtype=dtype, device=large.device)
    x[1, -1] = 8
    v[-2] = 4
    inner = (n - 1) * 2.0**-20 + 2.0**-8
    expected = np.array([inner, inner + (8 - 2.0**-10) * 2.0**-10])
    for got in (
        x @ v,
        v @ x.T,
        (x @ v[:, None])[:, 0],
        gi.stack([gi.vdot(x[0], v), gi.dot(x[1], v)]),
    ):
        np.testing.assert_allclose(got.get(), expected, 1e-3)
    squares = (n - 1) * 2.0**-20 + np.array([[2.0**-20, 2.0**-7], [2.0**-7, 64]])
    np.testing.assert_allclose((x @ x.T).get(), squares, 1e-3)
    out = x.T @ gi.asarray(np.array([1, 2], dtype), device=large.device)
    assert out.shape == (n,)
    np.testing.assert_allclose(out[-2:].get(), [3 * 2.0**-10, 2.0**-10 + 16], 1e-3)
    del x, out
    outer = v[:, None] @ gi.asarray(np.array([[1, 2]], dtype), device=large.device)
    assert outer.shape == (n, 2)
    np.testing.assert_allclose(outer[-3:].get()[:, 1], [2.0**-9, 8, 2.0**-9], 1e-3)

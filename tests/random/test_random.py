"""Random numbers: those of NumPy's Philox, the same on both devices, and distributed as they should be."""

import pickle
import threading

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.random import Generator, Philox, default_rng

FLOATS = ("float32", "float64")
SIZES = (0, 1, 3, 8, 1003, 70_001, (), (3, 0, 2), (5, 7), (2, 3, 4))


def blocks(counter: int, key: int, count: int, attempt: int = 0) -> np.ndarray:
    """The words of consecutive blocks, by Python's ints as in the paper on Philox."""
    found = []
    for number in range(counter, counter + count):
        a, b, c, d = (number >> 32 * i & 0xFFFFFFFF for i in range(4))
        d, k0, k1 = (d + attempt) & 0xFFFFFFFF, key & 0xFFFFFFFF, key >> 32
        for _ in range(10):
            x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = y >> 32 ^ b ^ k0, y & 0xFFFFFFFF, x >> 32 ^ d ^ k1, x & 0xFFFFFFFF
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        found += [a, b, c, d]
    return np.array(found, "<u4")


def words(rng: Generator, count: int, attempt: int = 0) -> np.ndarray:
    """The next words of a generator."""
    state = rng.bit_generator.state
    return blocks(state["counter"], state["key"], -(-count // 4), attempt)[:count]


def uniform(rng: Generator, count: int, dtype: str) -> np.ndarray:
    """The next uniform numbers of a generator."""
    if dtype == "float32":
        return (words(rng, count) >> 8).astype(dtype) * np.float32(2.0**-24)
    return (words(rng, 2 * count).view("<u8") >> np.uint64(11)) * 2.0**-53


# ---- the sequence -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (2**128 - 1, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (0x0370734413198A2E85A308D3243F6A88, 0x299F31D0A4093822,
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ],
)  # fmt: skip
def test_known_answers(device, counter, key, expected):
    # Of the file kat_vectors of Random123: philox4x32 with 10 rounds.
    rng = default_rng(0, device=device)
    rng.bit_generator.state = {"bit_generator": "Philox4x32", "counter": counter, "key": key}
    found = rng.integers(2**64, size=2, dtype="uint64").get()
    assert found.view("<u4").tolist() == expected
    assert blocks(counter, key, 1).tolist() == expected


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_uniform_numbers_are_the_words(device, dtype, size):
    rng = default_rng(5, device=device)
    expected = uniform(rng, int(np.prod(size)), dtype)
    x = rng.random(size, dtype)
    assert str(x.device) == device
    np.testing.assert_array_equal(x.get().ravel(), expected)
    assert x.shape == (size if isinstance(size, tuple) else (size,))


@pytest.mark.driver
def test_numbers_are_the_same_bits_on_both_devices():
    ours = [default_rng(2, device=d) for d in ("cpu", "cuda")]
    for dtype in FLOATS:
        for n in (1, 100_003):
            for draw in (
                lambda r: r.random(n, dtype),  # noqa: B023
                lambda r: r.standard_normal(n, dtype),  # noqa: B023
                lambda r: r.normal(3, 2.5, n, dtype),  # noqa: B023
                lambda r: r.uniform(-0.1, 0.7, n, dtype),  # noqa: B023
            ):
                host, gpu = (draw(rng).get() for rng in ours)
                kind = f"u{host.itemsize}"
                np.testing.assert_array_equal(host.view(kind), gpu.view(kind))
    host, gpu = (rng.integers(0, 2**63 + 1, 10_001, "uint64").get() for rng in ours)
    np.testing.assert_array_equal(host, gpu)


def test_classes_and_defaults(device):
    rng = default_rng(0, device=device)
    assert isinstance(rng.random(2), gi.CudaNdarray)
    assert isinstance(rng.random(2, "float64"), gi.GpuArray)
    assert rng.random().shape == ()
    assert rng.integers(5).dtype == np.int64
    assert rng.device == gi.device(device)


def test_each_call_begins_with_a_block(device):
    rng = default_rng(5, device=device)
    for n, taken in ((1, 1), (5, 3), (4, 2)):
        before = rng.bit_generator.state["counter"]
        expected = uniform(rng, n, "float64")
        np.testing.assert_array_equal(rng.random(n, "float64").get(), expected)
        assert rng.bit_generator.state["counter"] == before + taken


def test_counters_carry(device):
    rng = default_rng(7, device=device)
    for counter in (2**32 - 3, 2**64 - 3, 2**96 - 3):
        rng.bit_generator.state = {**rng.bit_generator.state, "counter": counter}
        expected = uniform(rng, 40, "float64")
        np.testing.assert_array_equal(rng.random(40, "float64").get(), expected)


# On a GPU at most 17.2 GB.
@pytest.mark.parametrize(
    ("device", "n"),
    [
        ("cpu", 10_001),
        pytest.param("cuda:0", (1 << 31) + 5, marks=[pytest.mark.gpu, pytest.mark.slow]),
    ],
)
def test_more_than_2_to_the_31_numbers(device, n):
    """The last numbers are those of a generator that begins with their blocks."""
    for each, draw in (
        (4, lambda rng, size: rng.random(size)),
        (2, lambda rng, size: rng.standard_normal(size, "float64")),
        (2, lambda rng, size: rng.integers(0, 200, size, "uint8")),
    ):
        rng, later = default_rng(3, device=device), default_rng(3, device=device)
        x = draw(rng, n)
        start = n // each - 20
        later.bit_generator.advance(start)
        assert draw(later, n - start * each).tolist() == x[start * each :].tolist()
        assert rng.bit_generator.state == later.bit_generator.state
        del x
    if device != "cpu":
        gi.empty_cache(device)  # other tests and processes need the memory


def test_seeds():
    for seed in (0, 2**100, [1, 2, 3], np.random.SeedSequence(9)):
        assert Philox(seed).state == Philox(seed).state
    assert len({Philox(seed).state["key"] for seed in (None, None, 0, 1, (0, 1))}) == 5
    rng = default_rng(3)
    assert default_rng(rng) is rng
    assert default_rng(rng.bit_generator).bit_generator is rng.bit_generator


def test_states_are_kept_and_pickled(device):
    rng = default_rng(5, device=device)
    rng.random(1000)
    state, copy = rng.bit_generator.state, pickle.loads(pickle.dumps(rng))
    expected = rng.random(9).tolist()
    assert copy.device == rng.device
    assert copy.random(9).tolist() == expected
    rng.bit_generator.state = state
    assert rng.random(9).tolist() == expected


def test_jumps_and_children():
    bits = Philox(5)
    assert bits.jumped(3).state["counter"] == 3 * 2**64
    assert bits.state["counter"] == 0
    children = default_rng(5, device="cpu").spawn(2)
    keys = [child.bit_generator.state["key"] for child in children]
    assert len({*keys, bits.state["key"]}) == 3
    assert keys == [child.state["key"] for child in Philox(5).spawn(2)]


# ---- the other distributions -----------------------------------------------------------------------


def normal_from_words(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Box and Muller's numbers of words, by functions of more digits than the result has."""
    wide = np.longdouble if dtype == "float64" else np.float64
    if dtype == "float32":
        radius = raw[::2].astype("f").astype(wide) * 2.0**-32 + 2.0**-33
        radius = radius.astype("f").astype(wide)
        turn = (raw[1::2] << np.uint32(2)).view("i4").astype("f").astype(wide) / 2**32
    else:
        raw = raw.view("<u8")
        radius = ((raw[::2] >> np.uint64(11)).astype(wide) + 1) / wide(2**53)
        turn = (raw[1::2] << np.uint64(2)).view("i8").astype(wide) / wide(2) ** 64
    top = 32 if dtype == "float32" else 64
    half = np.array(1 << (top - 3), raw.dtype)
    quadrant = (raw[1::2] + half) >> np.array(top - 2, raw.dtype)
    r, angle = np.sqrt(-2 * np.log(radius)), turn * (np.arctan(wide(1)) * 2)
    sine, cosine = np.sin(angle), np.cos(angle)
    across = np.choose(quadrant.astype(int), [cosine, -sine, -cosine, sine])
    up = np.choose(quadrant.astype(int), [sine, cosine, -sine, -cosine])
    return np.stack([r * across, r * up], -1).ravel()


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_are_within_4_ulp(device, dtype):
    rng = default_rng(11, device=device)
    expected = normal_from_words(words(rng, 40_000), dtype)
    x = rng.standard_normal(expected.size, dtype).get()
    ulp = np.abs(x - expected) / np.spacing(np.abs(x))
    assert ulp.max() <= 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_of_normal_numbers(device, dtype):
    n = 200_000
    x = default_rng(3, device=device).standard_normal(n, dtype).get().astype("float64")
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - expected) < 4 * np.sqrt(variance / n)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Deviations from the mean of chi-square, in standard deviations."""
    value, free = ((counts - expected) ** 2 / expected).sum(), counts.size - 1
    return abs(value - free) / np.sqrt(2 * free)


def test_chi_square_of_uniform_and_normal_numbers(device):
    rng, n = default_rng(4, device=device), 100_000
    counts = np.histogram(rng.random(n).get(), 100, (0, 1))[0]
    assert chi_square(counts, np.full(100, n / 100)) < 4
    # A normal number below x has a probability of (1 + erf(x / sqrt(2))) / 2.
    edges = np.linspace(-3, 3, 61)
    below = np.array([0, *(0.5 + gi.erf(gi.asarray(edges / 2**0.5, device="cpu")).get() / 2), 1])
    counts = np.histogram(rng.standard_normal(n).get(), np.array([-np.inf, *edges, np.inf]))[0]
    assert chi_square(counts, np.diff(below) * n) < 4


def test_uniform_between_bounds(device):
    for dtype, wide in (("float32", "float64"), ("float64", "longdouble")):
        rng = default_rng(1, device=device)
        expected = uniform(rng, 1000, dtype).astype(wide)
        low, scale = (np.dtype(dtype).type(v).astype(wide) for v in (-0.1, 0.7 - -0.1))
        x = rng.uniform(-0.1, 0.7, 1000, dtype).get()
        assert (np.abs(x - (low + scale * expected)) <= 0.51 * np.spacing(np.abs(x))).all()


INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_reach_both_bounds(device, dtype):
    rng = default_rng(0, device=device)
    low, high = (0, 2) if dtype == "bool" else (3, 6)
    x = rng.integers(low, high, 1001, dtype)
    assert x.dtype == dtype
    assert set(x.tolist()) == set(range(low, high))
    least, most = (
        (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    )
    whole = rng.integers(least, most, 5001, dtype, endpoint=True).get()
    assert whole.astype(float).std() > (most - least) * 0.25


@pytest.mark.parametrize("endpoint", [False, True])
def test_the_error_of_integers_has_the_bounds_as_given(endpoint):
    with pytest.raises(gi.BoundsError) as raised:
        default_rng(0, device="cpu").integers(5, 3, endpoint=endpoint)
    assert raised.value.got == "low 5, high 3"


@pytest.mark.parametrize("counter", [2**64 - 300, 2**64 - 40, 2**128 - 8])
def test_blocks_are_counted_in_128_bits(device, counter):
    rng = default_rng(3, device=device)
    state = rng.bit_generator.state
    rng.bit_generator.state = {**state, "counter": counter}
    drawn = rng.integers(2**64, size=600, dtype="uint64").get()
    known = [blocks((counter + i) % 2**128, state["key"], 1) for i in range(300)]
    np.testing.assert_array_equal(drawn, np.concatenate(known).view("<u8"))
    assert rng.bit_generator.state["counter"] == (counter + 300) % 2**128


@pytest.mark.parametrize("count", [1, 1000, 2**32 - 1, 2**32, 2**40])
def test_integers_are_upper_halves_of_products(device, count):
    rng = default_rng(9, device=device)
    drawn = words(rng, 600).view("<u8").tolist()
    assert rng.integers(-5, count - 5, 300).tolist() == [(w * count >> 64) - 5 for w in drawn]


def test_integers_are_unbiased_where_half_of_the_words_are_refused(device):
    count = 2**63 + 1  # the upper halves of the products alone would favour some
    rng = default_rng(8, device=device)
    first, second = (words(rng, 400, attempt).view("<u8").tolist() for attempt in (0, 1))
    x = rng.integers(0, count, 100_000, "uint64").get()
    assert int(x.max()) < count
    sorted_by_size = np.bincount((x // np.uint64(2**60)).astype(int), minlength=9)[:8]
    assert chi_square(sorted_by_size, np.full(8, 100_000 / 8)) < 4

    def taken(word: int) -> bool:
        return word * count % 2**64 >= 2**64 % count

    refused = [i for i in range(200) if not taken(first[i])]
    assert 50 < len(refused) < 150
    for i in range(200):
        if taken(first[i]):
            assert int(x[i]) == first[i] * count >> 64
        elif taken(second[i]):
            assert int(x[i]) == second[i] * count >> 64


def test_chi_square_of_integers(device):
    x = default_rng(6, device=device).integers(0, 37, 100_000, "int8").get()
    assert chi_square(np.bincount(x, minlength=37), np.full(37, 100_000 / 37)) < 4


# ---- orders and choices --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 1000, 5000])
def test_permutations(device, n):
    rng = default_rng(3, device=device)
    order = rng.permutation(n)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order.get()), np.arange(n))
    keys = words(default_rng(3), 2 * n).view("<u8")
    np.testing.assert_array_equal(order.get(), np.argsort(keys, kind="stable"))


def test_permutations_have_equal_probabilities(device):
    rng = default_rng(4, device=device)
    drawn = rng.integers(
        2**64, size=(12_000, 3), dtype="uint64"
    )  # the keys of as many permutations
    orders = np.argsort(drawn.get(), axis=1) @ [9, 3, 1]
    counts = np.unique(orders, return_counts=True)[1]
    assert len(counts) == 6
    assert chi_square(counts, np.full(6, 2000)) < 4


def test_rows_are_permuted_and_shuffled(device):
    x = gi.arange(12, device=device).reshape(4, 3)
    order = default_rng(1, device=device).permutation(4).get()
    columns = default_rng(1, device=device).permutation(3).get()
    rng = default_rng(1, device=device)
    np.testing.assert_array_equal(rng.permutation(x).get(), x.get()[order])
    rng = default_rng(1, device=device)
    np.testing.assert_array_equal(rng.permutation(x, axis=1).get(), x.get()[:, columns])
    before = x.get()
    assert default_rng(1, device=device).shuffle(x) is None
    np.testing.assert_array_equal(x.get(), before[order])


def test_choices(device):
    rng, rows = default_rng(5, device=device), gi.arange(10, device=device) * 2
    assert set(rng.choice(3, 100).tolist()) == {0, 1, 2}
    assert rng.choice(rows).item() in rows.tolist()
    assert rng.choice(rows, (2, 3)).shape == (2, 3)
    assert sorted(rng.choice(10, 10, replace=False).tolist()) == list(range(10))
    with pytest.raises(gi.ShapeError, match="pass replace=True"):
        rng.choice(3, 5, replace=False)
    with pytest.raises(gi.ShapeError, match="choose from one row or more"):
        rng.choice(0)
    p = [0.1, 0.0, 0.6, 0.3]
    counts = np.bincount(rng.choice(4, 20_000, p=p).get(), minlength=4)
    assert counts[1] == 0
    assert chi_square(counts[[0, 2, 3]], np.array([2000, 12_000, 6000])) < 4
    first = [
        rng.choice(4, 3, replace=False, p=gi.asarray(p, "float64", device=device)).tolist()
        for _ in range(50)
    ]
    assert {len(set(chosen)) for chosen in first} == {3}
    assert all(1 not in chosen for chosen in first)


# ---- out, captures, threads --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_out_of_any_layout(device, dtype):
    expected = uniform(default_rng(5), 24, dtype).reshape(6, 4)
    whole = gi.zeros((6, 8), dtype, device=device)
    for out in (
        whole[:, :4],
        whole[:, 1:5],
        gi.zeros((4, 6), dtype, device=device).T,
        gi.zeros((6, 4), dtype, device=device)[::-1],
        gi.zeros(25, dtype, device=device)[1:].reshape(6, 4),
    ):
        assert default_rng(5, device=device).random(out=out) is out
        np.testing.assert_array_equal(out.get(), expected)
    assert whole[:, 5:].get().sum() == 0


def test_a_capture_refuses(device):
    rng, x = default_rng(0, device=device), gi.zeros(4, device=device)
    for call in (
        lambda: rng.random(4),
        lambda: rng.standard_normal(out=x),
        lambda: rng.integers(9),
    ):
        with pytest.raises(gi.CaptureError), gi.device(device), gi.capture():
            call()
    assert rng.random(4).get().tolist() == default_rng(0, device=device).random(4).get().tolist()


def test_threads_draw_different_numbers(device):
    rng, drawn = default_rng(0, device=device), []

    def draw():
        drawn.extend(rng.integers(2**64, size=8, dtype="uint64").get().tolist() for _ in range(50))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [n for part in drawn for n in part]
    expected = words(default_rng(0), 2 * len(numbers)).view("<u8")
    assert sorted(numbers) == sorted(expected.tolist())


# ---- wrong calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r: r.random(3, "int32"), gi.DTypeError),
        (lambda r: r.random(3, "float16"), gi.DTypeError),
        (lambda r: r.random(-1), ValueError),
        (lambda r: r.random(2.5), TypeError),
        (lambda r: r.random(out=np.zeros(3)), gi.ArgumentTypeError),
        (lambda r: r.random(4, out=gi.zeros(3, device=r.device)), gi.ShapeError),
        (lambda r: r.random(dtype="float64", out=gi.zeros(3, device=r.device)), gi.DTypeError),
        (lambda r: r.random(out=gi.zeros(3, "int32", device=r.device)), gi.DTypeError),
        (lambda r: r.random(out=gi.zeros((), device=r.device).broadcast_to(3)), gi.ReadOnlyError),
        (lambda r: r.uniform(0, np.inf), OverflowError),
        (lambda r: r.uniform(0, 1e300, 3), OverflowError),
        (lambda r: r.uniform(-1e308, 1e308, 3, "float64"), gi.RangeError),
        (lambda r: r.uniform([1, 2], 3), gi.ArgumentTypeError),
        (lambda r: r.normal(0, -1, 3), gi.BoundsError),
        (lambda r: r.integers(5, 5), gi.BoundsError),
        (lambda r: r.integers(0), ValueError),
        (lambda r: r.integers(300, dtype="int8"), OverflowError),
        (lambda r: r.integers(2.5), gi.ArgumentTypeError),
        (lambda r: r.integers(5, dtype="float32"), gi.DTypeError),
        (lambda r: r.permutation(-1), ValueError),
        (lambda r: r.permutation(gi.zeros((), device=r.device)), ValueError),
        (lambda r: r.shuffle([1, 2]), gi.ArgumentTypeError),
        (lambda r: r.choice(3, 4, replace=False), ValueError),
        (lambda r: r.choice(0, 1), ValueError),
        (lambda r: r.choice(3, 2, p=[0.5, 0.5]), ValueError),
        (lambda r: r.choice(2, 2, p=[0.5, 0.6]), ValueError),
        (lambda r: r.choice(2, 2, p="half"), TypeError),
        (lambda r: r.choice(2, 2, p=["0.5", "0.5"]), ValueError),
        (lambda r: r.choice(2, 2, p=[0.5j, 0.5]), TypeError),
        (lambda r: r.choice(2, 2, p=[[0.5], [0.25, 0.25]]), ValueError),
        (lambda r: r.choice(2, 2, replace=False, p=[0.0, 1.0]), ValueError),
        (lambda r: r.choice(2, 2, replace=False, p=gi.asarray([0.0, 1.0], device="cpu")), ValueError),
        (lambda r: r.bit_generator.advance(0.5), gi.ArgumentTypeError),
        (lambda r: r.spawn("x"), gi.ArgumentTypeError),
        (lambda r: r.spawn(-1), gi.ShapeError),
        (lambda r: setattr(r.bit_generator, "state", {"bit_generator": "PCG64"}), gi.ArgumentTypeError),
        (lambda r: default_rng(-1), gi.ArgumentTypeError),
        (lambda r: default_rng("seed"), gi.ArgumentTypeError),
        (lambda r: Generator(np.random.Philox(0)), gi.ArgumentTypeError),
    ],
)  # fmt: skip
def test_wrong_calls(device, call, error):
    with pytest.raises(error):
        call(default_rng(0, device=device))


def test_the_error_of_arrays_as_parameters_has_an_expression_of_the_distribution():
    rng, names = default_rng(0, device="cpu"), {"size": (4000, 2)}
    for name, values in (
        ("normal", {"loc": np.float32([0, 10]), "scale": 2}),
        ("uniform", {"low": np.float32([0, 10]), "high": 16}),
    ):
        with pytest.raises(gi.ArgumentTypeError) as refused:
            getattr(rng, name)(*values.values())
        text = refused.value.fix.removeprefix("for an array of them compute ")
        found = eval(text, {"rng": rng, **names, **values}).get()
        expected = getattr(np.random.default_rng(1), name)(*values.values(), names["size"])
        np.testing.assert_allclose(found.mean(0), expected.mean(0), atol=0.4)
        np.testing.assert_allclose(found.std(0), expected.std(0), rtol=0.1)


@pytest.mark.driver
def test_out_on_another_device():
    with pytest.raises(gi.DeviceMismatchError):
        default_rng(0, device="cuda").random(out=gi.zeros(3, device="cpu"))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("gpuinterop.random.rand", "write gpuinterop.random.default_rng(seed).random(shape)"),
        ("gpuinterop.random.normal", "write gpuinterop.random.default_rng(seed).normal(...)"),
        ("gpuinterop.random.seed", "write gpuinterop.random.default_rng(seed)"),
        ("gpuinterop.random.sedd", ""),
        ("rng.randint", "write rng.integers(low, high, shape)"),
        ("rng.poisson", "gpuinterop.asarray(numpy.random.default_rng(seed).poisson(...))"),
    ],
)
def test_the_error_of_a_missing_name_has_the_call(name, call):
    owner, _, last = name.rpartition(".")
    with pytest.raises(gi.MissingNameError, match=f"^{name}: ") as caught:
        getattr(default_rng(0, device="cpu") if owner == "rng" else gi.random, last)
    assert call in caught.value.fix
    assert not hasattr(gi.random, "__wrapped__")

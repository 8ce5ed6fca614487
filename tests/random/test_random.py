"""Random numbers: those of NumPy's Philox, the same on both devices, and distributed as they should be."""

import pickle
import threading

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.random import Generator, Philox, default_rng

FLOATS = ("float32", "float64")
SIZES = (0, 1, 3, 8, 1003, 70_001, (), (3, 0, 2), (5, 7), (2, 3, 4))


def numpys(seed: int = 5) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def words(seed: int, count: int) -> np.ndarray:
    return np.random.Philox(seed).random_raw(count)


# ---- the sequence -----------------------------------------------------------------------------


def test_known_answers():
    # Of Random123's file kat_vectors: philox4x64 with 10 rounds.
    rng = default_rng(0, device="cpu")
    for counter, key, expected in (
        ([0] * 4, [0] * 2, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
        ([2**64 - 1] * 4, [2**64 - 1] * 2,
         [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0]),
    ):  # fmt: skip
        state = rng.bit_generator.state
        state["state"] = {"counter": np.array(counter, np.uint64), "key": np.array(key, np.uint64)}
        rng.bit_generator.state = state
        rng.bit_generator.advance(-1)  # a block has the number after that of the state
        assert rng.integers(2**64, size=4, dtype="uint64").tolist() == expected


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_uniform_numbers_are_numpys(device, dtype, size):
    x = default_rng(5, device=device).random(size, dtype)
    assert str(x.device) == device
    np.testing.assert_array_equal(x.get(), numpys().random(size, dtype))


def test_classes_and_defaults(device):
    rng = default_rng(0, device=device)
    assert isinstance(rng.random(2), gi.CudaNdarray)
    assert isinstance(rng.random(2, "float64"), gi.GpuArray)
    assert rng.random().shape == ()
    assert rng.integers(5).dtype == np.int64
    assert rng.device == gi.device(device)


def test_each_call_begins_with_a_block(device):
    ours, bits = default_rng(5, device=device), np.random.Philox(5)
    for n in (1, 5, 4):
        expected = np.random.Generator(bits).random(n)
        bits.advance(0)  # drops the rest of the block
        np.testing.assert_array_equal(ours.random(n, "float64").get(), expected)


def test_counters_carry(device):
    rng = default_rng(7, device=device)
    other = np.random.Philox(7)
    state = other.state
    state["state"]["counter"][:] = [2**64 - 3, 2**64 - 1, 2**64 - 1, 5]
    other.state = rng.bit_generator.state = state
    np.testing.assert_array_equal(
        rng.random(40, "float64").get(), np.random.Generator(other).random(40)
    )


def test_seeds():
    for seed in (0, 2**100, [1, 2, 3], np.random.SeedSequence(9)):
        key = np.random.Philox(seed).state["state"]["key"]
        np.testing.assert_array_equal(Philox(seed).state["state"]["key"], key)
    assert Philox().state["state"]["key"].tolist() != Philox().state["state"]["key"].tolist()
    rng = default_rng(3)
    assert default_rng(rng) is rng
    assert default_rng(rng.bit_generator).bit_generator is rng.bit_generator


def test_states_go_to_numpy_and_back():
    rng = default_rng(5, device="cpu")
    rng.random(1000)
    other = np.random.Philox(0)
    other.state = rng.bit_generator.state
    np.testing.assert_array_equal(
        rng.random(9, "float64").get(), np.random.Generator(other).random(9)
    )
    rng.bit_generator.state = other.state
    copy = pickle.loads(pickle.dumps(rng.bit_generator))
    assert copy.state["state"]["counter"][0] == rng.bit_generator.state["state"]["counter"][0]


def test_jumps_and_children():
    bits, other = Philox(5), np.random.Philox(5)
    np.testing.assert_array_equal(
        bits.jumped(3).state["state"]["counter"], other.jumped(3).state["state"]["counter"]
    )
    children = default_rng(5, device="cpu").spawn(2)
    for child, expected in zip(children, numpys().spawn(2), strict=True):
        np.testing.assert_array_equal(child.random(5, "float64").get(), expected.random(5))


# ---- the other distributions -----------------------------------------------------------------------


def normal_from_words(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Box and Muller's numbers of NumPy's words, by functions of more digits than the result has."""
    wide = np.longdouble if dtype == "float64" else np.float64
    if dtype == "float32":
        raw = raw.astype("<u8").view("<u4")
        radius = (raw[::2] >> 16).astype("f") * np.float32(65536)
        radius = (radius + ((raw[::2] & 0xFFFF).astype("f") + np.float32(0.5))).astype(wide) / 2**32
        turn = (raw[1::2] << np.uint32(2)).view("i4").astype("f").astype(wide) / 2**32
    else:
        radius = ((raw[::2] >> 11).astype(wide) + 1) / wide(2**53)
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
    raw = words(11, 40_000)
    expected = normal_from_words(raw, dtype)
    x = default_rng(11, device=device).standard_normal(expected.size, dtype).get()
    ulp = np.abs(x - expected) / np.spacing(np.abs(x))
    assert ulp.max() <= 4


@pytest.mark.driver
@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_are_the_same_bits_on_both_devices(dtype):
    ours = [default_rng(2, device=d) for d in ("cpu", "cuda")]
    for n in (1, 100_003):
        host, gpu = (rng.normal(3, 2.5, n, dtype).get() for rng in ours)
        np.testing.assert_array_equal(host.view(f"u{host.itemsize}"), gpu.view(f"u{host.itemsize}"))


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
    x = default_rng(1, device=device).uniform(-2, 3, 1000, "float64").get()
    np.testing.assert_array_equal(x, -2 + 5 * numpys(1).random(1000))
    with np.errstate(all="ignore"):
        single = default_rng(1, device=device).uniform(0.1, 0.7, 1000).get()
    scale = np.float32(0.7 - 0.1)
    np.testing.assert_array_equal(
        single, np.float32(0.1) + scale * numpys(1).random(1000, dtype="f")
    )


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


def test_integers_are_unbiased_where_half_of_the_words_are_refused(device):
    count = 2**63 + 1  # an upper half of the product alone would favour the odd ones
    x = default_rng(8, device=device).integers(0, count, 100_000, "uint64").get()
    assert int(x.max()) < count
    assert chi_square(np.bincount((x // np.uint64(2**60)).astype(int), minlength=9)[:8],
                      np.full(8, 100_000 / 8)) < 4  # fmt: skip
    # Where the word was refused, the next attempt has the counter's last word plus one.
    raw = words(8, 100_000)
    refused = [i for i in range(200) if int(raw[i]) * count % 2**64 < 2**64 % count]
    bits = np.random.Philox(8)
    state = bits.state
    state["state"]["counter"][3] = 1
    bits.state = state
    second = bits.random_raw(200)
    kept = [i for i in range(200) if i not in refused]
    assert refused
    assert [int(x[i]) for i in kept] == [int(raw[i]) * count >> 64 for i in kept]
    once = [i for i in refused if int(second[i]) * count % 2**64 >= 2**64 % count]
    assert [int(x[i]) for i in once] == [int(second[i]) * count >> 64 for i in once]


def test_chi_square_of_integers(device):
    x = default_rng(6, device=device).integers(0, 37, 100_000, "int8").get()
    assert chi_square(np.bincount(x, minlength=37), np.full(37, 100_000 / 37)) < 4


# ---- out, captures, threads --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_out_of_any_layout(device, dtype):
    expected = numpys().random((6, 4), dtype)
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
    assert sorted(numbers) == sorted(words(0, len(numbers)).tolist())


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
        (lambda r: r.uniform([1, 2], 3), gi.ArgumentTypeError),
        (lambda r: r.normal(0, -1, 3), ValueError),
        (lambda r: r.integers(5, 5), ValueError),
        (lambda r: r.integers(0), ValueError),
        (lambda r: r.integers(300, dtype="int8"), OverflowError),
        (lambda r: r.integers(2.5), gi.ArgumentTypeError),
        (lambda r: r.integers(5, dtype="float32"), gi.DTypeError),
        (lambda r: r.bit_generator.advance(0.5), gi.ArgumentTypeError),
        (lambda r: setattr(r.bit_generator, "state", {"bit_generator": "PCG64"}), gi.ArgumentTypeError),
        (lambda r: default_rng(-1), gi.ArgumentTypeError),
        (lambda r: default_rng("seed"), gi.ArgumentTypeError),
        (lambda r: Generator(np.random.Philox(0)), gi.ArgumentTypeError),
    ],
)  # fmt: skip
def test_wrong_calls(device, call, error):
    with pytest.raises(error):
        call(default_rng(0, device=device))


@pytest.mark.driver
def test_out_on_another_device():
    with pytest.raises(gi.DeviceMismatchError):
        default_rng(0, device="cuda").random(out=gi.zeros(3, device="cpu"))

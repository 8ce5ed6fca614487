"""Fused functions equal the same functions without fuse: class, dtype and bits, or the error."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from doubles.on_fake import FAKE
from programs import program, random_steps

import gpuinterop as gi

# Sums of these are exact in any order.
MATRIX = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 4


def outcome(function, *arguments):
    try:
        found = function(*arguments)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error), error.reason
    return type(found), found.dtype, found.get().tobytes()


def same_graph(device, seed, dtype):
    staged = seed % 2 == 1
    values = np.random.default_rng(seed).uniform(-3, 3, (2, 5, 37)).astype(dtype)
    x = gi.GpuArray(values[0], device=device)
    if seed % 4 > 1:
        x = x.T.copy().T
    y = gi.GpuArray(values[1, :1] if staged else values[1], device=device)
    function = program(random_steps(seed, 8, staged=staged), dtype)
    for fused, single in zip(gi.fuse(function)(x, y), function(x, y), strict=True):
        # NaNs may differ in payload only, which neither side promises
        assert (fused.dtype, fused.shape) == (single.dtype, single.shape)
        np.testing.assert_array_equal(fused.get(), single.get())


@pytest.mark.parametrize("seed", range(8 if FAKE else 60))
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_random_graphs(device, seed, dtype):
    same_graph(device, seed, dtype)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000))
def test_thousands_of_graphs_on_the_gpu(seed):
    same_graph("cuda:0", seed, ("float32", "float16", "float64")[seed % 3])


# Of a float32 CudaNdarray the result without fuse may be a GpuArray or an error.
FUNCTIONS = {
    "float64": lambda x: x * np.float64(0.1), "int64": lambda x: x * np.int64(2),
    "remainder": lambda x: x % np.float64(0.3), "first": lambda x: np.float64(0.1) - x,
    "compared": lambda x: x > np.float64(0.1), "bools": lambda x: (x > 1) * np.float32(0.3),
    "0-d": lambda x: x + np.array(0.1), "where": lambda x: gi.where(x > 1, x, np.float64(0.1)),
    "cast down": lambda x: (x > 1).astype("float32"), "twice": lambda x: x.astype("f8").astype("f4"),
    "cast and on": lambda x: (x > 1).astype("float32") + x, "same": lambda x: x.astype("f4") + 1,
    "int64 beside": lambda x: x + (x > 1).astype("int64"), "complex": lambda x: x * 1j,
    "float64 beside": lambda x: x + x.astype("float64"), "apart": lambda x: x.astype("f8") * 3,
    "sum": lambda x: x * x.sum().astype("f8"), "sum of bools": lambda x: (x > 1).astype("f4").sum(),
    "of a sum": lambda x: x.sum(axis=0) * np.float64(0.1), "counted": lambda x: (x > 1).sum() * 2,
    "dtype=": lambda x: np.add(x, x, dtype="float64"), "dtype= of gi": lambda x: gi.add(x, x, dtype="float64"),
    "dtype of a float": lambda x: np.exp(x, dtype="float32"),
    "casting": lambda x: np.multiply(x, x, casting="same_kind"),
    "dtype of bools": lambda x: np.less(x, 3, dtype=bool), "round": lambda x: (x * 0.26).round(1),
    "tens": lambda x: x.round(-1), "conj": lambda x: x.conj() * 2, "log of rounded": lambda x: np.log(x.round(1)),
    "astype": lambda x: gi.astype(x * 2, "complex128", copy=False), "add.reduce": lambda x: np.add.reduce(x),
    "all axes": lambda x: np.add.reduce(x * x, axis=None), "logical_and": lambda x: np.logical_and.reduce(x > 1),
    "maximum": lambda x: np.maximum.reduce(x, axis=1, keepdims=True),
    "result_type": lambda x: x.astype(np.result_type(x * 1, 1.5)), "larger": lambda x: x * 1e300,
    "integers beyond": lambda x: x + 10**40, "complex beyond": lambda x: x * -1e300 * 1j,
    "where of NumPy": lambda x: np.where(x > 2, np.clip(x, 1, 4), 0.5), "mean": lambda x: np.mean(x, axis=0),
    "ndim": lambda x: np.ndim(x) + np.max(x), "no such axis": lambda x: x.max(axis=5),
    "a negative power": lambda x: x.astype("int16") ** -1, "-0.0": lambda x: gi.copysign(x, -0.0),
    "300": lambda x: x.astype("int8") + 300, "-129": lambda x: gi.maximum(-129, x.astype("int8")),
    "126": lambda x: x.astype("int8") + 100, "10**400": lambda x: x + 10**400,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_results_are_those_without_fuse(device, name):
    function = FUNCTIONS[name]
    fused = gi.fuse(function)
    for dtype in ("CudaNdarray", "float32", "int32", "CudaNdarray"):
        x = gi.GpuArray(MATRIX.astype(dtype), device=device) if dtype != "CudaNdarray" else (
            gi.CudaNdarray(MATRIX, device=device))  # fmt: skip
        assert outcome(fused, x) == outcome(function, x), dtype
    if name in ("round", "conj", "astype"):
        assert gi.capture(fused, x).nodes == 1


@pytest.mark.parametrize(
    "number", [np.float64(0.1), np.float32(0.3), np.int64(2**60), np.True_, np.array(0.3, "f4")]
)
def test_scalars_of_numpy_among_the_arguments(number):
    for function in (lambda x, n: x % n, lambda x, n: (x > 1) * n, lambda x, n: n * x):
        for cls in (gi.CudaNdarray, gi.GpuArray):
            x = cls(MATRIX, device="cpu")
            assert outcome(gi.fuse(function), x, number) == outcome(function, x, number)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("int8", 300), ("uint64", -1), ("uint8", 2**63), ("int64", 2**63), ("uint64", 2**64), ("bool", 2**63)],
)  # fmt: skip
def test_the_named_cast_takes_the_integer(device, dtype, number):
    x = gi.GpuArray(np.ones(2, dtype), device=device)
    for call in (lambda a: a + number, gi.fuse(lambda a: a + number)):
        for given in (x, x[:0]):
            with pytest.raises(gi.RangeError) as error:
                call(given)
        cast = re.search(r"x\.astype\('(\w+)'\)", error.value.fix)[1]
        assert call(x.astype(cast)).tolist() == pytest.approx([1 + number] * 2)


COMPARISONS = (
    lambda a, n: a < n, lambda a, n: a <= n, lambda a, n: a > n, lambda a, n: a >= n,
    lambda a, n: a == n, lambda a, n: a != n, lambda a, n: n < a, lambda a, n: gi.less_equal(n, a),
)  # fmt: skip
BEYOND = (
    (300, -1, 2**64) if FAKE else (300, -1, -129, 2**63, 2**64, -(2**63) - 1, 10**30, -(10**30))
)
INTEGERS = ("int8", "uint64") if FAKE else ("int8", "uint8", "int64", "uint64", "bool")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_comparisons_with_integers_that_the_type_cannot_hold(device, dtype):
    # Those that the type holds are there as well: nothing may change for them.
    held = np.array([0, 1], bool) if dtype == "bool" else np.array(
        [np.iinfo(dtype).min, 0, np.iinfo(dtype).max], dtype)  # fmt: skip
    x = gi.GpuArray(held, device=device)
    for number in BEYOND:

        def all_of_them(a, n=number):
            return tuple(compare(a, n) for compare in COMPARISONS)

        expected = [[bool(compare(int(v), number)) for v in held] for compare in
                    (*COMPARISONS[:-1], lambda a, n: n <= a)]  # fmt: skip
        assert [r.tolist() for r in gi.fuse(all_of_them)(x)] == expected
        if not FAKE:
            assert [r.tolist() for r in all_of_them(x)] == expected


class Pair(NamedTuple):
    both: object
    less: object


def test_results_have_the_container_that_the_function_returns(device):
    x = gi.GpuArray(np.full(2, 3, np.float32), device=device)
    made = gi.fuse(lambda a: Pair(a + 1, a - 1))(x)
    assert isinstance(made, Pair)
    assert (made.both.tolist(), made.less.tolist()) == ([4, 4], [2, 2])
    for _ in range(3):
        assert [v.tolist() for v in gi.fuse(lambda a: [a, a + 1])(x)] == [[3, 3], [4, 4]]
        assert isinstance(gi.fuse(lambda a: [a])(x), list)
        assert isinstance(gi.fuse(lambda a: (a,))(x), tuple)


def test_closure_arrays_are_read_by_each_call(device):
    x, w = gi.ones(3, device=device), gi.ones((3, 3), device=device)
    row = gi.ones((2, 3), device=device)[0]  # nothing else holds what it is a view of
    held = {"w": w}
    for function in (
        lambda x: x + held["w"], lambda x: x + w[0], lambda x: x + w.T[::-1], lambda x: x + w * x,
        lambda x: x + gi.asarray(w), lambda x: x.astype(np.result_type(w, x)), lambda x: (x + w[1:]).sum(axis=0),
    ):  # fmt: skip
        fused = gi.fuse(function)
        for number in (1, 5):
            w.fill(number)
            assert fused(x).tolist() == function(x).tolist()
    assert gi.fuse(lambda x: x + row)(x).tolist() == [2, 2, 2]
    scaled = gi.fuse(
        lambda x, n: x + n * row + (n < row)
    )  # a number meets an array from outside first
    assert scaled(x, 0.5).tolist() == [2.5, 2.5, 2.5]


def test_values_without_dimensions_are_reduced_as_without_fuse():
    x, row = gi.asarray(3.0, device="cpu"), gi.ones(3, device="cpu")
    for axis in (0, -1, (0,)):
        assert gi.fuse(lambda a, n=axis: a + a.max(n).ndim)(x).tolist() == 3 + x.max(axis).ndim
        shapes = gi.fuse(lambda a, n=axis: a + len(a.sum(0).sum(n, keepdims=True).shape))
        assert shapes(row).tolist() == [1] * 3
    for axis in (1, (0, 0)):
        with pytest.raises(gi.ShapeError):
            gi.fuse(lambda a, n=axis: a + a.max(n).ndim)(x)

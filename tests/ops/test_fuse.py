"""Fused functions equal their parts, bit for bit."""

from __future__ import annotations

import math
import operator
from typing import NamedTuple

import numpy as np
import pytest
from doubles.on_fake import FAKE
from programs import program, random_steps

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError


def same(a, b) -> bool:
    return a.dtype == b.dtype and a.get().tobytes() == b.get().tobytes()


def same_graph(device, seed, dtype, *, staged):
    values = np.random.default_rng(seed).uniform(-3, 3, (2, 5, 37)).astype(dtype)
    x = gi.GpuArray(values[0], device=device)
    y = gi.GpuArray(values[1, :1] if staged else values[1], device=device)
    function = program(random_steps(seed, 8, staged=staged), dtype)
    for fused, single in zip(gi.fuse(function)(x, y), function(x, y), strict=True):
        # NaNs may differ in payload only, which neither side promises
        assert (fused.dtype, fused.shape) == (single.dtype, single.shape)
        np.testing.assert_array_equal(fused.get(), single.get())


@pytest.mark.parametrize("seed", range(8 if FAKE else 60))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_random_graphs(device, seed, dtype):
    same_graph(device, seed, dtype, staged=False)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000))
def test_a_thousand_graphs_on_the_gpu(seed):
    same_graph("cuda:0", seed, "float32", staged=False)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000))
def test_a_thousand_staged_graphs_on_the_gpu(seed):
    same_graph("cuda:0", seed, ("float32", "float16", "float64")[seed % 3], staged=True)


def test_numbers_captured_arrays_and_casts(device):
    host = np.linspace(0, 1, 11, dtype=np.float32)
    x = gi.CudaNdarray(host, device=device)
    weights = gi.CudaNdarray(host[::-1].copy(), device=device)

    @gi.fuse
    def f(x, scale, mode="up"):
        y = np.exp(x) * scale + weights
        return y.astype("float64") if mode == "up" else [y]

    assert same(f(x, 2), (gi.exp(x) * 2 + weights).astype("float64"))
    assert isinstance(f(x, 2, "same"), list)
    assert same(f(x, 2, mode="same")[0], gi.exp(x) * 2 + weights)


def test_what_cannot_be_fused(device):
    x = gi.CudaNdarray(np.ones(3, np.float32), device=device)
    with pytest.raises(TypeError, match=r"gpuinterop\.where"):
        gi.fuse(lambda x: x if x > 0 else -x)(x)
    with pytest.raises(TypeError, match=r"x\.reshape"):
        gi.fuse(lambda x: x.reshape(3, 1))(x)
    with pytest.raises(TypeError, match="returns arrays"):
        gi.fuse(lambda x: 3)(x)
    with pytest.raises(ValueError, match="broadcast"):
        gi.fuse(lambda x, y: x + y)(x, gi.CudaNdarray(np.ones(2, np.float32), device=device))


def test_what_is_not_a_function_and_wrong_arguments(device):
    x = gi.CudaNdarray(np.ones(3, np.float32), device=device)
    for thing in (3, None, "x + y", x):
        with pytest.raises(TypeError, match="fuse: expected a Python function"):
            gi.fuse(thing)
    add = gi.fuse(lambda x, y: x + y)
    for call in (
        lambda: add(x), lambda: add(), lambda: add(x, x, x), lambda: add(x, z=x),
        lambda: add(x, x, where=x), lambda: add(x, [1.0]), lambda: add(x, object()),
        lambda: add(x, {}), lambda: add(x, x, out=3), lambda: add(1, 2),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="expected"):
            call()
    with pytest.raises(TypeError, match="one array"):
        gi.fuse(lambda: 1)()
    assert same(add(x, y=x), x + x)


def test_arguments_without_a_position(device):
    x, y = (gi.GpuArray(np.arange(1, 4, dtype=np.float32) * n, device=device) for n in (1, 10))

    @gi.fuse
    def scaled(a, *, by=2.0, plus=None, **more):
        value = a * by if plus is None else a * by + plus
        return value - more["less"] if more else value

    assert scaled(x).tolist() == [2, 4, 6]
    assert scaled(x, by=3.0).tolist() == [3, 6, 9]
    assert scaled(x, plus=y).tolist() == [12, 24, 36]
    assert scaled(x, by=x, plus=y).tolist() == [11, 24, 39]
    assert scaled(x, plus=y, less=1.0).tolist() == [11, 23, 35]


def test_named_tuples_come_back(device):
    class Pair(NamedTuple):
        both: object
        less: object

    x = gi.GpuArray(np.full(2, 3, np.float32), device=device)
    made = gi.fuse(lambda a: Pair(a + 1, a - 1))(x)
    assert isinstance(made, Pair)
    assert (made.both.tolist(), made.less.tolist()) == ([4, 4], [2, 2])


@pytest.mark.parametrize(
    ("dtype", "number", "wider"),
    [("int8", 300, "int64"), ("uint64", -1, "int64"), ("uint8", 2**63, "float64"),
     ("int64", 2**63, "float64"), ("uint64", 2**64, "float64"), ("uint8", -(2**63) - 1, "float64"),
     ("bool", 2**63, "float64")],
)  # fmt: skip
def test_the_named_cast_takes_the_integer(device, dtype, number, wider):
    x = gi.GpuArray(np.ones(2, dtype), device=device)
    for call in (lambda a: a + number, gi.fuse(lambda a: a + number)):
        with pytest.raises(gi.RangeError) as error:
            call(x)
        assert f"x.astype('{wider}')" in error.value.fix
        assert call(x.astype(wider)).tolist() == pytest.approx([1 + number] * 2)


COMPARISONS = (
    lambda a, n: a < n, lambda a, n: a <= n, lambda a, n: a > n, lambda a, n: a >= n,
    lambda a, n: a == n, lambda a, n: a != n, lambda a, n: n < a, lambda a, n: gi.less_equal(n, a),
)  # fmt: skip


# On the fake driver a compilation by g++ for each number.
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


def test_integers_to_negative_powers_are_refused_as_without_fuse(device):
    x = gi.GpuArray(np.arange(1, 4, dtype=np.int16), device=device)
    for exponent in (-1, np.int16(-2), np.array(-2, np.int16)):
        for call in (lambda a, n=exponent: a**n, gi.fuse(lambda a, n=exponent: a**n)):
            with pytest.raises(ValueError, match="exponent of 0 or more"):
                call(x)
    assert gi.fuse(lambda a: (a**0, 2**a, a**-1.0))(x)[1].tolist() == [2, 4, 8]


def test_numbers_beyond_a_float_warn_of_nothing(device):
    x = gi.GpuArray(np.ones(2, np.float32), device=device)
    for function in (lambda a: a * 1e300, lambda a: a + 10**40, lambda a: a * -1e300 * 1j):
        expected = function(x).get()
        np.testing.assert_array_equal(gi.fuse(function)(x).get(), expected)
    out = gi.GpuArray(np.ones(2, np.float16), device=device)
    assert gi.fuse(lambda a: a * 1e30)(x, out=out).tolist() == [np.inf] * 2


READS = {
    "item": lambda x: x.item(), "tolist": lambda x: x.tolist(), "get": lambda x: x.get(),
    "float": float, "int": int, "complex": complex, "index": range, "bool": bool, "list": list,
    "in": lambda x: 1 in x, "asarray": np.asarray, "format": lambda x: f"{x:.3f}", "round": round,
    "getitem": lambda x: x[0], "sqrt": math.sqrt,
}  # fmt: skip


@pytest.mark.parametrize("read", READS)
def test_values_cannot_be_read_while_a_function_is_fused(read):
    x = gi.GpuArray(np.ones(1, np.float32), device="cpu")
    with pytest.raises(ArgumentTypeError, match="fuse: expected a function") as error:
        gi.fuse(lambda a: READS[read](a))(x)
    assert "outside" in error.value.fix or "where" in error.value.fix


def test_elements_cannot_be_set_while_a_function_is_fused():
    def function(x):
        x[0] = 1
        return x

    with pytest.raises(ArgumentTypeError, match="an assignment to x"):
        gi.fuse(function)(gi.GpuArray(np.ones(1, np.float32), device="cpu"))


IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
            "rshift", "matmul")  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_in_place_are_refused_while_a_function_is_fused(name):
    change = getattr(operator, f"i{name}", None) or getattr(operator, f"i{name}_")
    x = gi.GpuArray(np.ones(2, np.int32), device="cpu")
    for other in (2, None):
        with pytest.raises(ArgumentTypeError, match="works in place") as error:
            gi.fuse(lambda a, b=other: change(a + 0, a if b is None else b))(x)
    assert "out=x" in error.value.fix
    assert x.tolist() == [1, 1]


# Of a float32 CudaNdarray; what is made of it without fuse may be a GpuArray or an error.
BESIDE = {
    "float64": lambda x: x * np.float64(0.1), "int64": lambda x: x * np.int64(2),
    "remainder": lambda x: x % np.float64(0.3), "first": lambda x: np.float64(0.1) - x,
    "compared": lambda x: x > np.float64(0.1), "truths": lambda x: (x > 1) * np.float32(0.3),
    "0-d": lambda x: x + np.array(0.1), "where": lambda x: gi.where(x > 1, x, np.float64(0.1)),
    "cast down": lambda x: (x > 1).astype("float32"), "twice": lambda x: x.astype("f8").astype("f4"),
    "cast and on": lambda x: (x > 1).astype("float32") + x, "same": lambda x: x.astype("f4") + 1,
    "int64 beside": lambda x: x + (x > 1).astype("int64"), "complex": lambda x: x * 1j,
    "float64 beside": lambda x: x + x.astype("float64"), "apart": lambda x: x.astype("f8") * 3,
    "sum": lambda x: x * x.sum().astype("f8"), "sum of truths": lambda x: (x > 1).astype("f4").sum(),
    "of a sum": lambda x: x.sum(axis=0) * np.float64(0.1), "counted": lambda x: (x > 1).sum() * 2,
}  # fmt: skip


def outcome(function, *arguments):
    """The class and the bits, or the error with what it was given."""
    try:
        found = function(*arguments)
    except TypeError as error:
        return type(error), error.got
    return type(found), found.dtype, found.get().tobytes()


# On the fake driver, which knows no reductions, a compilation by g++ for each.
@pytest.mark.parametrize("name", ["remainder", "truths", "cast down"] if FAKE else BESIDE)
def test_classes_beside_cudandarrays_are_those_without_fuse(device, name):
    values = np.linspace(0.1, 4, 12, dtype=np.float32).reshape(3, 4)
    function = BESIDE[name]
    fused = gi.fuse(function)
    for cls in (gi.CudaNdarray, gi.GpuArray, gi.CudaNdarray):
        x = cls(values, device=device)
        assert outcome(fused, x) == outcome(function, x)


@pytest.mark.parametrize(
    "number", [np.float64(0.1), np.float32(0.3), np.int64(2**60), np.True_, np.array(0.3, "f4")]
)
def test_scalars_of_numpy_among_the_arguments(number):
    values = np.linspace(0.1, 4, 12, dtype=np.float32)
    for function in (lambda x, n: x % n, lambda x, n: (x > 1) * n, lambda x, n: n * x):
        for cls in (gi.CudaNdarray, gi.GpuArray):
            x = cls(values, device="cpu")
            assert outcome(gi.fuse(function), x, number) == outcome(function, x, number)


def test_closure_arrays_are_read_by_each_call(device):
    x, w = gi.ones(3, device=device), gi.ones((3, 3), device=device)
    row = gi.ones((2, 3), device=device)[0]  # nothing else holds what it is a view of
    held = {"w": w}
    for function in (
        lambda x: x + held["w"], lambda x: x + w[0], lambda x: x + w.T[::-1], lambda x: x + w * x,
        lambda x: x + gi.asarray(w),
        *([] if FAKE else [lambda x, w=w: (x + w[1:]).sum(axis=0)]),  # reductions do not run there
    ):  # fmt: skip
        fused = gi.fuse(function)
        for number in (1, 5):
            w.fill(number)
            assert fused(x).tolist() == function(x).tolist()
    assert gi.fuse(lambda x: x + row)(x).tolist() == [2, 2, 2]


def test_numpys_result_type_while_a_function_is_fused():
    x = gi.GpuArray(np.ones(2, np.int16), device="cpu")
    for other in (1, 1.5, np.float32, np.dtype("int64")):
        function = gi.fuse(lambda a, t=other: a.astype(np.result_type(a * 1, t)))
        assert function(x).dtype == np.result_type(np.int16, other)
    held = gi.ones(2, device="cpu")
    assert gi.fuse(lambda a: a.astype(np.result_type(held, a)))(x).dtype == np.float32


def test_values_without_dimensions_are_reduced_as_without_fuse():
    x, row = gi.asarray(3.0, device="cpu"), gi.ones(3, device="cpu")
    for axis in (0, -1, (0,)):
        assert gi.fuse(lambda a, n=axis: a + a.max(n).ndim)(x).tolist() == 3 + x.max(axis).ndim
        shapes = gi.fuse(lambda a, n=axis: a + len(a.sum(0).sum(n, keepdims=True).shape))
        assert shapes(row).tolist() == [1] * 3
    for axis in (1, (0, 0)):
        with pytest.raises(gi.ShapeError):
            gi.fuse(lambda a, n=axis: a + a.max(n).ndim)(x)

"""What a fused function depends on: its arguments."""

import copy
import enum
import gc
import inspect
import math
import pickle
import re
import weakref

import numpy as np
import pytest
from doubles.on_fake import FAKE

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError

NUMBERS = (0.1, -0.0) if FAKE else (0.1, -0.0, -1.7, 1e300, math.nan, -math.inf, 70000.0)
DTYPES = ("float16", "int32") if FAKE else ("float16", "float64", "bfloat16", "int32", "uint8", "bool",
                                            "complex64")  # fmt: skip


def ones(device="cpu", dtype="float32", n=2):
    return gi.GpuArray(np.ones(n, dtype), device=device)


def traced(function, **options):
    """The fused function, and a list that grows by each trace."""
    times = []

    def counted(*args):
        times.append(None)
        return function(*args)

    counted.__signature__ = inspect.signature(function)
    return gi.fuse(counted, **options), times


def outcome(function, *args):
    """Class, dtype and bits, or the error. NaNs are alike: a compiler may drop a number times NaN."""
    try:
        found = function(*args)
    except (TypeError, ValueError, ArithmeticError) as error:
        return type(error), str(error).partition(chr(10))[0]
    values = found.get()
    values[np.isnan(values)] = np.nan
    return type(found), found.dtype, values.tobytes()


ARITHMETIC = {
    "product": lambda x, n: x * n, "behind": lambda x, n: n - x, "power": lambda x, n: x**n,
    "maximum": lambda x, n: np.maximum(n, x), "where": lambda x, n: gi.where(x > n, n, x),
    "clip": lambda x, n: x.clip(-1.0, n), "twice": lambda x, n: (x * n + 1) * n, "mixed": lambda x, n:
    (x > 0) * n + x * (1 - n), "computed": lambda x, n: x * (-n * 0.5 + 1) / 3.0, "scalar": lambda x, n:
    (x * n) * np.float32(0.3), "cast": lambda x, n: (x * n).astype(np.result_type(x, np.float32)) + n * x,
    "divided": lambda x, n: x * (1 / n), "complex": lambda x, n: x + n**0.5, "before": lambda x, n: n > x,
    "of numpy": lambda x, n: x * (np.float64(3) * n), "square root": lambda x, n: x * np.sqrt(abs(n)),
    "remainder": lambda x, n: x * (n % 7) + 7 // n, "equal": lambda x, n: (n == x) + n,
}  # fmt: skip


@pytest.mark.parametrize("name", ["where", "mixed", "cast"] if FAKE else ARITHMETIC)
@pytest.mark.parametrize("dtype", ["CudaNdarray", *DTYPES])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_results_with_numbers_are_those_without_fuse(device, name, dtype):
    values = np.array([0.1, 1, 2, 3.5, 5])
    if dtype == "CudaNdarray":
        x = gi.CudaNdarray(values.astype(np.float32), device=device)
    else:
        x = gi.GpuArray(values, device=device, dtype="float32").astype(dtype)
    function = ARITHMETIC[name]
    fused, times = traced(function)
    for number in NUMBERS:
        assert outcome(fused, x, number) == outcome(function, x, number), number
    if all(isinstance(outcome(function, x, number)[-1], bytes) for number in NUMBERS):
        assert len(times) == 1


@pytest.mark.parametrize("dtype", ["int8", "float32", "bool"])
def test_integers_are_operands(device, dtype):
    x = ones(device, dtype)
    fused, times = traced(lambda x, n: (x * n + n, x < n))
    for n in (3, -2, 100):
        for got, expected in zip(fused(x, n), (x * n + n, x < n), strict=True):
            assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())
    assert len(times) == 1
    if dtype == "int8":
        with pytest.raises(gi.RangeError, match="int8 holds"):
            fused(x, 300)
        with pytest.raises(ValueError, match="static_argnames"):
            gi.fuse(lambda x, n: x**n)(x, 2)
        assert gi.fuse(lambda x, n: x**n, static_argnames="n")(x, 2).tolist() == [1, 1]


def test_new_numbers_make_no_new_kernels(device):
    x = gi.GpuArray(np.arange(1, 4, dtype=np.float32), device=device)
    step, times = traced(lambda x, g, rate, decay: (x * (1 - rate * decay) - rate * g, x * decay))
    for i in range(3 if FAKE else 500):
        rate, decay = i / 7, 1.0 / (i + 1)
        got = step(x, x, rate, decay)
        wide = x.get().astype(np.float64)
        np.testing.assert_allclose(got[0].get(), wide * (1 - rate * decay) - rate * wide, rtol=1e-5,
                                   atol=1e-6)  # fmt: skip
        np.testing.assert_allclose(got[1].get(), wide * decay, rtol=1e-6)
    assert len(times) == 1
    assert len(step._kernels) == 1


READ = {
    "if": lambda x, n: x if n > 1 else -x, "boolean": lambda x, n: x if n else -x, "equal": lambda x, n:
    x if n == 2 else -x, "int": lambda x, n: x * int(n), "math": lambda x, n: x * math.sqrt(n),
    "key": lambda x, n: x * {0.5: 3}.get(n, 1), "text": lambda x, n: x * len(f"{n}"), "method": lambda x, n:
    x * n.real, "round": lambda x, n: x * round(n), "divmod": lambda x, n: x * divmod(n, 2)[0],
    "min": lambda x, n: x * min(n, 1), "range": lambda x, n: sum((x for _ in range(n)), x), "axis": lambda
    x, n: x.sum(axis=n), "asarray": lambda x, n: x * np.asarray(n), "str": lambda x, n: x * len(str(n)),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_reading_a_number_names_static_argnames(name):
    x, function = gi.GpuArray(np.arange(3, dtype=np.float32), device="cpu"), READ[name]
    with pytest.raises(ArgumentTypeError, match="number") as error:
        gi.fuse(function)(x, 2)
    assert "static_argnames='n'" in error.value.fix
    fused, times = traced(function, static_argnames="n")
    for number in (1, 2, 1, 2.0, 0):
        assert outcome(fused, x, number) == outcome(function, x, number)
    assert len(times) == 4


def test_unknown_static_argnames_are_refused():
    for names, got in ("m", "'m'"), (("x", "m"), "'m'"), (3, "3"), ([["n"]], "['n']"):
        with pytest.raises(ArgumentTypeError, match=re.escape(f"got: {got}")):
            gi.fuse(lambda x, n: x * n, static_argnames=names)


def test_numbers_beside_and_inside_reductions(device):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for cls in (gi.GpuArray, gi.CudaNdarray):
        x = cls(values, device=device)
        after, times = traced(lambda x, n: (x - n * x.mean(axis=0), x * n))
        inside, traces = traced(lambda x, n: (x * n).sum(axis=1, keepdims=True))
        for n in (0.5, 2.0, 3.0):
            expected = values - n * values.mean(axis=0)
            np.testing.assert_allclose(after(x, n)[0].get(), expected, rtol=1e-6)
            assert after(x, n)[1].tolist() == (values * n).tolist()
            assert inside(x, n).tolist() == (values * n).sum(1, keepdims=True).tolist()
            assert type(inside(x, n)) is cls
        assert (len(times), len(traces)) == (1, 1)


# ---- constants ----------------------------------------------------------------------------------


class Metres(float):
    def __repr__(self):
        return "1.0"


class Same(int):
    """An int that is equal to all of its class and prints like them."""

    def __eq__(self, other):
        return isinstance(other, Same)

    def __hash__(self):
        return 1

    def __repr__(self):
        return "0"


class Way(enum.IntEnum):
    UP = 1
    DOWN = 2


CONSTANTS = [
    True, False, None, "up", "down", Way.UP, Way.DOWN, np.float64(0.1), np.float32(0.1), np.int64(1),
    Metres(1.0), Metres(2.0), Metres(0.0), Metres(-0.0), Same(0), Same(1), np.float64(0.0), np.float64(-0.0),
    (1, 2.0), (1.0, 2.0), (True, 2.0), (0.0,), (-0.0,), frozenset({1}), frozenset({1.0}), b"up", np.exp,
    range(0, 3, 2), range(0, 4, 2), slice(0, 3), slice(0, 3.0), slice(False, 3),
]  # fmt: skip


def test_constants_are_compared_by_type_and_exact_value(device):
    x, seen = ones(device), []

    @gi.fuse
    def function(x, constant):
        seen.append(constant)
        return x + 0

    for _ in range(3):
        for constant in CONSTANTS:
            function(x, constant)
    assert [id(c) for c in seen] == [id(c) for c in CONSTANTS]
    function(x, "".join(["u", "p"]))
    assert len(seen) == len(CONSTANTS)
    for value in ({}, [1.0], {1}):
        with pytest.raises(ArgumentTypeError, match="hashable constants"):
            function(x, value)


def test_constants_in_the_function_are_compared_by_type_and_exact_value(device):
    x = gi.GpuArray(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)

    def function(x):
        signs = gi.copysign(x, math.nan) - gi.copysign(x, -math.nan)
        return x * Same(3) - x * Same(1), signs, x.sum(axis=Same(0)), x.sum(axis=Same(1))

    for fused, single in zip(gi.fuse(function)(x), function(x), strict=True):
        assert fused.tolist() == single.tolist()


def test_arguments_without_a_position(device):
    x, y = (gi.GpuArray(np.arange(1, 4, dtype=np.float32) * n, device=device) for n in (1, 10))

    @gi.fuse
    def scaled(a, *, by=2.0, plus=None, **more):
        value = a * by if plus is None else a * by + plus
        return value - more["less"] if more else value

    assert scaled(x).tolist() == [2, 4, 6]
    assert scaled(x, by=3.0).tolist() == [3, 6, 9]
    assert scaled(x, by=x, plus=y).tolist() == [11, 24, 39]
    assert scaled(x, plus=y, less=1.0).tolist() == [11, 23, 35]


def test_globals_and_closures_are_read_once(device):
    x, scale = ones(device), 2.0
    fused = gi.fuse(lambda x: x * scale)
    assert fused(x).tolist() == [2, 2]
    scale = 5.0
    assert fused(x).tolist() == [2, 2]
    assert gi.fuse(lambda x: x * scale)(x).tolist() == [5, 5]


def test_traces_are_bounded():
    x, function = ones(), gi.fuse(lambda x, n: x * n, static_argnames="n")
    for n in range(200):
        assert function(x, n).tolist() == [n, n]
    assert len(function._traces) <= 64
    assert len(function._kernels) <= 64


# ---- a fused function as a Python object --------------------------------------------------------


@gi.fuse
def scaled(x, /, by=2.0, *, plus=0.0):
    """Scale and shift."""
    return x * by + plus


def test_a_fused_function_keeps_its_signature_and_name():
    assert str(inspect.signature(scaled)) == "(x, /, by=2.0, *, plus=0.0)"
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "Scale and shift.")
    assert scaled.__module__ == __name__
    x = ones()
    assert [scaled(x).tolist(), scaled(x, 3, plus=1.5).tolist()] == [[2, 2], [4.5, 4.5]]
    with pytest.raises(ArgumentTypeError, match=r"by=2\.0"):
        scaled(x=x)


def test_a_fused_function_is_copied_and_pickled_as_functions_are():
    assert copy.copy(scaled) is scaled
    assert copy.deepcopy({"f": scaled})["f"] is scaled
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(gi.fuse(lambda x: x))


class Model:
    def __init__(self, rate):
        self.rate = rate

    @gi.fuse
    def step(self, x, n):
        return x * self.rate + n

    @staticmethod
    @gi.fuse
    def twice(x):
        return x * 2

    @classmethod
    @gi.fuse
    def named(cls, x):
        return x * len(cls.__name__)


def test_methods_are_called_with_their_instance(device):
    x, slow, fast = ones(device), Model(2.0), Model(7)
    for _ in range(2):
        assert [m.step(x, 1.0).tolist() for m in (slow, fast)] == [[3, 3], [8, 8]]
    assert Model.step(slow, x, n=2.0).tolist() == gi.fuse(slow.step)(x, 2.0).tolist() == [4, 4]
    assert slow.twice(x).tolist() == Model.twice(x).tolist() == [2, 2]
    assert Model.named(x).tolist() == [5, 5]
    assert str(inspect.signature(slow.step)) == "(x, n)"
    gi.GpuArray.plus_one = gi.fuse(lambda self: self + 1)
    try:
        assert x.plus_one().tolist() == [2, 2]
    finally:
        del gi.GpuArray.plus_one


def test_nothing_outlives_a_fused_function(device):
    held = ones(device)
    memory = weakref.ref(held)

    def around(held):
        function = gi.fuse(lambda x: x + held if function else x)  # refers to itself
        return function

    fused = around(held)
    for _ in range(3):
        fused(ones(device))
    del fused, held
    gc.collect()
    assert memory() is None


@pytest.mark.torch
def test_products_and_dtypes_of_arrays_of_other_libraries():
    torch = pytest.importorskip("torch")
    host, vector = np.arange(6, dtype="float32").reshape(2, 3), np.ones(3, "float32")
    x, w = gi.asarray(host, device="cpu"), torch.from_numpy(vector)
    product = gi.fuse(lambda a, b: a @ b + b.dtype.itemsize)
    for one, other in ((x, w), (torch.from_numpy(host), w), (gi.GpuArray(host, device="cpu"), w)):
        assert product(one, other).tolist() == (host @ vector + 4).tolist()
    wide = product(torch.from_numpy(host).double(), w.double())
    assert (wide.dtype, wide.tolist()) == ("float64", (host @ vector + 8).tolist())


def test_a_default_or_captured_number_of_numpy_that_changes_is_read_by_each_call(device):
    held, values = np.array(2.0, "f4"), np.array([1.0, 2.0], "f4")
    inner = gi.fuse(lambda y, n=held: y * n)
    box = type("Box", (), {"number": held})
    functions = {
        "default": lambda x, n=held: x * n,
        "keyword-only default": lambda x, *, n=held: x * n,
        "second default": lambda x, k=1.0, n=held: x * n * k,
        "read by Python": lambda x, n=held: x * float(n),
        "closure": lambda x: x * held,
        "attribute": lambda x: gi.where(x > 0, box.number, 1) * x,
        "with its shape": lambda x: x * held * len(x) / 2,
        "reduced": lambda x, n=held: (x * n) / x.max() * 2,
        "fused": lambda x: inner(x),
        "array": lambda x, n=values: x * n,
    }
    for name, function in functions.items():
        fused = gi.fuse(function)
        for n in (2, 2, 5, -0.0):
            held[...] = n
            values[...] = n
            x = gi.asarray([1.0, 2.0], device=device)
            np.testing.assert_array_equal(fused(x).get(), np.array([n, 2 * n], "f4"), name)
    with pytest.raises(ArgumentTypeError, match="hashable"):
        gi.fuse(lambda x, n=[2]: x * n[0])(ones(device))

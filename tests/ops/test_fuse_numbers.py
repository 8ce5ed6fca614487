"""Numbers among the arguments of fused functions, and how much is kept of them."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest
from doubles.on_fake import FAKE

import gpuinterop as gi
from gpuinterop.ops import core_callbacks
from gpuinterop.ops.fuse_recent import KEPT, Recent

NUMBERS = (0.1, -0.0) if FAKE else (0.1, -0.0, -1.7, 1e300, math.nan, -math.inf, 70000.0)
DTYPES = ("float16", "int32") if FAKE else ("float16", "float64", "bfloat16", "int32", "uint8", "bool",
                                            "complex64")  # fmt: skip


def traced(function):
    """The fused function, and a list that grows by each trace."""
    times = []

    def counted(*args):
        times.append(None)
        return function(*args)

    return gi.fuse(counted), times


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
    "divided": lambda x, n: x * (1 / n), "complex": lambda x, n: x + n**0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", ["where", "mixed", "cast"] if FAKE else ARITHMETIC)
@pytest.mark.parametrize("dtype", ["CudaNdarray", *DTYPES])
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


def test_new_numbers_make_no_new_kernels(device):
    x = gi.GpuArray(np.arange(1, 4, dtype=np.float32), device=device)
    step, times = traced(lambda x, g, rate, decay: (x * (1 - rate * decay) - rate * g, x * decay))
    gc.collect()  # kernels of other tests leave now, not while these are counted
    before = len(core_callbacks._by_id)
    for i in range(3 if FAKE else 500):
        rate, decay = np.float64(i / 7).item(), 1.0 / (i + 1)
        got = step(x, x, rate, decay)
        wide = x.get().astype(np.float64)
        np.testing.assert_allclose(got[0].get(), wide * (1 - rate * decay) - rate * wide, rtol=1e-5,
                                   atol=1e-6)  # fmt: skip
        np.testing.assert_allclose(got[1].get(), wide * decay, rtol=1e-6)
    assert len(times) == step._kernels.held() == 1
    assert len(core_callbacks._by_id) == before + 1


def test_numbers_by_name_and_of_methods_are_open_too(device):
    class Model:
        @gi.fuse
        def step(self, x, *, rate):
            return x * rate

    x, model = gi.ones(2, device=device), Model()
    for rate in (0.5, 2.5, 4.0):
        assert model.step(x, rate=rate).tolist() == [rate] * 2
    assert len(Model.step._kernels) == 1


READ = {
    "if": lambda x, n: x if n > 1 else -x, "truth": lambda x, n: x if n else -x,
    "equal": lambda x, n: x if n == 2 else -x, "int": lambda x, n: x * int(n), "math": lambda x, n: x *
    math.sqrt(n), "numpy": lambda x, n: x * np.sqrt(n), "asarray": lambda x, n: x * np.asarray(n),
    "isinstance": lambda x, n: x * 2 if isinstance(n, float) else x, "type": lambda x, n: x * 2 if
    type(n) is float else x, "key": lambda x, n: x * {0.5: 3, 2.0: 4}[n], "text": lambda x, n: x *
    len(f"{n}{n!r}"), "method": lambda x, n: x * n.is_integer(), "floor": lambda x, n: x * math.floor(n),
    "round": lambda x, n: x * round(n), "divmod": lambda x, n: x * (divmod(n, 2)[0] + n % 2 + 7 // n),
    "result type": lambda x, n: x.astype(np.result_type(x, n)), "min": lambda x, n: x * min(n, 1),
    "of numpy": lambda x, n: x * (np.float64(3) * n), "float32": lambda x, n: x * np.float32(n),
    "class": lambda x, n: x * n.__class__(3), "range": lambda x, n: x * len(range(n)),
    "computed": lambda x, n: x if 1 - n > 0 else -x, "nothing": lambda x, n: n,
    "array": lambda x, n: x + gi.exp(n), "sum": lambda x, n: x * sum([n, n]), "list": lambda x, n: x * [n],
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_numbers_that_python_looks_at_are_constants(name):
    x, function = gi.GpuArray(np.arange(3, dtype=np.float32), device="cpu"), READ[name]
    fused = gi.fuse(function)
    for number in (0.5, 2.0, 0.5):
        found = outcome(fused, x, number)
        if name not in ("nothing", "array"):  # which fused functions may not give, or make
            assert found[:1] == outcome(function, x, number)[:1]
            assert issubclass(found[0], TypeError) or found == outcome(function, x, number)
        assert "Number" not in str(found)


def doubled_floats(value):
    return value * 2 if type(value) is float else value


def passed_on(value):
    return doubled_floats(value)


INNER = gi.fuse(lambda x, n: x + (n * 2 if type(n) is float else n))


class Asking:
    @gi.fuse
    def inner(self, x, n):
        return x + (n * 2 if type(n) is float else n)

    @gi.fuse
    def outer(self, x, n):
        return self.inner(x, n)


@pytest.mark.parametrize("function", [lambda x, n: x + doubled_floats(n), lambda x, n: x + passed_on(n),
                                      lambda x, n: INNER(x, n), Asking().outer])  # fmt: skip
def test_functions_that_are_named_may_ask_for_types(function):
    x, fused = gi.ones(2, device="cpu"), gi.fuse(function)
    assert [fused(x, n).tolist() for n in (1.0, 2.5)] == [[3, 3], [6, 6]]


def test_a_number_that_is_not_looked_at_stays_open():
    x = gi.ones(2, device="cpu")
    f, times = traced(lambda x, n, m: x * n if m > 0 else x - n)
    for n in range(20):
        assert f(x, n / 2, 1.0).tolist() == [n / 2] * 2
        assert f(x, n / 2, -1.0).tolist() == [1 - n / 2] * 2
    assert len(times) == 3


def test_numbers_beside_reductions(device):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = gi.GpuArray(values, device=device)
    after, times = traced(lambda x, n: (x - n * x.mean(axis=0), x * n))
    inside = gi.fuse(lambda x, n: (x * n).sum())
    for n in (0.5, 2.0, 3.0):
        np.testing.assert_allclose(
            after(x, n)[0].get(), values - n * values.mean(axis=0), rtol=1e-6
        )
        assert after(x, n)[1].tolist() == (values * n).tolist()
        assert float(inside(x, n)) == values.sum() * n
    assert len(times) == 1


def test_numbers_make_no_trace_depend_on_shapes(device):
    f, times = traced(lambda x, n: (x * n, x + 1))
    for n in (2, 3, 4):
        assert f(gi.ones(n, device=device), n / 2)[0].tolist() == [n / 2] * n
    assert len(times) == 1


def test_many_numbers_are_constants():
    x = gi.ones(2, device="cpu")
    f = gi.fuse(lambda x, *numbers: sum((x * n for n in numbers), x))
    for shift in (0.0, 0.5):
        numbers = [n + shift for n in range(20)]
        assert f(x, *numbers).tolist() == [1 + sum(numbers)] * 2


def test_a_number_kept_from_another_call_is_what_it_was():
    x, kept = gi.ones(2, device="cpu"), []
    gi.fuse(lambda x, n: kept.append(n) or x * n)(x, 3.0)
    f = gi.fuse(lambda x, n: x * n + kept[0])
    assert [f(x, n).tolist() for n in (1.0, 2.0)] == [[4, 4], [5, 5]]


def test_constants_are_kept_by_their_use(device):
    x = gi.ones(2, device=device)
    f, times = traced(lambda x, n: x * n)
    before = len(core_callbacks._by_id)
    if FAKE:
        return  # a compilation by g++ for each
    for n in range(5 * KEPT):
        assert f(x, n).tolist() == [n] * 2
        assert f(x, 0).tolist() == [0] * 2
    assert len(times) == 5 * KEPT  # the one that is used most was made once
    gc.collect()
    assert f._outside.traces()[0].held() <= 2 * KEPT
    assert f._kernels.held() <= 2 * KEPT
    assert (
        len(core_callbacks._by_id) <= before + 2 * KEPT + 1
    )  # Python 3.10 still holds the one that ran last


def test_kernels_of_numbers_that_a_name_held_are_let_go():
    x, rate = gi.ones(2, device="cpu"), 0
    f = gi.fuse(lambda x: x * rate)
    f(x)
    first = weakref.ref(next(iter(f._kernels.values())))
    for rate in range(1, 2 * KEPT + 2):
        assert f(x).tolist() == [rate] * 2
    gc.collect()
    assert first() is None
    assert f._kernels.held() <= 2 * KEPT


def test_what_was_used_last_is_kept():
    recent = Recent()
    for i in range(10 * KEPT):
        recent[i] = str(i)
        assert recent[0] == "0"
        assert recent[max(i - KEPT // 3, 0)] is not None
    assert KEPT <= recent.held() <= 2 * KEPT
    assert recent[1] is None
    assert recent[-1] is None

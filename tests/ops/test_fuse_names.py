"""Names that a fused function mentions, and arguments and functions that are no elements."""

from __future__ import annotations

import functools
import gc
import operator
import types
import weakref

import numpy as np
import pytest

import gpuinterop as gi

rate = 2.0


def ones(device, value=1.0):
    return gi.GpuArray(np.full(3, value, np.float32), device=device)


def test_arrays_and_numbers_of_the_closure_are_followed(device):
    x, w, scale = ones(device), ones(device), 1.0
    traced = []

    def function(x):
        traced.append(None)
        return x * scale + w

    f = gi.fuse(function)
    assert f(x).tolist() == [2] * 3
    w = ones(device, 9)
    assert f(x).tolist() == [10] * 3
    scale = 4
    assert f(x).tolist() == [13] * 3
    scale = 4.0
    assert f(x).tolist() == f(x).tolist() == [13] * 3
    w.fill(0)
    assert f(x).tolist() == [4] * 3
    scale = -0.0
    assert np.signbit(gi.fuse(lambda x: x * scale)(x).get()).all()
    assert len(traced) == 4  # once for each binding, not for each call


def test_a_replaced_array_is_released_and_its_address_is_no_likeness(device):
    x, w = ones(device), ones(device)
    f = gi.fuse(lambda x: x + w)
    f(x)
    for value in range(20):
        w = ones(device, value)
        assert f(x).tolist() == [1 + value] * 3
    old = weakref.ref(w)
    w = ones(device, 5)
    f(x)
    gc.collect()
    assert old() is None


def test_globals_are_followed_also_in_functions_inside(device, monkeypatch):
    x = ones(device)
    plain = gi.fuse(lambda x: x * rate)
    inside = gi.fuse(lambda x: tuple((lambda: x * rate)() for _ in range(2))[1])
    within = gi.fuse(lambda x: plain(x) + 1)
    calls = (plain, inside, within)
    assert [f(x).tolist()[0] for f in calls] == [2, 2, 3]
    monkeypatch.setitem(globals(), "rate", 5.0)
    assert [f(x).tolist()[0] for f in calls] == [5, 5, 6]
    monkeypatch.setitem(globals(), "rate", ones(device, 7))
    assert [f(x).tolist()[0] for f in calls] == [7, 7, 8]


def test_functions_that_mention_nothing_watch_nothing(device):
    x = ones(device)
    f = gi.fuse(lambda x: x.exp() + 1)
    f(x)
    assert f._outside._current[0].places == []


def test_what_is_called_and_named_is_followed(device):
    x, made = ones(device, 2), []
    act, dtype, pair, library, other = gi.exp, np.float64, (ones(device),), gi, gi.fuse(lambda x: x)
    functions = (
        lambda x: act(x), lambda x: x.astype(dtype), lambda x: x + pair[0],
        lambda x: library.sqrt(x), lambda x: other(x) + 1,
    )  # fmt: skip
    fused = [gi.fuse(function) for function in functions]
    for _ in range(2):
        made.append([(r.dtype, r.tolist()) for r in (f(x) for f in fused)])
        assert made[-1] == [(r.dtype, r.tolist()) for r in (f(x) for f in functions)]
        act, dtype, pair, library = gi.negative, np.int32, (ones(device, 5),), np
        other = gi.fuse(lambda x: -x)
    assert [one == two for one, two in zip(*made, strict=True)] == [False] * 3 + [True, False]


class Scale:
    by = np.array(2.0)
    act = gi.exp
    pair = (2.0, None)


@pytest.mark.parametrize("replace", [lambda w: 3.0, lambda w: np.array(3.0), lambda w: np.float32(3),
                                     lambda w: gi.ones(3, device="cpu") * 3, lambda w: w.fill(3) or w])  # fmt: skip
def test_0_d_arrays_of_numpy_are_followed_like_numbers(replace):
    x, w, held = ones("cpu"), np.array(5.0), Scale()
    held.by = np.array(5.0)
    Scale.scaled = gi.fuse(lambda self, x: x * self.by)
    by_name, by_default = gi.fuse(lambda x: x * w), np.float32(5)
    scalar = gi.fuse(lambda x: x * by_default)
    assert [f(x).tolist() for f in (by_name, scalar, held.scaled)] == [[5] * 3] * 3
    w, by_default, held.by = replace(w), np.float32(3), replace(held.by)
    assert [f(x).tolist() for f in (by_name, scalar, held.scaled)] == [[3] * 3] * 3


def test_what_a_class_holds_is_followed_if_it_makes_nothing(device, monkeypatch):
    x, held = ones(device, 2), Scale()
    monkeypatch.setattr(
        Scale, "step", gi.fuse(lambda self, x: self.act(x) * self.pair[0]), raising=False
    )
    held.step(x)
    monkeypatch.setattr(Scale, "act", gi.negative)
    assert held.step(x).tolist() == [-4] * 3
    monkeypatch.setattr(Scale, "pair", (ones(device, 3), None))
    assert held.step(x).tolist() == [-6] * 3


k = 2


def test_names_that_inner_functions_use_for_their_own_are_followed(device, monkeypatch):
    x, near = ones(device), 2

    def function(x):
        def inner(b):
            k = near = 3
            return (lambda: b * k * near)()

        return inner(x) * k

    def around(x):
        def inner(b):
            near = 3
            return (lambda: b * near)()

        return inner(x) * near

    calls = [gi.fuse(function), gi.fuse(around)]
    assert [f(x).tolist()[0] for f in calls] == [18, 6]
    monkeypatch.setitem(globals(), "k", 10)
    near = 10
    assert [f(x).tolist()[0] for f in calls] == [90, 30]


def test_what_an_inner_function_assigns_is_not_watched(device):
    x, count = ones(device), 0

    def function(x):
        def inner():
            nonlocal count
            count += 1

        inner()
        return x + count * 0

    f = gi.fuse(function)
    assert f(x).tolist() == f(x).tolist() == [1] * 3
    assert count == 1


def test_what_a_function_assigns_itself_is_not_watched(device):
    x, count = ones(device), 0

    def function(x):
        nonlocal count
        count += 1
        return x + 1

    f = gi.fuse(function)
    assert f(x).tolist() == f(x).tolist() == [2] * 3
    assert count == 1


def test_callables_without_code_have_no_names(device):
    x = ones(device)
    assert gi.fuse(operator.neg)(x).tolist() == [-1] * 3


def test_names_of_what_a_partial_calls_are_followed(device):
    x, by = ones(device), 3
    f = gi.fuse(functools.partial(functools.partial(lambda a, b, x: a + b * by * x, 2), 1))
    assert f(x).tolist() == [5] * 3
    by = 4
    assert f(x).tolist() == [6] * 3


class Model:
    rate = 2.0
    more = None
    _hidden = 1.0

    def __init__(self, device):
        self.settings = types.SimpleNamespace(rate=1.0)
        self._own = 1.0

    @property
    def own(self):
        return self._own * self._hidden

    @gi.fuse
    def step(self, x):
        made = x * self.rate + self.own
        return made if self.more is None else made + self.more


def test_attributes_of_the_class_and_of_properties_are_followed(device, monkeypatch):
    x, model = ones(device), Model(device)
    assert model.step(x).tolist() == [3] * 3
    monkeypatch.setattr(Model, "rate", 20)
    assert model.step(x).tolist() == [21] * 3
    model._own = 5.0
    assert model.step(x).tolist() == [25] * 3
    monkeypatch.setattr(Model, "_hidden", 2.0)
    assert model.step(x).tolist() == [30] * 3
    model.rate = 1
    assert model.step(x).tolist() == [11] * 3
    del model.rate
    assert model.step(x).tolist() == [30] * 3
    monkeypatch.setattr(Model, "more", ones(device))
    assert model.step(x).tolist() == [31] * 3


def test_slots_are_followed(device):
    class Small:
        __slots__ = ("__weakref__", "by")

        @gi.fuse
        def scaled(self, x):
            return x * self.by

    x, small = ones(device), Small()
    small.by = 2.0
    assert small.scaled(x).tolist() == [2] * 3
    small.by = 3.0
    assert small.scaled(x).tolist() == [3] * 3


def test_names_of_a_method_are_followed(device):
    x, by = ones(device), 2.0

    class Scaled:
        @gi.fuse
        def scaled(self, x):
            return x * by

    scaled = Scaled()
    assert scaled.scaled(x).tolist() == [2] * 3
    by = 3.0
    assert scaled.scaled(x).tolist() == [3] * 3


def test_none_and_tuples_are_constants_of_the_trace(device):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = gi.GpuArray(values, device=device)

    @gi.fuse
    def total(x, axis=None, keepdims=False):
        return x.sum(axis=axis, keepdims=keepdims)

    for axis in (None, 0, (0, 1), (0, 2), (), None):
        made = total(x, axis=axis)
        assert made.tolist() == values.sum(axis=axis).tolist()
        assert total(x, axis).tolist() == made.tolist()


@pytest.mark.parametrize(
    "value", [[1.0], {}, object(), gi.exp, np.exp, len, (1, [2])], ids=lambda v: type(v).__name__
)
def test_what_is_no_argument_is_refused(device, value):
    x = ones(device)
    with pytest.raises(gi.ArgumentTypeError, match=r"\n  got: .*(type|tuple)") as told:
        gi.fuse(lambda x, y: x + 1)(x, value)
    assert "racer" not in str(told.value)


NOT_FUSED = {
    "concatenate": lambda x: gi.concatenate([x, x]),
    "norm": lambda x: gi.norm(x),
    "take": lambda x: gi.take(x, [0]),
    "dot": lambda x: gi.dot(x, x),
    "matmul": lambda x: x @ x,
    "asarray": lambda x: gi.asarray(x),
    "numpy.zeros_like": lambda x: np.zeros_like(x),
    "kernel": lambda x: gi.ElementwiseKernel("T x", "T y", "y = x", host=lambda x: x)(x),
    "x.var": lambda x: x.var(),
    "x.std": lambda x: x.std(),
}


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_cannot_be_fused_is_named(device, name):
    with pytest.raises(gi.ArgumentTypeError, match=f"got: {name}, which cannot be fused") as told:
        gi.fuse(NOT_FUSED[name])(ones(device))
    assert "racer" not in str(told.value)


def test_variances_in_means(device):
    x = gi.GpuArray(np.arange(5, dtype=np.float32), device=device)
    f = gi.fuse(lambda x: gi.sqrt(((x - x.mean()) ** 2).mean()))
    assert abs(float(f(x)) - np.arange(5).std()) < 1e-6

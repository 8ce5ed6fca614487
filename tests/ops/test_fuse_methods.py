"""Fused methods: `self` is a Python object, and what it holds is seen when it changes."""

from __future__ import annotations

import functools
import gc
import inspect
import types
import weakref

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.ops import fuse as fuse_module

HOST = np.arange(6, dtype="float32").reshape(2, 3)


class Layer:
    """Equal to every other, as dataclasses may be; hence without a hash."""

    def __init__(self, scale, weights):
        self.scale, self.weights = scale, weights
        self.calls = 0

    def __eq__(self, other):
        return isinstance(other, Layer)

    @gi.fuse
    def forward(self, x, shift=1):
        """Scale, weigh and shift."""
        return x * self.scale * self.weights + shift

    @gi.fuse
    def normal(self, x):
        return self.forward(x) / (x * x + 1)

    @staticmethod
    @gi.fuse
    def double(x):
        return x + x


@pytest.fixture
def traced(monkeypatch):
    """How often a function was traced."""
    count = []
    trace = fuse_module.Fused._trace
    monkeypatch.setattr(fuse_module.Fused, "_trace", lambda *a: (count.append(1), trace(*a))[1])
    return count


def test_methods_see_their_instance(device):
    x = gi.asarray(HOST, device=device)
    rows = [np.array(row, "float32") for row in ([1, 2, 3], [4, 5, 6])]
    layers = [Layer(i + 2.0, gi.asarray(w, device=device)) for i, w in enumerate(rows)]
    for _ in range(2):
        for layer, w in zip(layers, rows, strict=True):
            expected = HOST * layer.scale * w
            np.testing.assert_array_equal(layer.forward(x).get(), expected + 1)
            np.testing.assert_array_equal(layer.forward(x, shift=2).get(), expected + 2)
            np.testing.assert_allclose(
                layer.normal(x).get(), (expected + 1) / (HOST * HOST + 1), rtol=1e-6
            )
    out = gi.empty((2, 3), device=device)
    assert layers[0].forward(x, out=out) is out
    assert layers[0].double(x).tolist() == (HOST + HOST).tolist()


def test_what_is_assigned_to_the_instance_is_seen(device, traced):
    x = gi.asarray(HOST, device=device)
    layer = Layer(2.0, gi.ones(3, device=device))
    layer.forward(x)
    layer.calls += 1  # not named by the method
    layer.forward(x)
    assert len(traced) == 1
    layer.weights[...] = 3
    assert layer.forward(x).tolist() == (HOST * 6 + 1).tolist()
    assert len(traced) == 1
    layer.scale = 5.0
    assert layer.forward(x).tolist() == (HOST * 15 + 1).tolist()
    layer.weights = gi.zeros(3, device=device)
    assert layer.forward(x).tolist() == np.ones((2, 3)).tolist()
    layer.scale = -0.0
    assert len(traced) == 3


def test_arrays_that_are_replaced_are_released():
    x = gi.asarray(HOST, device="cpu")
    layer = Layer(2.0, gi.ones(3, device="cpu"))
    host = np.ones(3, "float32")
    memory = weakref.ref(host)
    layer.weights = gi.asarray(host, device="cpu")
    del host
    layer.forward(x)
    layer.weights = gi.zeros(3, device="cpu")
    layer.forward(x)
    gc.collect()
    assert memory() is None


def test_an_instance_lives_no_longer_for_its_traces():
    layer = Layer(2.0, gi.ones(3, device="cpu"))
    layer.forward(gi.asarray(HOST, device="cpu"))
    known = vars(Layer)["forward"]._instances._known
    before, gone = len(known), weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
    assert len(known) == before - 1


def test_kernels_are_shared_by_instances():
    x = gi.asarray(HOST, device="cpu")
    for _ in range(3):
        Layer(7.0, gi.ones(3, device="cpu")).forward(x)
    one = len(vars(Layer)["forward"]._kernels)
    Layer(7.0, gi.ones(3, device="cpu")).forward(x)
    assert len(vars(Layer)["forward"]._kernels) == one


def test_bound_methods_read_well():
    layer = Layer(2.0, gi.ones(3, device="cpu"))
    assert list(inspect.signature(layer.forward).parameters) == ["x", "shift"]
    assert layer.forward.__name__ == "forward"
    assert layer.forward.__doc__ == "Scale, weigh and shift."
    assert repr(layer.forward).startswith("<fused method Layer.forward of <")
    assert repr(Layer.forward) == "<fused function Layer.forward(self, x, shift=1)>"
    with pytest.raises(gi.ArgumentTypeError, match="forward"):
        layer.forward()


def test_slots_need_room_for_a_weak_reference():
    class Bare:
        __slots__ = ("scale",)

        @gi.fuse
        def step(self, x):
            return x * 2

    with pytest.raises(gi.ArgumentTypeError, match="__weakref__"):
        Bare().step(gi.ones(3, device="cpu"))


def test_a_method_of_an_array_is_a_function_of_it(device):
    class Mine(gi.CudaNdarray):
        @gi.fuse
        def plus(self, other):
            return self + other

    x = Mine(HOST, device=device)
    assert x.plus(x).tolist() == (HOST + HOST).tolist()


class Rate:
    def __init__(self, value):
        self.value = value

    def __call__(self, x):
        return x * self.value


class Scheduled:
    rate = None

    @gi.fuse
    def step(self, x):
        return self.rate(x)


class Slotted:
    __slots__ = ("__weakref__", "rate")

    @gi.fuse
    def step(self, x):
        return x * self.rate


def test_an_object_in_the_place_of_a_freed_one_is_another(device):
    x = gi.asarray(HOST, device=device)
    scheduled = Scheduled()
    for value in range(1, 20):
        scheduled.rate = None  # the next one may lie where this one lay
        scheduled.rate = Rate(float(value))
        np.testing.assert_array_equal(scheduled.step(x).get(), HOST * value)


def test_objects_that_refer_to_the_instance_do_not_keep_it(device):
    x = gi.asarray(HOST, device=device)
    scheduled = Scheduled()
    scheduled.rate = Rate(2.0)
    scheduled.rate.owner = scheduled
    scheduled.step(x)
    gone = weakref.ref(scheduled)
    del scheduled
    gc.collect()
    assert gone() is None


def test_slots_are_looked_at(device):
    x = gi.asarray(HOST, device=device)
    slotted = Slotted()
    for value in (2.0, 3.0, -0.0):
        slotted.rate = value
        np.testing.assert_array_equal(slotted.step(x).get(), HOST * np.float32(value))


def test_methods_are_called_by_the_class_too(device):
    x = gi.asarray(HOST, device=device)
    scheduled = Scheduled()
    scheduled.rate = Rate(3.0)
    np.testing.assert_array_equal(Scheduled.step(scheduled, x).get(), HOST * 3)
    np.testing.assert_array_equal(Scheduled.step(scheduled, x=x).get(), HOST * 3)


class Plain:
    rate = 2

    def step(self, x, shift=0):
        return x * self.rate + shift

    def __call__(self, x):
        return x * self.rate

    def plus(self, shift, x, *, by):
        return x * self.rate * by + shift

    @classmethod
    def of_class(cls, x):
        return x * cls.rate


class Heir(Plain):
    __slots__ = ("own",)


class Closed:
    __slots__ = ("rate",)
    step, __call__ = Plain.step, Plain.__call__


CALLS = {
    "method": lambda m: m.step, "object": lambda m: m, "partial": lambda m: functools.partial(m.step, shift=0),
    "partial of an object": lambda m: functools.partial(m), "of a fused one": lambda m: gi.fuse(m.step),
    "partial of a fused one": lambda m: functools.partial(gi.fuse(m.step), shift=0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("cls", [Plain, Closed])
def test_methods_that_are_fused_by_a_call_follow_their_instance(device, name, cls):
    x, model = gi.asarray(HOST, device=device), cls()
    model.rate = 2
    f = gi.fuse(CALLS[name](model))
    assert next(iter(inspect.signature(f).parameters)) == "x"
    for rate in (2, 5, gi.asarray(HOST, device=device), 2):
        model.rate = rate
        assert f(x).tolist() == f(x=x).tolist() == (x * rate).tolist()


def test_partials_of_methods_take_their_arguments_first(device):
    x, model = gi.asarray(HOST, device=device), Plain()
    f = gi.fuse(functools.partial(functools.partial(model.plus, 3), by=2))
    assert f(x).tolist() == f(x=x).tolist() == (HOST * 2 * 2 + 3).tolist()
    assert f(x, by=1).tolist() == (HOST * 2 + 3).tolist()


def test_class_methods_follow_the_class_and_those_above(device, monkeypatch):
    x = gi.asarray(HOST, device=device)
    f = gi.fuse(Heir.of_class)
    for rate in (2, 3):
        monkeypatch.setattr(Plain, "rate", rate)
        assert f(x).tolist() == (HOST * rate).tolist()


def test_fused_above_staticmethod_and_classmethod(device, monkeypatch):
    x = gi.asarray(HOST, device=device)

    class Both:
        rate = 3

        @gi.fuse
        @staticmethod
        def apart(x, by=2):
            return x * by

        @gi.fuse
        @classmethod
        def of_class(cls, x):
            return x * cls.rate

    for holder in (Both, Both()):
        assert holder.apart(x).tolist() == (HOST * 2).tolist()
        assert holder.apart(x, by=5).tolist() == (HOST * 5).tolist()
        monkeypatch.setattr(Both, "rate", Both.rate + 1)
        assert holder.of_class(x).tolist() == (HOST * Both.rate).tolist()


FACTOR = 1.0


class Stepper:
    def __init__(self, rate):
        self.rate, self.bias = rate, 0.0

    @property
    def twice(self):
        return 2 * self.once

    @property
    def once(self):
        return self.bias

    @gi.fuse
    def step(self, x):
        return x * self.rate * FACTOR

    @gi.fuse
    def again(self, x):
        return self.step(x) + self.twice

    @gi.fuse
    def call(self, x):
        return self.again(x) + x


class Quicker(Stepper):
    speed = 10.0

    @gi.fuse
    def step(self, x):
        return super().step(x) * self.speed


@pytest.mark.parametrize("cls", [Stepper, Quicker])
def test_attributes_of_fused_methods_that_it_calls_are_followed(device, monkeypatch, cls):
    x = gi.asarray([1.0], device=device)
    one, other = cls(2.0), cls(5.0)
    speed = getattr(cls, "speed", 1.0)
    assert one.call(x).tolist() == [1 + 2 * speed]
    one.rate = 3.0
    assert one.call(x).tolist() == [1 + 3 * speed]
    one.bias = 4.0
    assert one.call(x).tolist() == [9 + 3 * speed]
    assert other.call(x).tolist() == [1 + 5 * speed]
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    assert one.call(x).tolist() == [9 + 21 * speed]
    assert gi.fuse(one.call)(x).tolist() == [9 + 21 * speed]
    if cls is Quicker:
        one.speed = 1.0
        assert one.call(x).tolist() == [30.0]


def test_what_a_fused_function_among_the_attributes_mentions_is_followed(device, monkeypatch):
    one = Layer(1.0, gi.ones(1, device=device))
    one.act = gi.fuse(lambda x: x * FACTOR)
    apply = gi.fuse(types.MethodType(lambda self, x: self.act(x), one))
    x = gi.asarray([1.0], device=device)
    assert apply(x).tolist() == [1.0]
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    assert apply(x).tolist() == [7.0]


def test_an_object_that_is_gone_is_not_none(device):
    class Unit:
        pass

    class Model:
        unit = None

        @gi.fuse
        def call(self, x):
            return x if self.unit is None else x * 2

    one, x = Model(), gi.asarray([1.0], device=device)
    one.unit = Unit()
    assert one.call(x).tolist() == [2.0]
    one.unit = None
    assert one.call(x).tolist() == [1.0]

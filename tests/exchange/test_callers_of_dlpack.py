"""What a library's own code receives from __dlpack__, which does not name its consumer."""

import gc
import sys
import threading
import types
import weakref

import numpy as np
import pytest
from helpers.profile import functions_of

import gpuinterop as gi
from gpuinterop.converters.plan import Rules

SOURCE = "def take(x, **keywords): return x.__dlpack__(max_version=(1, 0), **keywords)"


def code_of(**names):
    """A namespace as that of a module, with a function that exports an array."""
    exec(SOURCE, names)
    return names


def accepts(namespace, x):
    try:
        namespace["take"](x)
    except gi.ContiguityError:
        return False
    return True


@pytest.fixture
def toy(clean, monkeypatch):
    """Registers a library whose modules begin with `toy`."""
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))

    def register(**rules):
        module = types.ModuleType("toy_converter")
        module.RULES = Rules("toy", "to_toy", **rules)
        gi.converters.register(gi.converters.Backend("toy", "toy", converter=module))

    return register


def test_rules_of_a_registered_library_hold_for_its_modules_only(toy, device):
    x = gi.ones((2, 3), device=device)[::-1]
    inside = [code_of(__name__="toy"), code_of(__name__="toy.consumer")]
    outside = [
        code_of(__name__="toys.consumer"),
        code_of(__name__="__main__"),
        code_of(),
        code_of(__name__=3),
    ]
    assert all(accepts(code, x) for code in inside + outside)
    toy(negative=False)
    for _ in range(2):
        assert [accepts(code, x) for code in inside + outside] == [False] * 2 + [True] * 4
    with pytest.raises(gi.ContiguityError) as raised:
        inside[1]["take"](x)
    plan = gi.explain(x, "toy")
    assert (raised.value.expected, raised.value.got) == (plan.reason, plan.got)
    assert all(accepts(code, x[::-1]) for code in inside)
    inside[0]["take"](x, copy=True)


@pytest.mark.driver
def test_a_copy_for_another_device_has_no_negative_strides(toy):
    toy(negative=False)
    taken = code_of(__name__="toy")["take"](gi.ones(3, device="cuda:0")[::-1], dl_device=(1, 0))
    assert np.from_dlpack(gi.from_dlpack(taken)).tolist() == [1, 1, 1]


def test_writes_wait_for_a_registered_library_that_reads_later(toy, device, monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    toy(reads_later=True)
    x = gi.zeros(64, device=device)
    held = [code_of(__name__="other")["take"](x)]
    x.fill(1)
    held = [code_of(__name__="toy")["take"](x)]
    gi.zeros(64, device=device).fill(1)
    assert held
    thread = threading.Timer(0.2, held.clear)
    thread.start()
    x.fill(2)
    assert not held
    assert x.tolist() == [2] * 64
    thread.join()


def test_a_module_is_judged_once():
    x, code = gi.ones(3, device="cpu"), code_of(__name__="user.module")
    assert functions_of(lambda: code["take"](x)) == ["take"]


def test_namespaces_are_neither_kept_nor_confused(toy):
    toy(negative=False)
    x, names = (
        gi.ones(3, device="cpu")[::-1],
        [f"{root}.part{i}" for i in range(40) for root in ("toy", "user")],
    )
    for _ in range(2):
        for name in names:
            code = code_of(__name__=name, held=gi.ones(1, device="cpu"))
            held = weakref.ref(code["held"])
            assert accepts(code, x) is name.startswith("user")
            del code
            gc.collect()
            assert held() is None


@pytest.mark.parametrize(
    ("layout", "shared"),
    [("any", "cfgb"), ("c", "c"), ("forc", "cf"), ("compact", "cf")],
)
def test_layout_of_the_rules_limits_the_strides_that_a_caller_receives(toy, device, layout, shared):
    toy(layout=layout)
    x = gi.ones((2, 3), device=device)
    views = {"c": x, "f": x.T, "g": x[:, ::2], "b": x[:, :1].broadcast_to((2, 3))}
    code = code_of(__name__="toy")
    assert [name for name in views if accepts(code, views[name])] == list(shared)
    assert all(code["take"](view, copy=True) for view in views.values())


@pytest.mark.jax
def test_jax_is_refused_with_the_words_of_its_plan():
    jax = pytest.importorskip("jax")
    x = gi.ones((64, 2), device="cpu")
    for view in (x[::-1], x[::2], x[:1].broadcast_to((4, 2)), x.astype("float64")[::2]):
        plan = gi.explain(view.astype("float32") if view.dtype == "float64" else view, "jax")
        for call in (jax.dlpack.from_dlpack, jax.numpy.from_dlpack):
            with pytest.raises(gi.ContiguityError) as raised:
                call(view)
            if view.dtype == "float32":
                assert (raised.value.expected, raised.value.axis) == (plan.reason, plan.axis)
    assert jax.dlpack.from_dlpack(x.T).shape == (2, 64)

"""Warm calls of fused functions: the core serves them, and sees whatever changes."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest

import gpuinterop as gi

SCALE = 2.0


def frames(call) -> list[str]:
    """The Python functions that a call runs, after three others."""
    for _ in range(3):
        call()
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: event == "call" and seen.append(frame.f_code.co_name))
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen[1:]  # without `call` itself


WARM = {
    "arrays": (lambda x, y: x * y + x, ()),
    "a global": (lambda x, y: x * SCALE + y, ()),
    "a float": (lambda x, y, rate: x - y * rate, (0.5,)),
    "constants": (lambda x, y, n, up, how: x * n + y if up else y, (300, True, "fast")),
    "a float that it looks at": (lambda x, y, rate: x if rate > 1 else x - y * rate, (0.5,)),
    "several results": (lambda x, y: (x + y, x - y), ()),
}


@pytest.mark.parametrize("name", WARM)
def test_a_warm_call_is_one_python_function(device, name):
    function, more = WARM[name]
    fused = gi.fuse(function)
    x, y = (gi.asarray(np.array(v, np.float32), device=device) for v in ([1, 2], [3, 4]))
    several = name == "several results"
    outs = tuple(gi.empty(2, device=device) for _ in range(1 + several))
    out = outs if several else outs[0]
    plain, into = frames(lambda: fused(x, y, *more)), frames(lambda: fused(x, y, *more, out=out))
    host = ["_host", "_host_now", "as_numpy_view", "host"]  # NumPy's part begins here
    for found in (plain, into):
        assert found[0] == "__call__"
        assert found[1:] == [] if device != "cpu" else found[1] in host


def test_what_is_bound_anew_is_seen_by_warm_calls(device, monkeypatch):
    factor = 3.0
    held = gi.asarray(np.ones(1, np.float32), device=device)
    fused = gi.fuse(lambda x: x * SCALE * factor + held)
    x = gi.asarray(np.ones(1, np.float32), device=device)
    assert [fused(x).tolist() for _ in range(4)] == [[7.0]] * 4
    factor = 5.0
    assert [fused(x).tolist() for _ in range(4)] == [[11.0]] * 4
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    assert [fused(x).tolist() for _ in range(4)] == [[6.0]] * 4
    held = gi.asarray(np.zeros(1, np.float32), device=device)
    assert [fused(x).tolist() for _ in range(4)] == [[5.0]] * 4
    held[...] = 2
    assert [fused(x).tolist() for _ in range(4)] == [[7.0]] * 4
    monkeypatch.delitem(globals(), "SCALE")
    with pytest.raises(NameError):
        fused(x)


def test_arguments_of_other_kinds_are_told_apart_by_warm_calls(device):
    fused = gi.fuse(lambda x, n: x / n)
    x, y = (gi.GpuArray(np.ones(1, t), device=device) for t in ("float32", "float64"))
    strict = gi.CudaNdarray(np.ones(1, np.float32), device=device)
    zero = gi.GpuArray(np.ones(1, "int32"), device=device)
    with np.errstate(all="ignore"):
        for _ in range(4):
            for n in (1, 1.0, True, -0.0, 0.0, 1000):
                for one in (x, y, strict, zero):
                    found, expected = fused(one, n), one / n
                    assert (type(found), found.dtype) == (type(expected), expected.dtype)
                    assert found.get().tobytes() == expected.get().tobytes()


def test_floats_that_are_constants_are_compared_by_their_bits(device):
    fused = gi.fuse(lambda x, n: x * (1.0 if str(n) == "-0.0" else 2.0))
    x = gi.asarray(np.ones(1, np.float32), device=device)
    for _ in range(4):
        assert fused(x, -0.0).tolist() == [1.0]
        assert fused(x, 0.0).tolist() == [2.0]


def test_more_kinds_than_are_kept(device):
    fused = gi.fuse(lambda x, n: x * n)
    x = gi.asarray(np.ones(1, np.float32), device=device)
    for _ in range(4):
        assert [fused(x, n).tolist() for n in range(20)] == [[float(n)] for n in range(20)]
    assert len(fused._outside.warm) == 8


def test_lists_and_tuples_of_one_come_back_from_warm_calls(device):
    x = gi.asarray(np.ones(1, np.float32), device=device)
    both, alone = gi.fuse(lambda x: [x, x + 1]), gi.fuse(lambda x: (x + 1,))
    for _ in range(4):
        assert [v.tolist() for v in both(x)] == [[1.0], [2.0]]
        assert isinstance(both(x), list)
        assert isinstance(alone(x), tuple)


def test_warm_calls_keep_nothing_alive(device):
    host = np.ones(1, np.float32)
    memory = weakref.ref(host)
    held = gi.asarray(host, device="cpu")
    if device != "cpu":
        held = gi.asarray(host, device=device)
        memory = weakref.ref(held)
    del host

    def around(held):
        def function(x):
            return x + held if function else x

        function = gi.fuse(function)  # refers to itself
        return function

    fused = around(held)
    x = gi.asarray(np.ones(1, np.float32), device=device)
    for _ in range(4):
        fused(x)
    assert len(fused._outside.warm) == 1
    del fused, held
    gc.collect()
    assert memory() is None


class Model:
    def __init__(self):
        self.rate, self.shift = 2.0, 3

    @gi.fuse
    def step(self, x, y):
        return x * self.rate + self.shift - y


def test_a_warm_call_of_a_method_looks_at_its_instance_only(device):
    model = Model()
    x, y = (gi.asarray(np.array(v, np.float32), device=device) for v in ([1, 2], [3, 4]))
    found = frames(lambda: model.step(x, y))
    own = ["__get__", "__init__", "__call__", "fused", "_read", "_is_as_before", "__call__"]
    assert found[: len(own)] == own
    assert device == "cpu" or found == own

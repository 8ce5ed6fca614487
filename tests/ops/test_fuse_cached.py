"""Cached calls of fused functions and of kernels from CUDA text run no Python code of gpuinterop."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gpuinterop as gi

HOST = {"_host", "_host_now", "as_numpy_view"}  # "cpu" computes in Python


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


class Model:
    def __init__(self, rate):
        self.rate = rate

    @gi.fuse
    def step(self, x, y):
        return x - y * self.rate


MODEL = Model(0.5)
SCALE = 2.0
FUSED = {
    "arrays": (gi.fuse(lambda x, y: x * y + x), ()),
    "a global": (gi.fuse(lambda x, y: x * SCALE + y), ()),
    "a number": (gi.fuse(lambda x, y, rate: x - y * rate), (0.5,)),
    "constants": (gi.fuse(lambda x, y, n, up, how: x * n + y if up else y), (300, True, "fast")),
    "a static number": (
        gi.fuse(lambda x, y, rate: x if rate > 1 else x - y * rate, static_argnames="rate"),
        (0.5,),
    ),
    "several results": (gi.fuse(lambda x, y: (x + y, x - y)), ()),
    "a method": (lambda *args, **options: MODEL.step(*args, **options), ()),
    "CUDA text": (gi.ElementwiseKernel("T x, T y, T n", "T z", "z = x * n + y",
                                       host=lambda x, y, n: x * n + y), (0.5,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_a_cached_call_runs_no_python(device, name):
    function, more = FUSED[name]
    x, y = (gi.asarray(np.array(v, np.float32), device=device) for v in ([1, 2], [3, 4]))
    out = tuple(gi.empty(2, device=device) for _ in range(2))
    out = out if name == "several results" else out[0]
    for call in (lambda: function(x, y, *more), lambda: function(x, y, *more, out=out)):
        found = [f for f in frames(call) if f != "<lambda>"]
        assert found == [] if device != "cpu" else found[0] in HOST
    assert out is function(x, y, *more, out=out) or name == "several results"


def test_cached_calls_distinguish_arguments(device):
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


def test_cached_calls_see_the_number_of_dimensions(device):
    fused = gi.fuse(lambda x: x * x.ndim)
    for _ in range(3):
        for ndim in (0, 1, 2):
            assert fused(gi.ones((1,) * ndim, device=device)).get().ravel().tolist() == [ndim]


def test_numbers_out_of_a_parameters_range_are_refused_in_cached_calls(device):
    kernel = gi.ElementwiseKernel("float32 x, int8 n", "float32 z", "z = x * n",
                                  host=lambda x, n: x * n)  # fmt: skip
    x = gi.ones(1, device=device)
    for _ in range(4):
        assert kernel(x, 100).tolist() == [100]
        for n in (128, 10**400):
            with pytest.raises(gi.DTypeError):
                kernel(x, n)


def test_lists_and_tuples_of_one_come_back_from_cached_calls(device):
    x = gi.asarray(np.ones(1, np.float32), device=device)
    both, alone = gi.fuse(lambda x: [x, x + 1]), gi.fuse(lambda x: (x + 1,))
    for _ in range(4):
        assert [v.tolist() for v in both(x)] == [[1.0], [2.0]]
        assert isinstance(both(x), list)
        assert isinstance(alone(x), tuple)

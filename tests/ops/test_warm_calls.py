"""How many Python functions a warm call on a GPU runs: those that docs/operations.md states, no more."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from ops_place import FAKE

import gpuinterop as gi

CUDA = pytest.param("cuda:0", marks=[] if FAKE else pytest.mark.gpu)
HOST = np.arange(20, dtype="float32").reshape(4, 5)


class Operands:
    def __init__(self, device):
        self.x, self.y = (gi.CudaNdarray(HOST, device=device) for _ in "xy")
        self.out = gi.CudaNdarray(HOST, device=device)
        self.wide = gi.GpuArray(HOST, dtype="float64", device=device)
        self.places = gi.GpuArray([2, 0], dtype="int64", device=device)
        self.axpy = gi.ElementwiseKernel("float32 a, float32 x", "float32 z", "z = a * x", "axpy")


CALLS = {
    "x + y": (0, lambda o: o.x + o.y),
    "x + 1": (0, lambda o: o.x + 1),
    "x > y": (0, lambda o: o.x > o.y),
    "x ** 2": (0, lambda o: o.x**2),
    "x[::-1] * x[0]": (0, lambda o: o.x[::-1] * o.x[0]),
    "wide * 2": (0, lambda o: o.wide * 2),
    "divmod": (0, lambda o: divmod(o.x, o.y)),
    "exp": (0, lambda o: gi.exp(o.x)),
    "exp, out": (0, lambda o: gi.exp(o.x, out=o.out)),
    "assignment": (0, lambda o: o.out.__setitem__(Ellipsis, o.x)),
    "x.exp()": (1, lambda o: o.x.exp()),
    "where": (1, lambda o: gi.where(o.x, o.x, o.y)),
    "numpy.exp": (1, lambda o: np.exp(o.x)),
    "numpy.add, out": (1, lambda o: np.add(o.x, o.y, out=o.out)),
    "clip": (1, lambda o: gi.clip(o.x, 0, 1)),
    "round": (1, lambda o: o.x.round(2)),
    "copy": (1, lambda o: o.x.copy()),
    "fill": (1, lambda o: o.out.fill(1)),
    "ElementwiseKernel": (3, lambda o: o.axpy(2.0, o.x)),
    "astype": (6, lambda o: o.x.astype("float64")),
    "concatenate": (12, lambda o: gi.concatenate([o.x, o.y])),
    "take": (10, lambda o: o.x.take(o.places, axis=0, mode="clip")),
}


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("name", CALLS)
def test_python_functions_of_a_warm_call(device, name):
    stated, call = CALLS[name]
    operands = Operands(device)
    for _ in range(3):
        call(operands)
    run = []
    sys.setprofile(lambda frame, event, _: event == "call" and run.append(frame.f_code.co_name))
    try:
        call(operands)
    finally:
        sys.setprofile(None)
    functions = run[1:]  # the first one is the call in this file
    # Comprehensions are functions of their own before Python 3.12.
    assert len(functions) <= stated, functions

"""How many Python functions a cached call on a GPU runs: no more than docs/operations.md states."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(20, dtype="float32").reshape(4, 5)


class Operands:
    def __init__(self, device):
        self.x, self.y = (gi.CudaNdarray(HOST, device=device) for _ in "xy")
        self.out = gi.CudaNdarray(HOST, device=device)
        self.wide = gi.GpuArray(HOST, dtype="float64", device=device)
        self.whole = gi.GpuArray(HOST, dtype="int32", device=device)
        self.places = gi.GpuArray([2, 0], dtype="int64", device=device)
        self.axpy = gi.ElementwiseKernel("float32 a, float32 x", "float32 z", "z = a * x", "axpy")


CALLS = {
    "x + y": lambda o: o.x + o.y,
    "x + 1": lambda o: o.x + 1,
    "x > y": lambda o: o.x > o.y,
    "x ** 2": lambda o: o.x**2,
    "x[::-1] * x[0]": lambda o: o.x[::-1] * o.x[0],
    "wide * 2": lambda o: o.wide * 2,
    "divmod": lambda o: divmod(o.x, o.y),
    "exp": lambda o: gi.exp(o.x),
    "exp, out": lambda o: gi.exp(o.x, out=o.out),
    "x.exp()": lambda o: o.x.exp(),
    "x.conj()": lambda o: o.x.conj(),
    "where": lambda o: gi.where(o.x, o.x, o.y),
    "where, out": lambda o: gi.where(o.x, 1.0, o.y, out=o.out),
    "copy": lambda o: o.x.copy(),
    "copy in memory order": lambda o: o.x.copy(order="K"),
    "copy, columns": lambda o: o.x.copy(order="F"),
    "fill": lambda o: o.out.fill(1),
    "fill, integers": lambda o: o.whole.fill(-1),
    "assignment": lambda o: o.out.__setitem__(Ellipsis, o.x),
    "assignment of an integer": lambda o: o.whole.__setitem__(0, 3),
    "numpy.exp": lambda o: np.exp(o.x),
    "numpy.add": lambda o: np.add(o.x, 1),
    "numpy.add, out": lambda o: np.add(o.x, o.y, out=o.out),
    "numpy.divmod": lambda o: np.divmod(o.x, o.y),
    "x.sum()": lambda o: o.x.sum(),
    "sum, axis": lambda o: gi.sum(o.x, axis=0),
    "x.mean()": lambda o: o.x.mean(),
    "x.argmax()": lambda o: o.x.argmax(axis=1),
    "x.var()": lambda o: o.x.var(ddof=1, keepdims=True),
    "ElementwiseKernel": lambda o: o.axpy(2.0, o.x),
    "ElementwiseKernel, out": lambda o: o.axpy(2, o.x, out=o.out),
    "fuse": lambda o: FUSED(o.x, o.y),
}
PRODUCTS = {
    "x @ y": lambda o: o.x @ o.y.T,
    "dot": lambda o: gi.dot(o.x, o.y.T),
    "x.dot": lambda o: o.x.dot(o.y.T),
    "matmul": lambda o: gi.matmul(o.x, o.y.T),
}
# Calls that run Python, for the reasons in docs/operations.md.
SLOWER = {
    "clip": (1, lambda o: gi.clip(o.x, 0, 1)),
    "clip, a minimum": (2, lambda o: o.x.clip(o.y)),
    "clip of integers": (6, lambda o: o.whole.clip(2, max=5)),
    "round": (2, lambda o: o.x.round(2)),
    "round of integers": (10, lambda o: gi.round(o.whole, -1)),
    "astype": (8, lambda o: o.x.astype("float64")),
    "astype, a type": (8, lambda o: gi.astype(o.x, np.int32)),
    "astype, the same": (8, lambda o: o.x.astype("float32", copy=False)),
    "set": (1, lambda o: o.out.set(o.x)),
    "take": (13, lambda o: o.x.take(o.places, axis=0, mode="clip")),
    "take, out": (14, lambda o: gi.take(o.x, o.places, 0, o.out[:2], "wrap")),
    "take, flat": (16, lambda o: o.x.take(o.places, mode="wrap")),
    "concatenate": (17, lambda o: gi.concatenate([o.x, o.y])),
    "concatenate, dtypes": (24, lambda o: gi.concatenate((o.wide, o.whole), axis=1)),
    "join": (24, lambda o: gi.join(0, o.x, o.y)),
    "ptp": (1, lambda o: o.x.ptp()),
    "numpy.matmul": (7, lambda o: np.matmul(o.x, o.y.T)),
    "numpy.round": (4, lambda o: np.round(o.x)),
    "numpy.where": (4, lambda o: np.where(o.x, o.x, o.y)),
    "numpy.sum": (6, lambda o: np.sum(o.x)),
    "norm": (5, lambda o: o.x.norm()),
}
FUSED = gi.fuse(lambda x, y: x * y + 1)


def functions_of(call, operands):
    """The names of the Python functions that the call runs once it is cached."""
    for _ in range(3):
        call(operands)
    run = []
    sys.setprofile(lambda frame, event, _: event == "call" and run.append(frame.f_code.co_name))
    try:
        call(operands)
    finally:
        sys.setprofile(None)
    return run[1:]  # the first one is the call in this file


@pytest.mark.driver
@pytest.mark.parametrize("name", CALLS)
def test_a_cached_call_runs_no_python_function(device, name):
    assert functions_of(CALLS[name], Operands(device)) == []


@pytest.mark.driver
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_cached_product_runs_no_python_function(device, name):
    operands = Operands(device)
    # The transposed view is made by no Python function either.
    assert functions_of(PRODUCTS[name], operands) == []


@pytest.mark.driver
@pytest.mark.parametrize("name", SLOWER)
def test_python_functions_of_other_cached_calls(device, name):
    stated, call = SLOWER[name]
    functions = functions_of(call, Operands(device))
    # Comprehensions are functions of their own before Python 3.12.
    assert 0 < len(functions) <= stated, functions

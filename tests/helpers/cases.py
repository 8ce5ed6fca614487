"""What the tests of several converters share."""

import importlib
import re

import numpy as np
import pytest
from doubles.placed import placed

import gpuinterop as gi


def host(*shape, dtype="float32"):
    """Numbers from 0 on."""
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def aligned(count, dtype, offset=0):
    """`count` elements that start `offset` bytes past a multiple of 64, with different values."""
    return placed((np.arange(count) % 13).astype(dtype), offset)


MULTIPLY = """
extern "C" __global__ void multiply_them(float *dest, float *a, float *b, int n)
{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dest[i] = a[i] * b[i];
}
"""


def frozen(a):
    a.flags.writeable = False
    return a


def agree(x, to="gpuinterop", copyif=False, **options):
    """(the plan, the result, the error) of a conversion that must do what explain() says of it."""
    with gi.count_copies() as asked:
        plan = gi.explain(x, to, copyif, **options)
    assert asked.count == 0, "explain copied"
    made = error = None
    with gi.count_copies() as copied:
        try:
            made = gi.to(x, to, copyif, **options)
        except gi.GpuInteropError as raised:
            error = raised
    assert plan.refused == (error is not None), f"{plan}\nthe conversion said: {error!r}"
    if error is None:
        moved = plan.copied and plan.bytes > 0
        assert (copied.count > 0, copied.bytes) == (moved, plan.bytes), plan
        assert not plan.copied or "pass copyif" not in str(plan) + repr(plan)
    else:
        assert copied.count == 0, "copied, and then refused"
        assert error.where, repr(error)
        assert (type(error), error.reason, error.axis) == (plan.error, plan.code, plan.axis), plan
        assert (error.where, error.expected, error.got, error.fix) == (
            plan.where, plan.reason, plan.got, plan.fix
        )  # fmt: skip
    return plan, made, error


class Fresh:
    """Allocates new memory at each export."""

    def __dlpack__(self, **options):
        return gi.ones(3, device="cpu").__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class Liar(gi.CudaNdarray):
    """Shows another geometry than it has."""

    shape = property(lambda self: (1000, 1000))
    strides = property(lambda self: (4000, 4))
    ptr = gpudata = property(lambda self: 4096)
    dtype = property(lambda self: np.dtype("float64"))
    ndim = property(lambda self: 7)
    size = property(lambda self: 7000)
    itemsize = property(lambda self: 8)
    readonly = property(lambda self: True)
    device = property(lambda self: gi.device("cpu"))


def load(name, module=None):
    """A library, or a skip of the test."""
    return pytest.importorskip(module or name)


def ready_pycuda():
    """PyCUDA's gpuarray, in the primary context."""
    load("pycuda")
    gi.converters.pycuda.init()
    return importlib.import_module("pycuda.gpuarray")


def refused(obj, error, words="", **options):
    """Both the plan and the conversion refuse, with the same words."""
    for copyif in (False, True):
        _, _, raised = agree(obj, copyif=copyif, **options)
        assert isinstance(raised, error)
        assert re.search(words, str(raised))

"""Layouts and dtypes that every converter is tried with, made from NumPy arrays."""

import importlib
import re

import numpy as np
import pytest

import gpuinterop as gi

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128 bfloat16 float8_e4m3fn int4 float4_e2m1fn"
).split()


def dtype_from_id(name):
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name) if name.startswith(("bfloat", "float8")) else name)


def aligned(count, dtype, offset=0):
    """`count` elements that start `offset` bytes past a multiple of 64, with different values."""
    dtype = dtype_from_id(dtype) if isinstance(dtype, str) else dtype
    raw = np.zeros(count * dtype.itemsize + 192, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    found = raw[start : start + count * dtype.itemsize].view(dtype)
    found[...] = (np.arange(count) % 13).astype(dtype)
    return found


def _flat(n, dtype, offset=0):
    return aligned(n, dtype, offset)


MULTIPLY = """
extern "C" __global__ void multiply_them(float *dest, float *a, float *b, int n)
{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dest[i] = a[i] * b[i];
}
"""

LAYOUTS = {
    "c": lambda d: _flat(12, d).reshape(3, 4),
    "f": lambda d: _flat(12, d).reshape(4, 3).T,
    "sliced": lambda d: _flat(48, d).reshape(6, 8)[::2, ::2],
    "rows": lambda d: _flat(24, d).reshape(6, 4)[::2],
    "reversed": lambda d: _flat(12, d).reshape(3, 4)[::-1],
    "reversed_columns": lambda d: _flat(12, d).reshape(3, 4)[:, ::-1],
    "broadcast": lambda d: np.lib.stride_tricks.as_strided(
        _flat(4, d), (3, 4), (0, dtype_from_id(d).itemsize)
    ),
    "offset": lambda d: _flat(14, d)[2:].reshape(3, 4),
    "permuted": lambda d: _flat(24, d).reshape(2, 3, 4).transpose(2, 0, 1),
    "size_1": lambda d: np.lib.stride_tricks.as_strided(
        _flat(12, d), (3, 1, 4), tuple(dtype_from_id(d).itemsize * k for k in (4, 777, 1))
    ),
    "row": lambda d: _flat(5, d).reshape(1, 5),
    "column": lambda d: _flat(5, d).reshape(5, 1),
    "vector": lambda d: _flat(7, d),
    "strided_vector": lambda d: _flat(14, d)[::2],
    "zero_d": lambda d: _flat(1, d).reshape(()),
    "empty": lambda d: _flat(0, d).reshape(0, 4),
    "empty_sliced": lambda d: _flat(12, d).reshape(3, 4)[3:, ::-1],
    "readonly": lambda d: frozen(_flat(12, d).reshape(3, 4)),
}


def frozen(a):
    a.flags.writeable = False
    return a


def make(layout, dtype="float32"):
    """(a NumPy array of that layout, our array over the same memory)."""
    host = LAYOUTS[layout](dtype)
    return host, gi.converters.from_numpy(host)


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
        assert all((error.where, error.expected, error.got, error.fix)), repr(error)
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

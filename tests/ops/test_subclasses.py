"""The class of a result: of operands of one family the most derived one, wherever it stands."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import gpuinterop as gi


class Sub(gi.CudaNdarray):
    pass


class SubSub(Sub):
    pass


class Other(gi.GpuArray):
    pass


CALLS = {
    "x + y": lambda x, y: x + y,
    "maximum": lambda x, y: gi.maximum(x, y),
    "numpy.add": lambda x, y: np.add(x, y),
    "where": lambda x, y: gi.where(x > 0, x, y),
    "concatenate": lambda x, y: gi.concatenate([x, y]),
    "stack": lambda x, y: gi.stack([x, y]),
    "divmod": lambda x, y: divmod(x, y)[1],
    "fused": lambda x, y: gi.fuse(lambda a, b: a * b + 1)(x, y),
}
PRODUCTS = {
    "x @ y": lambda x, y: x @ y,
    "dot": lambda x, y: gi.dot(x, y),
    "vector": lambda x, y: gi.dot(x, y[0]),
    "inner": lambda x, y: gi.inner(x, y),
    "addmm": lambda x, y: gi.addmm(x, y, x),
    "mapped": lambda x, y: gi.MapReduce(
        "x0 * x1", lambda v, e: (np.sum(v[0] * v[1], axis=-1),)
    )(x, y),
}  # fmt: skip


def check(call, make, plain, *derived):
    x = make(plain)
    for cls in derived:
        y = make(cls)
        assert type(call(x, y)) is type(call(y, x)) is type(call(y, y)) is cls
    assert type(call(x, x)) is plain
    if len(derived) == 2:
        assert type(call(make(derived[0]), make(derived[1]))) is derived[1]
        assert type(call(make(derived[1]), make(derived[0]))) is derived[1]


@pytest.mark.parametrize("name", CALLS)
def test_the_most_derived_class_wins(device, name):
    host = np.array([[1, 2], [3, 4]], "float32")
    check(CALLS[name], lambda cls: cls(host, device=device), gi.CudaNdarray, Sub, SubSub)
    check(CALLS[name], lambda cls: cls(host, device=device, dtype="int32"), gi.GpuArray, Other)


@pytest.mark.parametrize("name", PRODUCTS)
def test_in_products_too(device, name):
    host = np.array([[1, 2], [3, 4]], "float32")
    check(PRODUCTS[name], lambda cls: cls(host, device=device), gi.CudaNdarray, Sub, SubSub)


def test_a_cudandarray_comes_before_other_arrays(device):
    x = gi.CudaNdarray([1, 2], device=device)
    y = Other([1, 2], dtype="int16", device=device)
    assert type(x + y) is type(y + x) is gi.CudaNdarray
    assert type(gi.concatenate([y, x])) is gi.CudaNdarray
    assert type(y > x) is Other


def test_a_class_made_at_run_time_goes_with_its_arrays(device):
    """The cache of calls must not keep it, nor find its entries for a class at the same address."""
    for _ in range(3):

        class Made(gi.GpuArray):
            pass

        x = Made(np.ones((2, 3)), dtype="float32", device=device)
        assert type(x + x) is type(x.sum(0)) is type(x @ x.T) is Made
        gone = weakref.ref(Made)
        del x, Made
        gc.collect()
        assert gone() is None

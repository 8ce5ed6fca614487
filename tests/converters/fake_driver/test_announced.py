"""Every converter on the GPU x layout: the plan is what happens, and each copied byte is announced."""

from __future__ import annotations

import numpy as np
import pytest
from doubles.fake_numba import DeviceNDArray, MemoryPointer

import gpuinterop as gi
from gpuinterop import _core

LIBRARIES = ("numpy", "cupy", "numba", "pycuda", "cudamat", "gnumpy")
VIEWS = {
    "c": np.s_[:], "rows": np.s_[1:3], "sliced": np.s_[::2, ::2], "reversed": np.s_[::-1],
    "mirrored": np.s_[:, ::-1], "column": np.s_[:, 2:3], "vector": np.s_[2], "0-d": np.s_[1, 1],
    "empty": np.s_[:0],
}  # fmt: skip


@pytest.fixture(params=LIBRARIES)
def library(request):
    if request.param != "numpy":
        request.getfixturevalue(request.param)
    return request.param


def outcome(convert):
    """(the result, the refusal, what was counted)"""
    with gi.count_copies() as counted:
        try:
            return convert(), None, counted
        except gi.GpuInteropError as error:
            return None, error, counted


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("view", [*VIEWS, "transposed", "readonly"])
def test_out(library, gpu, view, copyif):
    whole = gpu(np.arange(24, dtype=np.float32).reshape(4, 6))
    x = whole.T if view == "transposed" else whole[VIEWS.get(view, np.s_[:])]
    x.readonly = view == "readonly"
    plan = gi.explain(x, library, copyif)
    made, error, counted = outcome(lambda: gi.to(x, library, copyif))
    assert plan.refused == (error is not None), f"{plan}\n{error!r}"
    assert (counted.count > 0, counted.bytes) == (plan.copied and x.size > 0, plan.bytes), plan
    if error is not None:
        assert (type(error), error.fix) == (plan.error, plan.fix)
        return
    if plan.copied and x.size:
        with gi.no_copies(), pytest.raises(gi.CopyForbiddenError) as forbidden:
            gi.to(x, library, copyif)
        assert forbidden.value.where == plan.where
        with gi.log_transfers() as crossed:
            gi.to(x, library, copyif)
        assert {transfer.where for transfer in crossed} == (
            {plan.where} if library == "numpy" else set()
        )
        assert "copyif" not in str(plan)
    if x.size:
        assert gi.shares_memory(made, x) == plan.shared


def between(library, request):
    """A foreign array whose elements lie between those of any float32 array."""
    if library == "cupy":
        cupy = request.getfixturevalue("cupy")
        base = gi.array(np.zeros(64, np.uint8), device="cuda")
        memory = cupy.cuda.UnownedMemory(base.ptr, 64, base, 0)
        return cupy.ndarray((4,), "float32", cupy.cuda.MemoryPointer(memory, 2), (6,))
    base = gi.array(np.zeros(64, np.uint8), device="cuda")
    if library == "numba":
        return DeviceNDArray(
            (4,), (6,), "float32", gpu_data=MemoryPointer(None, base.ptr + 2, 24, base)
        )
    module = request.getfixturevalue("pycuda").gpuarray
    return module.GPUArray((4,), "float32", base=base, gpudata=base.ptr + 2, strides=(6,))


@pytest.mark.parametrize("library", ["cupy", "numba", "pycuda"])
def test_in_what_no_array_of_ours_can_hold(library, request):
    request.getfixturevalue(library)
    foreign = between(library, request)
    refused = gi.explain(foreign)
    _, error, counted = outcome(lambda: gi.from_any(foreign))
    assert refused.refused
    assert (type(error), error.reason, counted.count) == (refused.error, refused.code, 0)
    copied = gi.explain(foreign, copyif=True)
    x, error, counted = outcome(lambda: gi.from_any(foreign, copyif=True))
    assert error is None
    assert copied.copied
    assert (counted.count, counted.bytes) == (1, 16) == (1, copied.bytes)
    assert (x.shape, x.dtype, x.is_c_contiguous()) == ((4,), np.float32, True)
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.from_any(foreign, copyif=True)


class Liar(gi.CudaNdarray):
    """Shows another geometry than it has."""

    shape = property(lambda self: (1000, 1000))
    strides = property(lambda self: (4000, 4))
    ptr = gpudata = property(lambda self: 4096)
    dtype = property(lambda self: np.dtype("float64"))
    device = property(lambda self: gi.device("cpu"))


def test_what_a_subclass_shows_never_reaches_another_library(library, gpu):
    x = gpu(np.arange(24, dtype=np.float32).reshape(4, 6).T.copy())
    lying = _core.view(Liar, x)
    assert gi.explain(lying, library).outcome == gi.explain(x, library).outcome
    for copyif in (False, True):
        made, error, _ = outcome(lambda copyif=copyif: gi.to(lying, library, copyif))
        if error is None:
            assert gi.from_any(made).shape == (6, 4)
        else:
            assert gi.explain(x, library, copyif).refused

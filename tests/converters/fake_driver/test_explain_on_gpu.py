"""Every converter on the GPU x layout: the plan is what happens, and each copied byte is announced."""

import gc

import numpy as np
import pytest
from doubles.fake_numba import DeviceNDArray, MemoryPointer
from doubles.fake_pycuda import values
from helpers.cases import Liar, agree

import gpuinterop as gi
from gpuinterop import converters

HOST = np.arange(24, dtype=np.float32).reshape(4, 6)
LIBRARIES = ("numpy", "cupy", "numba", "pycuda", "cudamat", "gnumpy")
VIEWS = {
    "c": np.s_[:], "rows": np.s_[1:3], "sliced": np.s_[::2, ::2], "reversed": np.s_[::-1],
    "mirrored": np.s_[:, ::-1], "column": np.s_[:, 2:3], "vector": np.s_[2], "0-d": np.s_[1, 1],
    "empty": np.s_[:0], "backwards": np.s_[::-2, ::-1],
}  # fmt: skip


@pytest.fixture(params=LIBRARIES)
def library(request):
    if request.param != "numpy":
        request.getfixturevalue(request.param)
    return request.param


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("view", [*VIEWS, "transposed", "readonly"])
def test_out(library, gpu, view, copyif):
    whole = gpu(HOST)
    x = whole.T if view == "transposed" else whole[VIEWS.get(view, np.s_[:])]
    x.readonly = view == "readonly"
    plan, made, error = agree(x, library, copyif)
    if error is not None:
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
    if x.size:
        assert gi.shares_memory(made, x) == plan.shared
    if library != "numpy":
        expected = HOST.T if view == "transposed" else HOST[VIEWS.get(view, np.s_[:])]
        back = gi.from_any(made)
        assert (back.shape, back.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(values(back), expected)


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
def test_import_of_an_unsupported_object_is_predicted(library, request):
    request.getfixturevalue(library)
    foreign = between(library, request)
    assert agree(foreign)[0].refused
    copied, x, _ = agree(foreign, copyif=True)
    assert (copied.outcome, copied.bytes) == ("copied", 16)
    assert (x.shape, x.dtype, x.is_c_contiguous()) == ((4,), np.float32, True)
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.from_any(foreign, copyif=True)


def test_overridden_attributes_never_reach_another_library(library, gpu):
    x = gpu(np.arange(24, dtype=np.float32).reshape(4, 6).T.copy())
    lying = gi.from_dlpack(x, cls=Liar)
    for copyif in (False, True):
        plan, made, error = agree(lying, library, copyif)
        assert str(plan) == str(gi.explain(x, library, copyif))
        if error is None:
            assert gi.from_any(made).shape == (6, 4)


@pytest.mark.parametrize("library", ["cupy", "numba", "pycuda"])
def test_lifetimes_and_read_only_memory(library, request, gpu):
    request.getfixturevalue(library)
    gi.to(gpu(HOST), library)  # what is made at a first use
    gc.collect()
    before = gi.memory_stats("cuda")["live_buffers"]
    made = gi.to(gpu(HOST), library)
    gc.collect()
    assert gi.memory_stats("cuda")["live_buffers"] == before + 1
    x = gi.from_any(made)
    view = x[::2]
    assert x.base is made
    assert view.base is made
    del made, x
    gc.collect()
    assert np.array_equal(values(view), HOST[::2])
    del view
    gc.collect()
    assert gi.memory_stats("cuda")["live_buffers"] == before
    x = gpu(HOST)
    x.readonly = True
    with pytest.raises(gi.ReadOnlyError, match="allow_readonly"):
        gi.to(x, library)
    for allowed in ({"allow_readonly": True}, {"copyif": True}):
        assert gi.shares_memory(gi.to(x, library, **allowed), x) == ("copyif" not in allowed)


@pytest.mark.parametrize("library", ["cupy", "numba", "pycuda"])
def test_copyif_is_a_bool_where_the_core_converts_too(library, request, gpu):
    request.getfixturevalue(library)
    to, back = getattr(converters, f"to_{library}"), getattr(converters, f"from_{library}")
    x = gpu(HOST)
    made = to(x, np.False_)
    for convert, given in ((to, x), (back, made), (gi.from_any, made)):
        with pytest.raises(gi.ArgumentTypeError, match="copyif"):
            convert(given, 1)

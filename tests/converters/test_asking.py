"""Both steps of a conversion are planned before anything is copied, and the errors say what was planned."""

from __future__ import annotations

import types

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.devices import device


def unaligned(dtype):
    return np.zeros(64 * np.dtype(dtype).itemsize + 1, "u1")[1:].view(dtype)


def conjugated():
    torch = pytest.importorskip("torch")
    return torch.ones(8, dtype=torch.complex64).conj()


SOURCES = {
    "swapped int64": lambda: np.arange(8, dtype=">i8"),
    "unaligned int64": lambda: unaligned("i8"),
    "swapped float16": lambda: np.ones(8, ">f2"),
    "swapped complex": lambda: np.ones(8, ">c8"),
    "memoryview": lambda: memoryview(np.arange(8, dtype=">i8")),
    "conjugated": conjugated,
    "scalar": lambda: np.int64(3),
    "shared": lambda: np.arange(8, dtype="f8"),
}
TARGETS = ["cudandarray", "jax", "tvm_ffi", "buffer", "torch", "numpy", "array_api_strict", "cupy"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_copied_for_a_conversion_that_is_refused(source, target):
    if target not in ("cudandarray", "buffer", "numpy"):
        pytest.importorskip(target)
    x = SOURCES[source]()
    for copyif in (False, True):
        for block in (gi.count_copies, gi.no_copies):
            error = None
            copied = types.SimpleNamespace(bytes=0)
            with block() as seen:
                plan = gi.explain(x, target, copyif)
                try:
                    gi.to(x, target, copyif)
                except gi.GpuInteropError as raised:
                    error = raised
            copied = seen or copied
            assert plan.refused == (error is not None), f"{plan}\n{error!r}"
            if error is None:
                assert copied.bytes == plan.bytes
                continue
            assert copied.bytes == 0
            assert (type(error), error.where, error.expected, error.got, error.fix) == (
                plan.error, plan.where, plan.reason, plan.got, plan.fix
            )  # fmt: skip


def test_the_names_of_old_copy_nothing_in_vain_either():
    x = np.zeros(1000, ">i8")
    with gi.count_copies() as copied, pytest.raises(gi.DTypeError):
        gi.to_cudandarray(x, copyif=True)
    assert copied.count == 0
    with gi.count_copies() as copied:
        assert gi.to_cudandarray(x.astype(">f4"), copyif=True).shape == (1000,)
    assert (copied.count, copied.bytes) == (1, 4000)


def test_a_capsule_is_used_up_by_the_conversion_alone():
    pytest.importorskip("jax")
    wide = gi.from_any(np.zeros(16)).__dlpack__()
    with pytest.raises(gi.DTypeError):
        gi.to(wide, "cudandarray", copyif=True)
    assert gi.from_any(wide).dtype == "float64"
    for target, options in (("cudandarray", {}), ("cupy", {}), ("buffer", {"copyif": True})):
        odd = "bfloat16" if target == "buffer" else "float64"
        wide = gi.zeros(16, odd, device="cpu").__dlpack__()
        plan = gi.explain(wide, target, **options)
        with pytest.raises(gi.GpuInteropError) as refused:
            gi.to(wide, target, **options)
        assert (type(refused.value), refused.value.fix) == (plan.error, plan.fix)
        assert gi.from_any(wide).dtype == odd
    for copyif in (False, True):
        x = gi.zeros(16, device="cpu")
        made = gi.to(x.__dlpack__(), "numpy", copyif)
        assert made.ctypes.data == x.ptr


# ---- options and names --------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["allow_copy", "copy_if", "force_copy", "Copyif"])
@pytest.mark.parametrize("ask", [gi.to, gi.explain])
def test_who_asks_for_a_copy_is_not_told_to_share_what_is_read_only(ask, word):
    pytest.importorskip("torch")
    with pytest.raises(gi.errors.ArgumentTypeError) as raised:
        ask(np.ones(3), "torch", **{word: True})
    assert raised.value.fix == "write copyif=..., or omit it"


def test_from_any_recommends_no_option_that_it_refuses():
    for x in (np.ones(3), gi.ones(3, device="cpu"), 3):
        for word in ("allow_readonly", "alow_readonly", "stream"):
            with pytest.raises(gi.errors.ArgumentTypeError) as raised:
                gi.from_any(x, **{word: True})
            assert "allow_readonly" not in raised.value.expected + raised.value.fix


@pytest.mark.parametrize(
    "library",
    ["numpy", "torch", "jax", "tvm_ffi", "buffer", "array_api_strict", "gpuinterop", "cudandarray"],
)
def test_every_library_takes_allow_readonly(library):
    if library not in ("numpy", "buffer", "gpuinterop", "cudandarray"):
        pytest.importorskip(library)
    x = gi.zeros(16, device="cpu")
    x.readonly = True
    host = np.zeros(16, np.float32)
    for source in (x, host):
        assert not gi.explain(source, library, True, allow_readonly=True).refused
        assert gi.to(source, library, True, allow_readonly=True) is not None
        for ask in (gi.to, gi.explain):
            with pytest.raises(gi.errors.ArgumentTypeError, match="allow_readonly=True or False"):
                ask(source, library, True, allow_readonly="yes")
    assert gi.shares_memory(gi.to(x, library, allow_readonly=True), x)


def test_a_module_or_class_in_the_place_of_a_name_is_answered_with_the_name():
    torch = pytest.importorskip("torch")
    for given, name in ((np, "numpy"), (np.ndarray, "numpy"), (torch, "torch"),
                        (torch.Tensor, "torch"), (torch.nn, "torch")):  # fmt: skip
        for ask in (gi.to, gi.explain):
            with pytest.raises(gi.ConversionTypeError) as raised:
                ask(np.ones(3), given)
            assert raised.value.fix == f"write {name!r}"


@pytest.mark.parametrize("name", ["GPUINTEROP", "Any", "cudaNdArray", "CudaNdarray", "cudandarray"])
def test_our_own_names_are_taken_in_capitals_or_not(name):
    host = np.ones(3, np.float32)
    assert gi.explain(host, name).shared
    assert gi.to(host, name).ptr == host.ctypes.data
    x = gi.zeros(3, device="cpu")
    assert gi.to(x, name) is x


def test_our_own_names_are_among_the_nearest():
    with pytest.raises(gi.ConversionTypeError) as raised:
        gi.to(np.ones(3), "cudandaray")
    assert raised.value.fix == "write 'cudandarray'"


def test_without_a_gpu_no_fix_moves_to_one(monkeypatch):
    from gpuinterop import _core

    for count, word in ((0, "there is no GPU here"), (1, "move it explicitly")):
        monkeypatch.setattr(_core, "cuda_device_count", lambda count=count: count)
        fix = gi.explain(gi.zeros(3, device="cpu"), "pycuda").fix.partition("; and")[0]
        assert fix.startswith(word)
        assert fix.endswith("x.to_device('cuda')")


def test_dlpacks_own_names_of_devices():
    assert device(("kDLCPU", 0)) == device("cpu")
    from gpuinterop.foreign_handles import CUDA, device_pair

    assert device_pair(("kDLCUDA", 1)) == (CUDA, 1)


# ---- torch's pending signs ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "bool",
                                   "float32", "bfloat16", "int8", "complex64"])  # fmt: skip
def test_a_pending_negation_is_carried_out_or_refused_by_the_plan(dtype):
    torch = pytest.importorskip("torch")
    t = torch._neg_view(torch.ones(3).to(getattr(torch, dtype)))
    plan = gi.explain(t, copyif=True)
    assert plan.copied == (dtype in ("float32", "bfloat16", "int8", "complex64"))
    with gi.count_copies() as copied:
        if plan.copied:
            gi.from_any(t, copyif=True)
        else:
            with pytest.raises(gi.DTypeError) as raised:
                gi.from_any(t, copyif=True)
            assert (plan.error, plan.got) == (gi.DTypeError, raised.value.got)
            assert gi.from_any(torch._neg_view(t)).shape == (3,)  # as the fix says
    assert copied.bytes == plan.bytes


class Speaks:
    """Of no known library, with elements between addresses."""

    def __init__(self, host):
        self.__array_interface__ = host.__array_interface__
        self.host = host


@pytest.mark.parametrize("target", ["gpuinterop", "numpy"])
def test_a_forbidden_copy_of_an_unknown_object_is_foretold_in_its_own_words(target):
    odd = Speaks(unaligned("f4"))
    with gi.no_copies():
        plan = gi.explain(odd, target, True)
        with pytest.raises(gi.CopyForbiddenError) as raised:
            gi.to(odd, target, True)
    assert plan.refused
    assert plan.got == raised.value.got == "copy within host memory, 256 bytes"

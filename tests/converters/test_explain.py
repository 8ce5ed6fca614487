"""`explain` against what really happens: every library here x layout x dtype x copyif."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from cases import DTYPES, LAYOUTS, make

import gpuinterop as gi


def _bytes(host):
    """The elements in C order, as bytes: compares dtypes that NumPy cannot."""
    flat = np.ascontiguousarray(host)
    return flat.reshape(-1).view(np.uint8)


def _values(result, library):
    """The result's elements as bytes, read by the library's own means."""
    if library == "torch":
        import torch

        return result.contiguous().reshape(-1).view(torch.uint8).numpy()
    if library == "tvm_ffi":
        result = gi.converters.to_numpy(gi.converters.from_tvm_ffi(result))
    if library == "cuda_core":
        result = gi.converters.to_numpy(gi.converters.from_cuda_core(result))
    return _bytes(np.asarray(result))


def _pointer(result, library):
    if library == "torch":
        return result.data_ptr()
    if library == "jax":
        return result.unsafe_buffer_pointer()
    if library == "tvm_ffi":
        return result.data_ptr()
    if library == "cuda_core":
        return result.ptr
    return np.asarray(result).ctypes.data


def _options(library):
    if library == "array_api":
        return {"xp": pytest.importorskip("array_api_strict")}
    return {}


PACKAGES = {
    "numpy": "numpy",
    "torch": "torch",
    "jax": "jax",
    "tvm_ffi": "tvm_ffi",
    "cuda_core": "cuda.core",
    "array_api": "array_api_strict",
}


@pytest.fixture(params=[False, True], ids=["", "copyif"])
def copyif(request):
    return request.param


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("library", PACKAGES)
def test_explain_is_what_the_conversion_does(library, layout, copyif):
    pytest.importorskip(PACKAGES[library])
    options = _options(library)
    for dtype in DTYPES:
        host, x = make(layout, dtype)
        with gi.no_copies() if not copyif else gi.count_copies() as counted:
            plan = gi.explain(x, library, copyif, **options)
        if copyif:
            assert counted.count == 0, "explain copied"
        label = f"{library} {layout} {dtype} copyif={copyif}: {plan}"
        result = error = None
        try:
            with gi.count_copies() as counted:
                result = gi.to(x, library, copyif, **options)
        except gi.GpuInteropError as raised:
            error = raised
        assert plan.refused == (error is not None), f"{label}\nthe conversion said: {error!r}"
        if error is not None:
            assert type(error) is plan.error, label
            assert (error.reason, error.axis, error.fix) == (plan.code, plan.axis, plan.fix)
            assert all((error.where, error.expected, error.got, error.fix)), label
            continue
        if library == "jax":
            result.block_until_ready()
        same = _pointer(result, library) == host.ctypes.data
        if host.size:
            assert plan.shared == same, label
        assert counted.bytes == plan.bytes, label
        assert counted.count == int(plan.copied), label
        assert not plan.copied or "copyif" not in str(plan) + repr(plan)
        assert tuple(result.shape) == host.shape
        if host.size:
            np.testing.assert_array_equal(_values(result, library), _bytes(host), label)


def _foreign(library, host):
    if library == "numpy":
        return host
    if library == "torch":
        import torch

        return torch.from_numpy(host)
    if library == "jax":
        jax = importlib.import_module("jax")
        return jax.numpy.asarray(host)
    if library == "tvm_ffi":
        return importlib.import_module("tvm_ffi").from_dlpack(host)
    if library == "cuda_core":
        view = importlib.import_module("cuda.core.utils").StridedMemoryView
        return view.from_dlpack(host, stream_ptr=-1)
    return importlib.import_module("array_api_strict").asarray(host)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("library", PACKAGES)
def test_explain_of_the_way_in(library, layout, copyif):
    pytest.importorskip(PACKAGES[library])
    tried = 0
    for dtype in DTYPES:
        host = LAYOUTS[layout](dtype)
        try:
            foreign = _foreign(library, host)
        except (TypeError, ValueError, BufferError, RuntimeError, UserWarning):
            continue  # the library has no such array
        tried += 1
        plan = gi.explain(foreign, "gpuinterop", copyif)
        label = f"{library} {layout} {dtype} copyif={copyif}: {plan}"
        x = error = None
        try:
            with gi.count_copies() as counted:
                x = gi.from_any(foreign, copyif)
        except gi.GpuInteropError as raised:
            error = raised
        assert plan.refused == (error is not None), f"{label}\nthe conversion said: {error!r}"
        if error is not None:
            assert type(error) is plan.error, f"{label}\n{error!r}"
            continue
        assert x.shape == tuple(foreign.shape)
        assert (counted.count, counted.bytes) == (int(plan.copied), plan.bytes), label
        if host.size:
            assert gi.shares_memory(x, foreign) == plan.shared, label
        single = gi.explain(foreign, "cudandarray", copyif)
        assert single.refused == (x.dtype != np.float32), f"{label}\n{single}"
    unknown = {"torch": {"reversed", "reversed_columns", "empty_sliced", "readonly"}}
    assert tried or layout in unknown.get(library, {"readonly"} if library == "tvm_ffi" else ())


def test_chains_through_our_array():
    torch = pytest.importorskip("torch")
    t = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    assert gi.explain(t, "numpy").shared
    assert gi.explain(t.T, "numpy").shared
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    refused = gi.explain(conjugate, "numpy")
    assert refused.refused
    assert "resolve_conj" in refused.fix
    copied = gi.explain(conjugate, "numpy", copyif=True)
    assert copied.copied
    assert copied.bytes == 24
    assert gi.to(conjugate, "numpy", copyif=True).tolist() == [1 - 0j] * 3


def test_a_plan_prints_all_it_knows():
    pytest.importorskip("torch")
    _, x = make("reversed")
    fault = "stride -16 bytes on axis 0 of shape (3, 4)"
    refused, copied = gi.explain(x, "torch"), gi.explain(x, "torch", copyif=True)
    assert str(refused).splitlines() == [
        "to_torch: refused",
        "  needs: strides that are not negative, because torch has none",
        f"  has:   {fault}",
        "  fix:   pass copyif=True, or make x.copy() once and reuse it",
    ]
    assert repr(refused) == (
        f"<to_torch: refused; {fault}; fix: pass copyif=True, or make x.copy() once and reuse it>"
    )
    # Who allowed the copy already is not told to allow it.
    assert str(copied).splitlines() == [
        "to_torch: copied (48 bytes)",
        "  needs:    strides that are not negative, because torch has none",
        f"  has:      {fault}",
        "  to share: make x.copy() once and reuse it",
    ]
    assert repr(copied) == (
        f"<to_torch: copied (48 bytes); {fault}; to share: make x.copy() once and reuse it>"
    )
    assert str(gi.explain(make("c")[1], "torch")) == "to_torch: shared"
    assert repr(gi.explain(make("c")[1], "torch")) == "<to_torch: shared>"


def test_a_library_that_is_absent_is_refused_with_what_brings_it():
    _, x = make("f")
    plan = gi.explain(x, "cudamat")
    assert plan.error is gi.MissingLibraryError
    assert "npmat" in plan.reason
    assert "npmat.py" in plan.fix
    assert "ported to Python 3" in plan.fix
    with pytest.raises(gi.MissingLibraryError) as raised:
        gi.to(x, "cudamat")
    assert raised.value.fix == plan.fix


@pytest.mark.parametrize("library", ["pycuda", "cudamat", "numba"])
@pytest.mark.parametrize("copyif", [False, True])
def test_both_needs_are_named_when_the_library_is_absent_too(library, copyif, monkeypatch):
    # None in sys.modules: an import fails, as where the package is not installed.
    for package in ("pycuda", "npmat", "numba", "numba.cuda"):
        monkeypatch.setitem(sys.modules, package, None)
    _, x = make("reversed", "float64" if library == "cudamat" else "float32")
    plan = gi.explain(x, library, copyif)
    with pytest.raises(gi.GpuInteropError) as raised:
        gi.to(x, library, copyif)
    error = raised.value
    assert (type(error), error.fix) == (plan.error, plan.fix)
    assert type(error) is (gi.DTypeError if library == "cudamat" else gi.DeviceMismatchError)
    assert ("ported to Python 3" if library == "cudamat" else "pip install") in error.fix
    assert ("astype" if library == "cudamat" else "to_device('cuda')") in error.fix


def test_an_unknown_library_lists_the_known():
    _, x = make("c")
    with pytest.raises(gi.ConversionTypeError, match="torch"):
        gi.explain(x, "tensorfold")
    with pytest.raises(ValueError, match="torch"):
        gi.to(x, "tensorfold")


def test_the_module_is_callable_like_the_function():
    import gpuinterop.explain as module

    _, x = make("c")
    assert module(x, "numpy").shared


def test_a_failure_of_the_librarys_own_arrays_is_shown_as_it_is(monkeypatch):
    from gpuinterop.converters import numpy as converter

    def broken(a):
        raise AttributeError("a mistake of ours")

    monkeypatch.setattr(converter, "judge", broken)
    with pytest.raises(AttributeError, match="a mistake of ours"):
        gi.explain(np.ones(3, np.float32))


UNALIGNED = np.zeros(401, "u1")[1:].view("f4")


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "tvm_ffi", "buffer"])
@pytest.mark.parametrize(
    "obj", [np.float32(3), np.zeros(100, ">f4"), UNALIGNED, UNALIGNED[::-2], np.zeros((0, 3), ">f4")],
    ids=["scalar", "byte order", "unaligned", "reversed", "empty"],
)  # fmt: skip
def test_the_bytes_promised_are_those_copied(obj, library):
    if library not in ("numpy", "buffer"):
        pytest.importorskip(library)
    plan = gi.explain(obj, library, copyif=True)
    assert plan.copied
    with gi.count_copies() as copied:
        gi.to(obj, library, copyif=True)
    assert copied.bytes == plan.bytes == obj.nbytes


@pytest.mark.parametrize(
    "shape_and_strides", [((1, 3), (12, 8)), ((1, 3), (100, -4)), ((0, 3), (40, 8)), ((2, 1), (8, 40))]
)  # fmt: skip
@pytest.mark.parametrize("library", ["buffer", "torch", "jax"])
def test_strides_that_lead_nowhere_are_told_alike(shape_and_strides, library):
    if library != "buffer":
        pytest.importorskip(library)
    host = np.lib.stride_tricks.as_strided(np.zeros(99, np.float32)[9:], *shape_and_strides)
    plan = gi.explain(host, library)
    if plan.shared:
        gi.to(host, library)
        return
    with pytest.raises(gi.GpuInteropError) as raised:
        gi.to(host, library)
    assert (plan.got, plan.reason) == (raised.value.got, raised.value.expected)


def test_a_forbidden_copy_is_told_in_the_words_of_the_error():
    pytest.importorskip("torch")
    x = gi.zeros((2, 3), device="cpu")[:, ::-1]
    with gi.no_copies():
        plan = gi.explain(x, "torch", copyif=True)
        with pytest.raises(gi.CopyForbiddenError) as raised:
            gi.to(x, "torch", copyif=True)
    assert plan.refused
    assert (plan.got, plan.fix, plan.where) == (
        raised.value.got, raised.value.fix, raised.value.where
    )  # fmt: skip


@pytest.mark.parametrize("to", [np.zeros(2), [], {}, None])
def test_what_is_no_name_is_refused(to):
    with pytest.raises(gi.ConversionTypeError, match="the name of a library"):
        gi.explain(gi.zeros(3, device="cpu"), to)

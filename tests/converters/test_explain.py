"""`explain` predicts the actual conversion: every installed library x layout x dtype x copyif."""

import importlib

import numpy as np
import pytest
from cases import DTYPES, LAYOUTS, agree, make

import gpuinterop as gi

PACKAGES = {
    "numpy": "numpy",
    "buffer": "builtins",
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
def test_explain_predicts_the_conversion(library, layout, copyif):
    pytest.importorskip(PACKAGES[library])
    options = {}
    if library == "array_api":
        options["xp"] = pytest.importorskip("array_api_strict")
    for dtype in DTYPES:
        host, x = make(layout, dtype)
        plan, result, error = agree(x, library, copyif, **options)
        if error is not None:
            continue
        assert tuple(result.shape) == host.shape
        if host.size:
            assert gi.shares_memory(result, x) == plan.shared, f"{layout} {dtype}: {plan}"
            assert gi.from_any(result).get().tobytes() == host.tobytes()


def _foreign(library, host):
    if library == "numpy":
        return host
    if library == "torch":
        import torch

        return torch.from_numpy(host)
    if library == "jax":
        jax = importlib.import_module("jax")
        return jax.numpy.asarray(host)
    if library == "buffer":
        return memoryview(host)
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
        plan, x, error = agree(foreign, "gpuinterop", copyif)
        if error is not None:
            continue
        label = f"{library} {layout} {dtype} copyif={copyif}: {plan}"
        assert x.shape == tuple(foreign.shape)
        if host.size:
            assert gi.shares_memory(x, foreign) == plan.shared, label
        single = gi.explain(foreign, "cudandarray", copyif)
        assert single.refused == (x.dtype != np.float32), f"{label}\n{single}"
    unknown = {"torch": {"reversed", "reversed_columns", "empty_sliced", "readonly"}}
    assert tried or layout in unknown.get(library, {"readonly"} if library == "tvm_ffi" else ())


def test_plan_prints_all_its_fields():
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
    # With copyif=True the fix does not suggest copyif=True.
    assert str(copied).splitlines() == [
        "to_torch: copied (48 bytes)",
        "  needs:    strides that are not negative, because torch has none",
        f"  has:      {fault}",
        "  to share: make x.copy() once and reuse it",
    ]
    assert repr(copied) == str(copied)
    assert str(gi.explain(make("c")[1], "torch")) == "to_torch: shared"


@pytest.mark.parametrize("to", [np.zeros(2), [], {}, None])
def test_explain_refuses_an_invalid_library_name(to):
    with pytest.raises(gi.ConversionTypeError, match="name"):
        gi.explain(gi.zeros(3, device="cpu"), to)

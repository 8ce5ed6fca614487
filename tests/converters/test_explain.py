"""`explain` predicts the actual conversion: every installed library x layout x dtype x copyif."""

import numpy as np
import pytest
from cases import DTYPES, LAYOUTS, agree, aligned, make
from doubles import internals

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


@pytest.fixture(params=PACKAGES)
def bridge(request):
    pytest.importorskip(PACKAGES[request.param])
    return internals.bridge(request.param)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_explain_predicts_the_conversion(bridge, layout, copyif):
    for dtype in DTYPES:
        host, x = make(layout, dtype)
        plan, result, error = agree(x, bridge.name, copyif, **bridge.options)
        if error is not None:
            continue
        assert tuple(result.shape) == host.shape
        if host.size:
            assert gi.shares_memory(result, x) == plan.shared, f"{layout} {dtype}: {plan}"
            assert gi.from_any(result).get().tobytes() == host.tobytes()


def test_explain_of_the_way_in(bridge, copyif):
    tried = 0
    for layout in LAYOUTS.values():
        for dtype in DTYPES:
            try:
                foreign = bridge.make(aligned(layout.count, dtype), layout, "cpu")
            except (BufferError, RuntimeError):
                foreign = None
            if foreign is None:
                continue  # the library has no such array
            tried += 1
            plan, x, error = agree(foreign, "gpuinterop", copyif)
            if error is not None:
                continue
            label = f"{layout.name} {dtype}: {plan}"
            assert x.shape == layout.shape
            if layout.size:
                assert gi.shares_memory(x, foreign) == plan.shared, label
            single = gi.explain(foreign, "cudandarray", copyif)
            assert single.refused == (x.dtype != np.float32), f"{label}\n{single}"
    assert tried > 50


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
    assert str(gi.explain(make("C")[1], "torch")) == "to_torch: shared"

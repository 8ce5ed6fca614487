"""An object that cannot be shared raises the same class, words and fix wherever it is passed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gpuinterop as gi

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = gi.ones(3, device="cpu")


def assign(t) -> None:
    gi.zeros(3, device="cpu")[...] = t


ENTRY_POINTS = {
    "from_any": gi.from_any,
    "from_torch": gi.converters.from_torch,
    "from_dlpack": gi.from_dlpack,
    "asarray": gi.asarray,
    "array": gi.array,
    "CudaNdarray": gi.CudaNdarray,
    "GpuArray": gi.GpuArray,
    "x + t": lambda t: X + t,
    "x[...] = t": assign,
    "to": lambda t: gi.to(t, "numpy"),
    "explain": lambda t: raise_plan(gi.explain(t)),
}


def raise_plan(plan) -> None:
    raise plan.exception()


def sparse():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ones(2, 2).to_sparse()


TENSORS = {
    "requires grad": (lambda: torch.ones(3, requires_grad=True), gi.ExportError, "grad"),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(3)), gi.ExportError, "grad"),
    "meta": (lambda: torch.ones(3, device="meta"), gi.DeviceMismatchError, "device"),
    "sparse": (sparse, gi.ExportError, "protocol"),
    "negated": (lambda: torch._neg_view(torch.ones(3)), gi.ExportError, "lazy"),
    "conjugated": (lambda: torch.ones(3, dtype=torch.complex64).conj(), gi.ExportError, "lazy"),
    "uint4": (lambda: torch.ones(3, dtype=torch.uint8).view(torch.uint4), gi.DTypeError, "dtype"),
    "lazy": (torch.nn.UninitializedParameter, gi.ExchangeError, "memory"),
}


@pytest.mark.parametrize(("make", "error", "reason"), TENSORS.values(), ids=TENSORS)
def test_the_same_refusal_at_every_entry_point(make, error, reason):
    t = make()
    found = {}
    for name, entry_point in ENTRY_POINTS.items():
        with pytest.raises(gi.GpuInteropError) as caught:
            entry_point(t)
        e = caught.value
        fix = e.fix.removeprefix("pass copyif=True, or ")  # where there is such an option
        found[name] = (type(e), e.reason, e.expected, e.got, fix)
    assert set(found.values()) == {found["from_torch"]}, found
    assert found["from_torch"][:2] == (error, reason)


def test_a_converter_without_judgement_leaves_the_words_to_the_protocol():
    class Broken:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **options):
            raise BufferError("broken on purpose")

    with pytest.raises(gi.ExchangeError, match="broken on purpose"):
        gi.from_dlpack(Broken())


def test_masked_arrays_and_scalars_are_judged_before_any_protocol():
    masked = np.ma.masked_array(np.ones(3, "f4"), [0, 1, 0])
    for entry_point in (gi.from_any, gi.from_dlpack, gi.CudaNdarray):
        with pytest.raises(gi.UnsupportedError, match="1 masked element"):
            entry_point(masked)
    assert gi.from_dlpack(np.ma.masked_array(np.ones(3, "f4"))).tolist() == [1, 1, 1]
    with pytest.raises(gi.ConversionTypeError, match="without memory"):
        gi.from_dlpack(np.float32(1))
    assert gi.from_dlpack(np.float32(1), copy=True).tolist() == 1

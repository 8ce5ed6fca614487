"""An odd object of any library raises the same class, words and fix wherever it is passed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gpuinterop as gi


def entry_points(library):
    x = gi.ones(2, device="cpu")
    return {
        "from_any": gi.from_any,
        "from_library": getattr(gi.converters, f"from_{library}"),
        "from_dlpack": gi.from_dlpack,
        "explain": explained,
        "CudaNdarray": gi.CudaNdarray,
        "x + t": lambda obj: x + obj,
    }


def explained(obj):
    raise gi.explain(obj).exception()


def nested(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def fake(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def quantized(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def deleted(jax):
    made = jax.numpy.ones(2)
    made.delete()
    return made


ODD = {
    ("torch", "nested"): nested,
    ("torch", "fake"): fake,
    ("torch", "quantized"): quantized,
    ("jax", "deleted"): deleted,
    ("jax", "key"): lambda jax: jax.random.key(0),
}


def refusals(library, obj):
    found = {}
    for name, call in entry_points(library).items():
        with pytest.raises(gi.GpuInteropError) as caught:
            call(obj)
        error = caught.value
        fix = error.fix.removeprefix("pass copyif=True, or ")  # where there is such an option
        found[name] = (type(error), error.reason, error.expected, error.got, fix)
    return found


@pytest.mark.parametrize(("library", "kind"), ODD, ids=[" ".join(key) for key in ODD])
def test_the_same_refusal_at_every_entry_point(library, kind):
    module = pytest.importorskip(library)
    found = refusals(library, ODD[library, kind](module))
    assert set(found.values()) == {found["from_any"]}, found


def test_a_tracer_is_refused_alike():
    jax = pytest.importorskip("jax")
    found = {}

    def traced(tracer):
        found.update(refusals("jax", tracer))
        return tracer

    jax.jit(traced)(jax.numpy.ones(2))
    assert set(found.values()) == {found["from_any"]}, found
    assert found["from_any"][0] is gi.ConversionTypeError


@pytest.mark.parametrize(
    "odd",
    [np.ma.masked_array(np.ones(2, "f4"), [0, 1]), np.array([None, 1]), np.zeros(2, "f4,i4")],
    ids=["masked", "objects", "records"],
)
def test_numpy_arrays_are_refused_alike(odd):
    found = refusals("numpy", odd)
    assert found["from_any"] == found["from_library"] == found["from_dlpack"] == found["explain"]

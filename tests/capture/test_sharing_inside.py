"""Inside a capture on "cpu" no value exists yet, so none may leave by any door to another library."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop
from gpuinterop import CaptureError, converters

torch = pytest.importorskip("torch")

DOORS = {
    "__dlpack__": lambda x: x.__dlpack__(),
    "__dlpack__, versioned": lambda x: x.__dlpack__(max_version=(1, 3)),
    "__dlpack__, a copy": lambda x: x.__dlpack__(copy=True),
    "__array_interface__": lambda x: x.__array_interface__,
    "__array__": lambda x: x.__array__(),
    "numpy.asarray": np.asarray,
    "numpy.from_dlpack": np.from_dlpack,
    "to_numpy": converters.to_numpy,
    "to_buffer": converters.to_buffer,
    "to_torch": converters.to_torch,
    "to_torch by name": lambda x: gpuinterop.to(x, "torch"),
    "torch.from_dlpack": torch.from_dlpack,
    "the C exchange API": lambda x: gpuinterop._core.export_via(x, torch.Tensor),
}


def test_every_door_is_open_outside_of_a_capture():
    x = gpuinterop.ones((2, 3), device="cpu")
    for leave in DOORS.values():
        assert leave(x) is not None


@pytest.mark.parametrize("door", DOORS)
def test_no_door_lets_values_out_before_a_replay(door):
    x = gpuinterop.ones((2, 3), device="cpu")
    with gpuinterop.capture(device="cpu") as graph:
        y = x + x
        with pytest.raises(CaptureError, match="exist only after a replay") as error:
            DOORS[door](y)
    assert error.value.fix
    graph.replay()
    assert DOORS[door](y) is not None
    assert (np.asarray(y) == 2).all()


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "tvm_ffi", "buffer"])
@pytest.mark.parametrize("view", [np.s_[:], np.s_[1:], np.s_[::-1]])
def test_explain_says_what_the_converter_does_inside_of_a_capture(library, view):
    if library not in ("numpy", "buffer"):
        pytest.importorskip(library)
    x = gpuinterop.ones(40, device="cpu")
    gpuinterop.to(x, library, copyif=True)  # from the second time on the ordinary case is quick
    with gpuinterop.capture(device="cpu") as graph:
        y = (x + x)[view]
        recorded = repr(graph)
        plan = gpuinterop.explain(y, library, copyif=True)
        with pytest.raises(CaptureError) as error:
            gpuinterop.to(y, library, copyif=True)
        assert repr(graph) == recorded  # no copy is left for each replay to make
    assert plan.refused
    assert plan.code == "capture"
    assert "replay" in plan.fix
    assert str(error.value) == str(plan.exception())
    assert not gpuinterop.explain(x, library, copyif=True).refused


def test_memory_that_was_shared_before_gets_the_values_of_a_replay():
    x = gpuinterop.ones(3, device="cpu")
    y = gpuinterop.zeros(3, device="cpu")
    seen = converters.to_torch(y)
    with gpuinterop.capture(device="cpu") as graph:
        gpuinterop.add(x, x, out=y)
    assert seen.tolist() == [0, 0, 0]
    graph.replay()
    assert seen.tolist() == [2, 2, 2]

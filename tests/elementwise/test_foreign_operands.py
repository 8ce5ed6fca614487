"""Every function of the package takes the arrays of other libraries: the operators' rule."""

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(6, dtype="float32").reshape(2, 3) / 3

CALLS = {
    **{name: lambda a, gi, name=name: getattr(gi, name)(a)
       for name in ("sum", "prod", "mean", "min", "max", "argmin", "argmax", "any", "all", "var", "std",
                    "exp")},
    "sum along": lambda a, gi: gi.sum(a, axis=0, keepdims=True),
    "clip": lambda a, gi: gi.clip(a, 0.5, 1),
    "round": lambda a, gi: gi.round(a, 1),
    "where": lambda a, gi: gi.where(a > 1, a, 0),
    "take": lambda a, gi: gi.take(a, [2, 0]),
    "concatenate": lambda a, gi: gi.concatenate([a, a], axis=1),
    "stack": lambda a, gi: gi.stack([a, a], axis=1),
    "split": lambda a, gi: gi.split(a, 2)[1],
    "dot": lambda a, gi: gi.dot(a, a.T),
    "allclose": lambda a, gi: np.bool_(gi.allclose(a, a)),
    "astype": lambda a, gi: gi.astype(a, "int16"),
    "broadcast_to": lambda a, gi: gi.broadcast_to(a, (2, 2, 3)),
    "norm": lambda a, gi: gi.norm(a),
    "reduce_sum": lambda a, gi: gi.reduce_sum(a, (1, 0)),
    "join": lambda a, gi: gi.join(1, a, a),
    "clip with a gpuinterop bound": lambda a, gi: gi.clip(a, gi.asarray(HOST), None),
}  # fmt: skip
# The results of those that NumPy has under another name.
RESULTS = {
    "norm": np.linalg.norm(HOST),
    "reduce_sum": HOST.sum(0),
    "join": np.concatenate([HOST, HOST], 1),
    "clip with a gpuinterop bound": HOST,
}


def foreign(library: str):
    if library == "numpy":
        return HOST.copy()
    return pytest.importorskip("torch").from_numpy(HOST.copy())


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
@pytest.mark.parametrize("name", CALLS)
def test_functions_accept_foreign_arrays(library, name):
    found = CALLS[name](foreign(library), gi)
    expected = RESULTS[name] if name in RESULTS else CALLS[name](HOST, np)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
    if name != "allclose":
        assert type(found) is (gi.CudaNdarray if "gpuinterop" in name else gi.GpuArray)


@pytest.mark.torch
@pytest.mark.gpu
def test_tensors_stay_on_their_gpu():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(HOST).cuda()
    for found in (
        gi.sum(tensor), gi.norm(tensor), gi.clip(tensor, 0, 1), gi.round(tensor), gi.take(tensor, [0]),
        gi.concatenate([tensor, HOST]), gi.stack([HOST, tensor]), gi.split(tensor, 2)[0],
    ):  # fmt: skip
        assert found.device.type == "cuda"
    assert gi.shares_memory(gi.split(tensor, 2)[0], tensor)
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.concatenate([tensor, HOST])


@pytest.mark.parametrize("value", [None, "text", 3])
@pytest.mark.parametrize("name", ["sum", "norm", "split", "take", "broadcast_to"])
def test_error_for_a_non_array_suggests_a_conversion_that_works(name, value):
    extra = {"split": (2,), "take": ([0],), "broadcast_to": ((2, 3),)}.get(name, ())
    with pytest.raises(TypeError, match=f"{name}: ") as caught:
        getattr(gi, name)(value, *extra)
    assert caught.value.fix.endswith("gpuinterop.asarray(x)" if value == 3 else "an array of them")

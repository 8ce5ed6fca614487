"""Objects of no known library, or that only look like those of one: recognised by what they have, or refused."""

from unittest import mock

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters


@pytest.mark.parametrize("module", [property(lambda self: "torch"), 5, None])
def test_module_of_a_class_may_be_anything(module):
    class Shown:
        def __init__(self, host):
            self.__dlpack__, self.__dlpack_device__ = host.__dlpack__, host.__dlpack_device__

    Shown.__module__ = module  # the classes of object proxies have a property there
    host = np.ones(3, np.float32)
    shown = Shown(host)
    for call in (gi.from_any, gi.to_cudandarray, lambda x: gi.to(x, "numpy")):
        assert gi.shares_memory(call(shown), host)
    assert gi.explain(shown).shared
    assert gi.ones(2, device=shown).device.type == "cpu"


@pytest.mark.parametrize(
    "name",
    [
        "numpy.ndarray", "numpy.generic", "torch.Tensor", "cupy.ndarray", "jaxlib._jax.ArrayImpl",
        "numba.cuda.DeviceNDArray", "pycuda.gpuarray.GPUArray", "cudamat.CUDAMatrix",
        "gnumpy.garray", "cuda.core.Buffer", "tvm_ffi.core.Tensor", "warp.types.array",
        "tensorflow.python.EagerTensor", "builtins.memoryview",
    ],
)  # fmt: skip
def test_class_that_has_only_the_name_of_a_library_is_refused(name):
    module, _, cls = name.rpartition(".")
    obj = type(cls, (), {"__module__": module})()
    for to in ("gpuinterop", "cudandarray", "torch", "numpy"):
        plan = gi.explain(obj, to)
        assert plan.refused
        assert plan.fix
    with pytest.raises(gi.GpuInteropError):
        gi.from_any(obj)


class Nothing:
    pass


@pytest.mark.parametrize(
    "obj", [Nothing(), {"a": 1}, None, "text", 3, {1}, object, [1.0], range(3)]
)
def test_error_for_an_unknown_object_lists_the_known_libraries(obj):
    with pytest.raises(gi.ConversionTypeError) as raised:
        gi.from_any(obj)
    error = raised.value
    for row in converters.backends():
        if row.package not in ("", "builtins"):
            assert row.name in error.expected
    assert type(obj).__qualname__ in error.got
    assert "register" in error.fix
    plan = gi.explain(obj)
    assert (plan.refused, plan.reason, plan.fix) == (True, error.expected, error.fix)
    with pytest.raises(gi.ConversionTypeError):
        gi.to(obj, "numpy")


def test_mock_of_an_array_is_not_an_array():
    for odd in (mock.Mock(spec=gi.CudaNdarray), mock.MagicMock(spec=gi.zeros(3, device="cpu"))):
        for call in (
            gi.from_any,
            gi.from_dlpack,
            gi.asarray,
            gi.to_cudandarray,
            lambda x: gi.to(x, "numpy"),
        ):
            with pytest.raises(gi.GpuInteropError):
                call(odd)
        assert gi.explain(odd, "numpy").refused


def test_fix_of_an_assignment_names_the_assigned_value():
    x = gi.zeros(4, device="cpu")
    with pytest.raises(gi.DTypeError, match=r"value\.astype\('float32'\)"):
        x[...] = np.zeros(4)
    torch = pytest.importorskip("torch")
    with pytest.raises(gi.ExportError, match=r"pass t\.detach\(\)"):
        x[0] = torch.nn.Parameter(torch.ones(()))

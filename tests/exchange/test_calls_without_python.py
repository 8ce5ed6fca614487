"""Converters whose ordinary case is served in C are functions like any other, and say no like any other."""

import copy
import gc
import inspect
import pickle
import pydoc
import sys
import weakref

import numpy as np
import pytest
from helpers.profile import functions_of

import gpuinterop as gi
from gpuinterop import converters

NAMES = ["to", "from_any", "from_numpy", "from_torch", "from_cupy", "to_torch"]
SERVED = ["zeros", "arange", "eye", "astype", "clip", "round", "take", "concatenate", "stack"]


@pytest.mark.parametrize("name", [*NAMES, *SERVED])
def test_function_of_the_core_looks_like_a_python_function(name):
    function = getattr(converters if name in NAMES else gi, name)
    assert function.__name__ == function.__qualname__ == name
    assert function.__doc__ == function.__wrapped__.__doc__
    assert function.__module__ == function.__wrapped__.__module__
    assert inspect.signature(function) == inspect.signature(function.__wrapped__)
    assert name in SERVED or "copyif" in inspect.signature(function).parameters
    assert f"{name}(" in pydoc.plain(pydoc.render_doc(function))
    assert inspect.isroutine(function)
    assert repr(function).startswith(f"<function {name} at ")
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    assert weakref.ref(function)() is function  # jax.jit makes one

    class Holder:
        convert = function

    assert Holder().convert is function  # as a function in C: no instance is passed


def test_every_way_to_name_a_library():
    torch = pytest.importorskip("torch")
    x = gi.ones((2, 3), device="cpu")
    calls = [
        lambda: gi.to(x, "torch"),
        lambda: gi.to(x, "torch", False),
        lambda: gi.to(x, "torch", True),
        lambda: gi.to(x, "torch", copyif=False),
        lambda: gi.to(x, library="torch"),
        lambda: gi.to(copyif=False, library="torch", x=x),
        lambda: gi.to(x, "Torch"),
        lambda: gi.to(x, "torch", allow_readonly=False),
        lambda: gi.to(np.asarray(x), "torch"),
    ]
    for call in calls:
        assert isinstance(call(), torch.Tensor)
        assert call().data_ptr() == x.ptr
    for wrong in ((x,), (x, "torch", False, False)):
        with pytest.raises(TypeError, match=r"to\(\)|gpuinterop\.to: expected the name"):
            gi.to(*wrong)
    with pytest.raises(gi.ContiguityError):
        gi.to(x[::-1], "torch", False)
    assert gi.to(x[::-1], "torch", True).shape == (2, 3)


def test_converter_takes_arrays_of_its_own_library_alone():
    torch = pytest.importorskip("torch")
    a, t = np.ones(3, np.float32), torch.ones(3)
    for function, wrong, word in (
        (converters.from_cupy, a, r"cupy\.ndarray"),
        (converters.from_torch, a, r"torch\.Tensor"),
        (converters.from_torch, None, r"torch\.Tensor"),
        (converters.from_cupy, t, r"torch\.Tensor"),
        (converters.from_numpy, t, r"torch\.Tensor"),
        (converters.to_torch, a, "CudaNdarray"),
        (converters.to_torch, t, "CudaNdarray"),
    ):
        with pytest.raises(gi.ConversionTypeError, match=word):
            function(wrong)


def test_the_ordinary_case_is_served_without_a_python_frame():
    a = np.ones(3, np.float32)
    x = converters.from_numpy(a)
    calls = [lambda: converters.from_numpy(a), lambda: converters.from_any(a)]
    if "torch" in sys.modules:
        t = converters.to_torch(x)
        parameter = sys.modules["torch"].nn.Parameter(t, requires_grad=False)
        calls += [lambda: converters.from_torch(t), lambda: converters.to_torch(x)]
        calls += [lambda: converters.from_any(parameter), lambda: converters.from_torch(parameter)]
        calls += [
            lambda: converters.to_torch(x, True),
            lambda: converters.to_torch(x, False),
            lambda: converters.to_torch(x, copyif=False),
        ]
        calls += [lambda: converters.to(x, "torch"), lambda: converters.to(x, "torch", False)]
        calls += [lambda: converters.to(x, "torch", copyif=False)]
    for call in calls:
        assert functions_of(call) == []


def test_failed_call_leaks_no_reference():
    a = np.ones(3, np.float32)
    backwards = converters.from_numpy(a)[::-1]
    torch = pytest.importorskip("torch")
    negated = torch._neg_view(torch.ones(3))
    before = sys.getrefcount(a), sys.getrefcount(negated)
    for _ in range(200):
        with pytest.raises(gi.ContiguityError):
            converters.to_torch(backwards)
        with pytest.raises(gi.ExportError):
            converters.from_torch(negated)
    gc.collect()
    assert (sys.getrefcount(a), sys.getrefcount(negated)) == before


def test_elements_in_one_place_are_an_ordinary_layout():
    torch = pytest.importorskip("torch")
    x = gi.ones(3, device="cpu")._restrided((2, 3), (0, 1), 0)
    assert not x.readonly
    assert functions_of(lambda: gi.to(x, "torch")) == []
    assert isinstance(gi.to(x, "torch"), torch.Tensor)

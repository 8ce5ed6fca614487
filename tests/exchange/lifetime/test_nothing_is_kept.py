"""Every kind of object that users make is destroyed with its last reference, even if it refers to itself."""

import gc
import weakref

import numpy as np
import pytest
from doubles import toy_library
from helpers.process_memory import resident_bytes

import gpuinterop as gi

pytestmark = pytest.mark.lifetime

HOST = np.ones(4, "float32")


class Described:
    """The class of an unknown library's arrays, made anew for each object."""

    def __new__(cls):
        made = type("Array", (), {"__array_interface__": HOST.__array_interface__, "keep": HOST})
        return made()


def array_class(x, i):
    made = type(f"Made{i}", (gi.GpuArray,), {})
    y = made([1.0, 2.0], device=x.device)
    gi.exp(y + y, out=y)
    y.sum(axis=0)
    gi.concatenate([y, y])
    return [made]


def class_of_another_library(x, i):
    obj = Described()
    gi.from_any(obj)
    gi.explain(obj)
    gi.add(x, obj)
    return [type(obj)]


def dlpack_class(x, i):
    made = type("Array", (), {"__dlpack__": lambda self, **_: HOST.__dlpack__(),
                              "__dlpack_device__": lambda self: (1, 0)})  # fmt: skip
    gi.from_any(made())
    gi.add(x, made())
    return [made]


def class_without_memory(x, i):
    made = type("Thing", (), {})
    for call in (gi.from_any, gi.asarray, lambda obj: x + obj):
        with pytest.raises((TypeError, ValueError)):
            call(made())
    return [made]


def number_class(x, i):
    made = type("Number", (float,), {})
    x * made(2)
    gi.fuse(lambda a, b: a * b)(x, made(2))
    return [made]


def elementwise_kernel(x, i):
    kernel = gi.ElementwiseKernel(
        "T a", "T z", f"z = a * {i % 7}", host=lambda a: (kernel, a * (i % 7))[1]
    )
    kernel(x)
    return [kernel]


def fused_function(x, i):
    function = gi.fuse(lambda a: (function, (a * (i % 7)).sum() * 2)[1])
    function(x)
    return [function]


def expression(x, i):
    graph = gi.Expression()
    compiled = graph.compile([graph.apply("add", graph.input(), float(i % 7))])
    compiled(x)
    graph.compiled = compiled
    return [graph, compiled]


def cuda_text(x, i):
    text = gi.CudaText("T a", "T z", "z = a", host=lambda a: (text, a)[1])
    return [text]


def raw_kernel(x, i):
    kernel = gi.RawKernel(f'extern "C" __global__ void f{i}(float*) {{}}', f"f{i}")
    kernel.itself = kernel
    return [kernel]


def capture(x, i):
    graph = gi.capture(lambda a: (a * 2).sum(), x)
    graph()
    graph.itself = graph
    return [graph, graph.outputs]


def unfinished_capture(x, i):
    with pytest.raises(ZeroDivisionError), gi.capture(device=x.device) as graph:
        made = x * 2
        raise ZeroDivisionError
    graph.itself = graph
    return [graph, made]


def stream(x, i):
    made = gi.Stream(x.device) if x.device.type == "cuda" else []
    return [made] if made else []


def converter(x, i):
    module = toy_library.converter()
    gi.converters.register(gi.converters.Backend("toy", "toy", converter=module))
    gi.to(gi.zeros(2, device="cpu"), "toy")
    return [module]


def plan_and_error(x, i):
    with pytest.raises(gi.ShapeError) as error:
        x.reshape(3)
    return [gi.explain(x, "numpy"), error.value]


KINDS = [array_class, class_of_another_library, dlpack_class, class_without_memory,
         number_class, elementwise_kernel, fused_function, expression, cuda_text, raw_kernel,
         capture, unfinished_capture, stream, converter, plan_and_error]  # fmt: skip


def made(kind, x, count):
    """Weak references to what `count` rounds have made."""
    found = []
    for i in range(count):
        found += map(weakref.ref, kind(x, i))
        if i % 500 == 499:
            gc.collect()
    gc.collect()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_kept(kind, device, clean):
    x = gi.ones(4, device=device)
    found = made(kind, x, 20)
    converters_registered = int(kind is converter)  # the last one
    assert sum(reference() is not None for reference in found) == converters_registered


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_leave_the_memory_as_it_was(kind, clean):
    x = gi.ones(4, device="cpu")
    made(kind, x, 200)
    before = resident_bytes()
    found = made(kind, x, 10_000)
    assert sum(reference() is not None for reference in found) <= 1
    del found
    assert resident_bytes() - before < 16e6

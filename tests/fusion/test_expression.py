"""Expressions built value by value, against the single operations on arrays."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError

HOST = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)


def same(found, expected) -> None:
    assert (type(found), found.dtype, found.shape) == (
        type(expected),
        expected.dtype,
        expected.shape,
    )
    np.testing.assert_array_equal(found.get(), expected.get())


def test_one_graph_serves_dtypes_classes_and_numbers(device):
    graph = gi.Expression()
    x, y = graph.input(), graph.input()
    compiled = graph.compile([graph.apply("add", graph.apply("multiply", x, y), 1)])
    arrays = [gi.GpuArray(np.arange(4), dtype=t, device=device) for t in ("float16", "int32")]
    for first in (*arrays, gi.CudaNdarray(HOST[0], device=device)):
        for second in (*arrays[:1], 2, 0.5, first):
            same(compiled(first, second), first * second + 1)
    with pytest.raises(gi.RangeError):
        compiled(gi.zeros(2, "int8", device=device), 300)


def test_results_casts_reductions_and_outs(device):
    graph = gi.Expression()
    x, y = graph.input(), graph.input()
    quotient, rest = (graph.apply("divmod", x, y, result=j) for j in range(2))
    total = graph.reduce("sum", graph.cast(rest, "float64"), axis=[1], keepdims=True)
    compiled = graph.compile([quotient, rest, total, graph.apply("subtract", rest, total)])
    a = gi.GpuArray(np.arange(12).reshape(3, 4), dtype="int32", device=device)
    q, r = gi.divmod(a, 5)
    t = r.astype("float64").sum(axis=1, keepdims=True)
    for found, expected in zip(compiled(a, 5), (q, r, t, r - t), strict=True):
        same(found, expected)
    out = gi.empty((3, 1), "float64", device=device)
    assert compiled(a, 5, out=(None, None, out, None))[2] is out
    same(out, t)


def test_cuda_text_in_a_graph(device):
    def host(x, y):
        return x * y, (x > y)

    text = gi.CudaText(
        "T x, float32 y", "T z, bool more", "z = x * y; more = x > y", "both", host=host
    )
    graph = gi.Expression()
    x, y = graph.input(), graph.input()
    product, more = (graph.cuda(text, x, graph.apply("exp", y), result=j) for j in range(2))
    again = graph.cuda(
        gi.CudaText("T a", "T b", "b = a + 1", "both", host=lambda a: a + 1), product
    )
    compiled = graph.compile([more, graph.apply("where", more, again, 0)])
    a = gi.GpuArray(HOST, device=device)
    found, chosen = compiled(a, a[0])
    more = a > gi.exp(a[0])
    same(found, more)
    same(chosen, gi.where(more, a * gi.exp(a[0]) + 1, 0))


def test_wrong_calls_are_refused():
    graph = gi.Expression()
    x = graph.input()
    text = gi.CudaText("T x", "T y", "y = x", host=lambda x: x)
    for wrong in (
        lambda: graph.apply("nosuch", x), lambda: graph.apply("add", x), lambda: graph.apply("cast", x),
        lambda: graph.apply("exp", x, result=1), lambda: graph.reduce("cumsum", x),
        lambda: graph.cuda(text, x, x), lambda: graph.cuda(text, x, result=1),
        lambda: graph.apply("add", x, HOST), lambda: graph.compile([x])(),
        lambda: graph.reduce("sum", HOST), lambda: graph.cast(HOST, "int8"), lambda: graph.cuda("y = x", x),
        lambda: graph.compile(x), lambda: graph.compile([]), lambda: graph.compile([HOST]),
        lambda: gi.CudaText("T x", "T x", "x = x"), lambda: gi.CudaText("T x", "T y", "y = x", host=3),
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError):
            wrong()
    with pytest.raises(gi.DTypeError):
        graph.cast(x, "nosuch")
    y = graph.input()
    sums = graph.apply("add", x, y), graph.apply("add", x, np.int8(1))
    both = graph.compile([graph.apply("add", *sums)])
    with pytest.raises(gi.DTypeError, match="one dtype"):
        both(2, gi.ones(1, device="cpu"))


def test_values_of_another_graph_are_refused():
    graph, other = gi.Expression(), gi.Expression()
    value = graph.apply("add", graph.input(), 1)
    for _ in range(2):  # also where the other graph has an input of that number
        with pytest.raises(ArgumentTypeError, match="graph"):
            other.compile([other.reduce("sum", value)])
        other.input()


def test_numbers_are_operands_of_every_method(device):
    graph = gi.Expression()
    total = graph.apply("add", graph.input(), graph.cast(3, "int32"))
    found = graph.compile([total])(gi.GpuArray([1, 2], "int32", device=device))
    assert (found.dtype, found.tolist()) == ("int32", [4, 5])


def test_repr_of_a_value_is_short_for_a_graph_with_shared_values():
    graph = gi.Expression()
    x = value = graph.input()
    for _ in range(60):
        value = graph.apply("add", value, value)
    names = [repr(v) for v in (x, value, graph.constant(2), graph.reduce("max", value))]
    assert names == ["<input 0>", "<value of add>", "<constant 2>", "<value of max>"]

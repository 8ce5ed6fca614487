"""Fused functions that end in reductions, against the same steps one by one and against float64."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.ops import reduction_codegen
from gpuinterop.ops.expression import Expression
from gpuinterop.ops.reduction_kernel import ReductionKernel
from gpuinterop.ops.reduction_plan import Operand, plan_reduction

OPERATIONS = ("sum", "prod", "mean", "min", "max", "any", "all")


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
def test_a_reduced_result(device: str, op: str, axis) -> None:
    a, b = values(4, 5, 6), values(5, 6, seed=1)
    x, y = gi.CudaNdarray(a, device=device), gi.CudaNdarray(b, device=device)
    got = gi.fuse(lambda x, y: getattr(x * y - y, op)(axis))(x, y)
    value = (a * b).astype(np.float32) - b
    expected = getattr(np, op)(value if op in ("any", "all") else value.astype(np.float64), axis)
    scale = np.abs(value.astype(np.float64)).sum(axis) if op == "sum" else np.abs(expected) + 1e-30
    assert got.shape == np.shape(expected)
    if op in ("any", "all", "min", "max"):
        np.testing.assert_array_equal(np.asarray(got), expected.astype(got.dtype))
    else:
        assert np.all(np.abs(np.asarray(got) - expected) <= 3e-7 * scale)
    apart = getattr(x * y - y, op)(axis)
    assert got.dtype == apart.dtype
    assert type(got) is type(apart)
    assert np.all(np.abs(np.asarray(got) * 1.0 - np.asarray(apart)) <= 3e-7 * scale)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint32", "int64", "bool"])
def test_dtypes_are_those_of_the_steps(device: str, dtype: str) -> None:
    a = (np.arange(24) % 3).reshape(4, 6).astype(dtype)
    x = gi.GpuArray(a, device=device)
    for op in OPERATIONS:
        got, apart = gi.fuse(lambda x, op=op: getattr(x * x, op)(1))(x), getattr(x * x, op)(1)
        assert got.dtype == apart.dtype
        np.testing.assert_allclose(np.asarray(got), np.asarray(apart), rtol=1e-3)


def test_strided_broadcast_and_empty_operands(device: str) -> None:
    a, b = values(8, 12), values(12)
    dot = gi.fuse(lambda x, y: (x * y).sum(axis=1))
    x, y = gi.CudaNdarray(a, device=device), gi.CudaNdarray(b, device=device)
    np.testing.assert_allclose(dot(x[::-1, ::2], y[::2]), a[::-1, ::2] @ b[::2], rtol=1e-6)
    np.testing.assert_allclose(dot(x.T[:8], y[:8]), a.T[:8] @ b[:8], rtol=1e-6)
    assert np.asarray(dot(x[:, :0], y[:0])).tolist() == [0.0] * 8
    assert dot(x[:0], y).shape == (0,)
    largest = gi.fuse(lambda x: (x + 1).max())
    with pytest.raises(ShapeError):
        largest(x[:0])
    assert float(largest(x[0, 0])) == a[0, 0] + np.float32(1)


def test_keepdims_and_out(device: str) -> None:
    a = values(4, 6)
    x, out = gi.CudaNdarray(a, device=device), gi.empty((4, 1), device=device)
    rows = gi.fuse(lambda x: (x * 2).sum(axis=1, keepdims=True))
    assert rows(x).shape == (4, 1)
    assert rows(x, out=out) is out
    np.testing.assert_allclose(out, (a * 2).sum(1, keepdims=True), rtol=1e-6)
    with pytest.raises(ShapeError):
        rows(x, out=gi.empty((4,), device=device))


def test_numbers_and_functions_of_numpy(device: str) -> None:
    a = values(10)
    x = gi.CudaNdarray(a, device=device)
    scaled = gi.fuse(lambda x, by: np.sum(x * by))
    np.testing.assert_allclose(float(scaled(x, 2)), 2 * a.sum(dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(float(scaled(x, 0.5)), a.sum(dtype=np.float64) / 2, rtol=1e-6)


def test_what_cannot_be_done_with_a_reduced_value(device: str) -> None:
    x = gi.CudaNdarray(values(3), device=device)
    for function in (lambda x: x.sum(dtype="float64"), lambda x: x if x.any() else -x,
                     lambda x: float(x.sum()), lambda x: x.sum()[0], lambda x: x.sum().item(),
                     lambda x: list(x.max(keepdims=True)), lambda x: x.var(),
                     lambda x: x.sum(initial=1), lambda x: gi.max(x, where=x > 1)):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match="fuse"):
            gi.fuse(function)(x)


def compiled_text(op: str, dtype: str, axes: tuple[int, ...]) -> str:
    graph = Expression()
    x, y = graph.input(), graph.input()
    if dtype[0] == "f":
        graph.results = [graph.apply("multiply", graph.apply("sigmoid", x), y)]
    else:
        graph.results = [graph.apply("add", graph.apply("maximum", x, y), 1)]
    recipe = ReductionKernel(graph, op, axes).recipe([np.empty((64, 256), dtype)] * 2, [])
    operands = [Operand((256, 1), np.dtype(dtype).itemsize)] * 2
    return reduction_codegen.render(recipe, plan_reduction((64, 256), axes, operands, [(0, 0)]))


@pytest.mark.parametrize(
    "op", ["sum", *(pytest.param(op, marks=pytest.mark.slow) for op in OPERATIONS if op != "sum")]
)
def test_the_text_compiles(op: str) -> None:
    from test_reduce_compile import archs

    from gpuinterop.jit import compile_source

    for i, dtype in enumerate(("float32", "float16", "int8")):
        arch = archs()[(len(op) + i) % len(archs())]
        assert compile_source(compiled_text(op, dtype, (i % 2,)), arch, use_cache=False)


def test_results_of_both_kinds(device: str) -> None:
    a, b = values(5, 7), values(5, 7, seed=1)
    x, y = gi.CudaNdarray(a, device=device), gi.CudaNdarray(b, device=device)

    @gi.fuse
    def both(x, y):
        total = x + y
        return total, (x - y).sum(axis=0), x * y, total.max()

    added, columns, product, largest = both(x, y)
    np.testing.assert_array_equal(np.asarray(added), a + b)
    np.testing.assert_array_equal(np.asarray(product), a * b)
    np.testing.assert_allclose(columns, (a - b).sum(0, dtype=np.float64), rtol=1e-5, atol=1e-6)
    assert float(largest) == (a + b).max()


def test_captured(device: str) -> None:
    a, b = values(5, 7), values(5, 7, seed=1)
    x, y = gi.CudaNdarray(a, device=device), gi.CudaNdarray(b, device=device)
    both = gi.fuse(lambda x, y: (x + y, (x * y).sum(axis=1)))
    first = [np.array(np.asarray(v)) for v in both(x, y)]
    graph = gi.capture(both, x, y)
    for got, expected in zip(graph(), first, strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    x[...] = 0
    added, rows = graph()
    np.testing.assert_array_equal(np.asarray(added), b)
    assert np.asarray(rows).tolist() == [0.0] * 5


def test_other_arrays_and_complex_numbers(device: str) -> None:
    a = values(6)
    x = gi.CudaNdarray(a, device=device)
    dot = gi.fuse(lambda x, y: (x * y).sum())
    np.testing.assert_allclose(float(dot(x, a)), (a.astype(np.float64) ** 2).sum(), rtol=1e-6)
    z = gi.GpuArray(a * np.complex64(1 + 2j), device=device)
    np.testing.assert_allclose(complex(dot(z, z)), ((a * (1 + 2j)) ** 2).sum(), rtol=1e-5)


def test_more_reduced_values_than_a_kernel_reads(device):
    x = gi.asarray(np.arange(6, dtype="float32"), device=device)

    def sums(x, first, last):
        return [(x * (i + 1)).sum() for i in range(first, last)]

    with pytest.raises(gi.ShapeError, match="at most 24 operands") as caught:
        gi.fuse(lambda x: sum(sums(x, 0, 60), x * 0))(x)
    assert caught.value.where == "<lambda>"
    assert "60 inputs" in caught.value.got or "61 inputs" in caught.value.got
    # As the message says: reduced values in any number, and the rest without fuse.
    values = gi.fuse(lambda x: tuple(sums(x, 0, 60)))(x)
    assert gi.stack(values).sum(0).item() == 15 * 60 * 61 / 2
    for parts in (1, 20):
        one = gi.fuse(lambda x, n=parts: sum(sums(x, 0, n), x * 0))(x)
        assert one.tolist() == [15 * parts * (parts + 1) / 2] * 6


def test_what_was_called_goes_when_nobody_holds_it(device):
    x = gi.ones(4, device=device)

    def fused():
        f = gi.fuse(lambda x: (x * x).sum())
        f(x)
        return f

    def mapped():
        f = gi.MapReduce("x0 * x1", lambda x, e: (np.sum(x[0] * x[1], axis=-1),))
        f(x, x)
        return f

    for make in (fused, mapped):
        alive = weakref.ref(make())
        gc.collect()
        assert alive() is None, make


def test_a_cuda_text_is_reduced_in_one_kernel(device: str) -> None:
    lerp = gi.CudaText("T x, T y, float32 t", "T z", "z = x + (y - x) * t", "lerp",
                       host=lambda x, y, t: x + (y - x) * t)  # fmt: skip
    graph = Expression()
    x, y, t = (graph.input() for _ in range(3))
    between = graph.compile([graph.reduce("sum", graph.cuda(lerp, x, y, t))])
    for dtype in ("float32", "float16"):
        a = gi.asarray([4.0, 12.0], dtype=dtype, device=device)
        assert float(between(a, a * 2, 0.5)) == 24

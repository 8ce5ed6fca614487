"""Fused functions that end in reductions, against the same steps one by one and against float64."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, ShapeError

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


def test_what_cannot_be_done_with_a_reduced_value(device: str) -> None:
    x = gi.CudaNdarray(values(3), device=device)
    for function in (lambda x: x.sum(dtype="float64"), lambda x: x if x.any() else -x,
                     lambda x: float(x.sum()), lambda x: x.sum()[0], lambda x: x.sum().item(),
                     lambda x: list(x.max(keepdims=True)), lambda x: x.var(),
                     lambda x: x.sum(initial=1), lambda x: gi.max(x, where=x > 1)):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match="fuse"):
            gi.fuse(function)(x)


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

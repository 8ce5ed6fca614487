"""Numbers that are assigned while a graph is captured: filled, and not uploaded."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi

NUMBERS = {
    "bool": True, "int8": -3, "uint16": 7, "int64": 2**40 + 1, "uint64": 2**64 - 1, "float16": 0.1,
    "float32": 0.1, "float64": 0.1, "complex64": 1 + 2j, "complex128": 0.1 - 2j,
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_are_assigned_in_a_capture(device, dtype):
    number, t = NUMBERS[dtype], np.dtype(dtype).type
    whole, parts, one = (gi.zeros((3, 4), dtype=dtype, device=device) for _ in range(3))
    with gi.count_copies() as copies, gi.capture(device=device) as graph:
        whole.fill(number)
        parts[1:, ::-2] = t(number)
        one[2] = [number]
    assert copies.count == 0
    assert not whole.any()
    graph.replay()
    expected = np.zeros((3, 4), dtype)
    expected[1:, ::-2] = number
    np.testing.assert_array_equal(parts.get(), expected)
    np.testing.assert_array_equal(whole.get(), np.full((3, 4), number, dtype))
    np.testing.assert_array_equal(one.get()[2], np.full(4, number, dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex128"])
def test_copyto_of_a_number(device, dtype):
    x = gi.GpuArray(np.arange(4).astype(dtype), device=device)
    with gi.capture(device=device) as graph:
        np.copyto(x, 7, where=gi.equal(x, 2))
        np.copyto(x[:1], np.float32(5), casting="unsafe")
    graph.replay()
    assert x.tolist() == [5, 1, 7, 3]


def test_small_floats_too(device):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = gi.zeros(3, dtype=bfloat16, device=device)
    with gi.capture(device=device) as graph:
        x[1:] = 1.5
        np.copyto(x[:1], bfloat16(2))
    graph.replay()
    assert x.astype("float32").tolist() == [2, 1.5, 1.5]

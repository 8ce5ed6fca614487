"""test_products.py on the fake driver and a fake cuBLAS: orders, leading dimensions, batches, addends.

Run by test_products_on_fake.py in a process of its own. Only what needs no strided copy is here: the
fake driver does not run those kernels.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reduce"))

from reduce_shim import fake_image
from test_products import (  # noqa: F401
    close,
    test_a_vector_is_added_to_every_row,
    test_addition_rides_along,
    test_extents_of_one,
    test_gemv_in_place_with_the_tutorials_numbers,
    test_matrices_as_they_lie,
    test_out_of_any_order,
    test_vectors,
    values,
)

import gpuinterop
from gpuinterop import CudaNdarray
from gpuinterop.ops import reductions

CALLS = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUBLAS"]).fakecublas_calls
GEMM, BATCHED, SEPARATE, BIAS = range(4)


@pytest.fixture
def device() -> str:
    return "cuda:0"


@pytest.fixture(autouse=True)
def _kernels_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "compile_source", fake_image)


def test_an_addend_costs_no_copy(device: str) -> None:
    m, x, b = (CudaNdarray(values(*s), device=device) for s in [(6, 5), (5, 4), (6, 4)])
    row = CudaNdarray(values(4), device=device)
    before = [CALLS(i) for i in range(4)]
    with gpuinterop.count_copies() as copies:
        gpuinterop.gemm(m, x, b)
        gpuinterop.gemm(m, x, row)
        gpuinterop.gemm(m, x, b, out=b)
    assert copies.count == 0
    assert [CALLS(i) - n for i, n in enumerate(before)] == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("shapes", "batched"),
    [(((3, 4, 5), (3, 5, 2)), 1), (((2, 3, 4, 5), (2, 3, 5, 2)), 1), (((3, 4, 5), (5, 2)), 0),
     (((4, 5), (3, 5, 2)), 1)],
)  # fmt: skip
def test_stacks_are_one_call(device: str, shapes, batched: int) -> None:
    a, b = values(*shapes[0]), values(*shapes[1])
    before = CALLS(GEMM), CALLS(BATCHED)
    close(CudaNdarray(a, device=device) @ CudaNdarray(b, device=device), a.astype(float) @ b)
    assert CALLS(BATCHED) - before[1] == batched
    assert CALLS(GEMM) - before[0] == 1 - batched


def test_float64(device: str) -> None:
    a, b = values(4, 5, dtype="float64"), values(5, 3, dtype="float64")
    x, y = gpuinterop.GpuArray(a, device=device), gpuinterop.GpuArray(b, device=device)
    np.testing.assert_allclose(np.asarray(x @ y), a @ b, rtol=1e-14)

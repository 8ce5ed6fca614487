"""Every reduction compiles for every architecture that the NVRTC at hand knows."""

from __future__ import annotations

import numpy as np
import pytest

from gpuinterop.errors import LibraryNotFoundError
from gpuinterop.jit import compile_source, supported_archs
from gpuinterop.ops.reduce_plan import Operand, plan_reduction
from gpuinterop.ops.reduce_table import REDUCTIONS, recipe_for
from gpuinterop.ops.reduce_text import CUDA_TYPES, render


def archs() -> list[int]:
    try:
        known = supported_archs()
    except LibraryNotFoundError as error:
        pytest.skip(f"no NVRTC: {error}")
    newest = max(a for a in known if a >= 100) if max(known) >= 100 else max(known)
    return [a for a in dict.fromkeys((75, 80, 90, newest)) if a in known]


def dtype_named(name: str) -> np.dtype:
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def text_of(op: str, dtype: np.dtype, shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    row = REDUCTIONS[op]
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    operands = [Operand(strides, dtype.itemsize)]
    if row.shifted:
        operands.append(
            Operand(tuple(0 if i in axes else s for i, s in enumerate(strides)), dtype.itemsize)
        )
    recipe = recipe_for(op, dtype, row.result(dtype), shift=dtype if row.shifted else None)
    return render(recipe, plan_reduction(shape, axes, operands, [(0,) * len(shape)]))


PAIRS = [
    pytest.param(op, dtype, marks=[] if dtype == "float32" or op == "sum" else [pytest.mark.slow])
    for op in sorted(REDUCTIONS)
    for dtype in sorted(CUDA_TYPES)
    if not (REDUCTIONS[op].real_only and dtype.startswith("complex"))
]


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_compiles(op: str, dtype: str) -> None:
    given = dtype_named(dtype)
    arch = archs()[len(op + dtype) % len(archs())]  # all of them: the slow test below
    for shape, axes in [((64, 256), (1,)), ((64, 256), (0,))]:
        assert compile_source(text_of(op, given, shape, axes), arch, use_cache=False)


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(REDUCTIONS))
def test_compiles_everywhere(op: str) -> None:
    for arch in archs():
        for shape, axes in [((1 << 20,), (0,)), ((64, 256), (0,)), ((1 << 17, 1 << 15), (1,))]:
            assert compile_source(
                text_of(op, np.dtype(np.float32), shape, axes), arch, use_cache=False
            )

"""Every reduction compiles for every architecture that the installed NVRTC supports."""

from dataclasses import replace
from itertools import combinations_with_replacement
from types import SimpleNamespace

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.arrays.dtypes import ACCUMULATORS, NAMES
from gpuinterop.fusion.builder import Expression
from gpuinterop.fusion.partition import partition
from gpuinterop.fusion.reduction_kernel import ReductionKernel
from gpuinterop.jit import compile_source, supported_archs
from gpuinterop.product import plans as product_plans
from gpuinterop.product import split_product
from gpuinterop.reduce.codegen import ACCUMULATOR_BYTES, Output, render
from gpuinterop.reduce.launch import Operand, choose_launch
from gpuinterop.reduce.table import REDUCTIONS, recipe_for

pytestmark = [pytest.mark.text, pytest.mark.usefixtures("nvrtc")]


def archs() -> list[int]:
    known = supported_archs()
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
    return render(recipe, choose_launch(shape, axes, operands, [(0,) * len(shape)]))


# The text depends on the family of the dtype, so each reduction takes its turn in each.
FAMILIES = (
    ("bool", "int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64"),
    ("float16", "bfloat16"), ("float32",), ("float64",), ("complex64", "complex128"),
)  # fmt: skip
assert sorted(sum(FAMILIES, ())) == sorted(ACCUMULATORS)
# One reduction of each kind of accumulator with float32, and sums of a dtype of each family.
QUICK = ("all", "argmin", "mean", "min", "norm2", "prod", "sum", "var")
PAIRS = [
    pytest.param(op, dtype, marks=[] if quick else [pytest.mark.slow])
    for turn, op in enumerate(sorted(REDUCTIONS))
    for family in FAMILIES
    for dtype in [family[turn % len(family)]]
    for quick in [op == "sum" or (op in QUICK and dtype == "float32")]
]


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_compiles(op: str, dtype: str) -> None:
    given = dtype_named(dtype)
    arch = archs()[len(op + dtype) % len(archs())]
    axes = (len(op + dtype) % 2,)
    text = text_of(op, given, (64, 256), axes)
    # The planner allocates this much for each accumulator of a block.
    check = f'static_assert(sizeof(Acc) <= {ACCUMULATOR_BYTES}, "a larger accumulator");'
    text = text.replace("__device__ inline Acc ", f"{check}\n__device__ inline Acc ", 1)
    assert check in text
    assert compile_source(text, arch)


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(REDUCTIONS))
def test_compiles_for_every_shape(op: str) -> None:
    """Each shape on an architecture; the operations take turns."""
    shapes = [((1 << 20,), (0,)), ((64, 256), (0,)), ((1 << 17, 1 << 15), (1,))]
    for turn, (shape, axes) in enumerate(shapes):
        arch = archs()[(turn + len(op)) % len(archs())]
        assert compile_source(text_of(op, np.dtype(np.float32), shape, axes), arch)


# ---- products with vectors ------------------------------------------------------------------------


def common_dtype(*names: str) -> np.dtype | None:
    try:
        return np.result_type(*map(dtype_named, names))
    except TypeError:  # bfloat16 and float16: no product either
        return None


QUICK_FACTORS = [
    ("complex64", "complex64"), ("complex128", "float16"), ("bfloat16", "float32"),
]  # fmt: skip
# Each dtype with one of each family, in either order.
FACTORS = [
    (first[k % len(first)], second[(k + 1) % len(second)])[:: (-1) ** k]
    for first, second in combinations_with_replacement(FAMILIES, 2)
    for k in range(max(len(first), len(second)))
]


def product_text(kernel, *dtypes: str) -> str:
    """The kernel for operands of 64 rows of 256."""
    operands = [Operand((256, 1), dtype_named(name).itemsize) for name in dtypes]
    plan = choose_launch((64, 256), (1,), operands, [(1, 0)])
    return render(kernel.recipe(), plan)


@pytest.mark.parametrize(
    ("a", "b"), [*QUICK_FACTORS, *(pytest.param(*ab, marks=pytest.mark.slow) for ab in FACTORS)]
)
def test_products_of_two_dtypes_compile(a: str, b: str) -> None:
    if common_dtype(a, b) is None:
        return
    kernel = product_plans.kernel_of_product(
        *[SimpleNamespace(dtype=dtype_named(n), shape=(64, 256)) for n in (a, b)]
    )
    arch = archs()[len(a + b) % len(archs())]
    assert compile_source(product_text(kernel, a, b), arch)


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        *(pytest.param(d, marks=pytest.mark.slow) for d in ("float16", "bfloat16", "float64")),
    ],
)
def test_products_with_a_long_inner_dimension(dtype: str) -> None:
    held = "double" if dtype == "float64" else "float"
    for arch in archs():
        for rows, columns, steps in ((4, 4, 256), (16, 64, 32), (64, 64, 16)):
            panels = (
                split_product.Panel(rows, True, 2, (1, 1)),
                split_product.Panel(columns, False, 2, (1, 1)),
            )
            text = split_product.text(dtype, held, panels, steps)
            assert b"gi_split_product" in compile_source(text, arch)


JOINED = [(d, 0) for d in ("bool", "int8", "float64", "complex64")]


@pytest.mark.parametrize(("dtype", "axis"), [("float32", 1), ("float32", None), *JOINED])
def test_joined_reductions_compile(dtype: str, axis: int | None) -> None:
    """Several accumulators fit into the shared memory of a block, even if a thread has the most columns."""
    graph = Expression()
    x, v = graph.input(), graph.input()
    results = [graph.reduce("mean", x, axis), graph.reduce("any", v, None)]
    if dtype != "complex64":
        results.append(graph.reduce("min", x, axis, keepdims=True))
    lengths = {0: (4096,), 1: (256,), None: (4096, 256)}[axis]
    (stage,) = partition(results, [(4096, 256), lengths])
    ops = [op for op, _, _ in stage.reductions]
    ids = (NAMES.index(dtype),) * len(stage.reads)
    given = replace(graph, results=results).codes(ids)[0]
    made = [Output(None, given[id(value)], ()) for value in stage.stores]
    kernel = ReductionKernel(stage.part, ops, axis, stage.ends, ids, made)
    item = dtype_named(dtype).itemsize
    strides = {0: (1, 0), 1: (0, 1), None: (256, 1)}[axis]
    rows = [Operand((256, 1), item), Operand(strides, item)]
    axes = (0, 1) if axis is None else (axis,)
    outs = [tuple(int(i not in axes) for i in range(2))] * len(results)
    text = render(kernel.recipe(), choose_launch((4096, 256), axes, rows, outs))
    assert "Both<" in text
    assert compile_source(text, archs()[0])


def test_later_kernels_read_values_after_a_reduction():
    """Without joined reductions too: they would compute such a value for each of their elements."""
    graph = gi.Expression()
    x, w = graph.input(), graph.input()
    total = graph.reduce("sum", graph.apply("multiply", x, w), -1)
    after = graph.apply("exp", total)
    column = graph.dimshuffle(after, (0, -1))
    result = graph.reduce("sum", graph.apply("multiply", column, x), 0)
    stages = partition([result], [(4, 3), (3,)], joined=False)
    assert [stage.stores for stage in stages] == [(total,), (after,), (result,)]

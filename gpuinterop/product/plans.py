"""Products that cuBLAS does not compute: with vectors, of integers, of rank one, with a long inner dimension.

The core requests a plan once for each layout of operands and keeps it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ShapeError
from gpuinterop.fusion.builder import Expression
from gpuinterop.fusion.partition import End
from gpuinterop.fusion.reduction_kernel import ReductionKernel
from gpuinterop.reduce.codegen import Output
from gpuinterop.reduce.table import accumulated_dtype

from .split_product import split_plan

if TYPE_CHECKING:
    from gpuinterop.fusion.compiled import CompiledExpression
    from gpuinterop.fusion.graph import Value


def plan(kind: str, a: Any, b: Any, out: Any) -> Any:
    """Return the `_core.Plan` of a product of CUDA operands, whose shapes were checked."""
    a, b, out = (None if x is None else _core.view(_core.gpuarray_class(), x) for x in (a, b, out))
    if kind == "split":
        return split_plan(a, b, out)
    outs = None if out is None else (out,)
    if kind == "matrices":
        batch = _core.broadcast_shapes((a.shape[:-2], b.shape[:-2]), "matmul")
        if len(batch) > _core.MAX_DIMS - 3:  # the sum's axis and the two of the result
            raise ShapeError(
                where="matmul", expected=f"at most {_core.MAX_DIMS - 1} axes for products of integers on CUDA",
                got=f"{len(batch) + 2} axes", fix="omit axes of length 1: x.squeeze(), or x[0]",
            )  # fmt: skip
        left = a.broadcast_to((*batch, *a.shape[-2:])).expand_dims(-2)
        right = b.broadcast_to((*batch, *b.shape[-2:])).swapaxes(-1, -2).expand_dims(-3)
    else:
        left, right = a, b if b.ndim == 1 else b.swapaxes(-1, -2)
    return kernel_of_product(left, right, kind == "wide").prepare((left, right), outs)


def product(
    graph: Expression, common: np.dtype[Any], left: Value, right: Value, conjugates: bool = False
) -> tuple[str, Value]:
    """Return the reduction of a product in the dtype `common`, and the elements that it reduces."""
    if common == np.bool_:
        return "any", graph.apply("logical_and", left, right)
    # The dtype of the sum, so that small floats are rounded once.
    held = accumulated_dtype("sum", common)
    x, y = graph.cast(left, held), graph.cast(right, held)
    return "sum", graph.apply("multiply", graph.apply("conjugate", x) if conjugates else x, y)


def kernel_of_product(a: Any, b: Any, wide: bool = False) -> ReductionKernel:
    """Return the kernel that sums a * b over the last axis; both broadcast, with any strides and dtypes."""
    common = np.dtype(np.float32) if wide else common_dtype((a.dtype, b.dtype), "matmul")
    graph, after = Expression(), Expression()
    op, elements = product(graph, common, graph.input(), graph.input())
    graph.results, after.results = [elements], [after.cast(after.input(), common)]
    shape = _core.broadcast_shapes((a.shape, b.shape), "matmul")[:-1]
    results = [Output(_core.gpuarray_class(), dtype_id(common), shape)]
    type_ids = dtype_id(a.dtype), dtype_id(b.dtype)
    return ReductionKernel(graph, (op,), -1, [End((0,), after, ())], type_ids, results, "matmul")


@cache
def conjugate_product(a: np.dtype[Any], b: np.dtype[Any]) -> CompiledExpression:
    """Return the function that sums conj(a) * b, for vectors of these dtypes."""
    graph, common = Expression(), common_dtype((a, b), "vdot")
    op, elements = product(graph, common, graph.input(), graph.input(), True)
    return graph.compile([graph.cast(graph.reduce(op, elements), common)], "vdot")


def rank_one() -> Any:
    """Return the elementwise operation x * y + a as a function, which the core keeps."""
    graph = Expression()
    x, y, a = (graph.input() for _ in range(3))
    compiled = graph.compile([graph.apply("add", graph.apply("multiply", x, y), a)], "rank_one")
    return compiled.operation((None, None, None))

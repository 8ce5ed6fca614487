"""Products that cuBLAS does not compute: with vectors, of integers, of rank one, with a long inner dimension,
and in host memory.

The core requests a plan once for each layout of operands and keeps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ShapeError
from gpuinterop.host_views import as_numpy_view, wrap_numpy
from gpuinterop.layout import broadcast_shapes
from gpuinterop.ops import output_arrays
from gpuinterop.ops.dtype_promotion import common_dtype
from gpuinterop.ops.expression import Expression
from gpuinterop.ops.operand_conversion import gpuarray_class
from gpuinterop.ops.reduction_kernel import ReductionKernel
from gpuinterop.ops.reduction_table import accumulated_dtype
from gpuinterop.ops.split_product import split_plan

_products: dict[tuple[Any, ...], ReductionKernel] = {}


def plan(kind: str, a: Any, b: Any, out: Any) -> Any:
    """Return the `_core.LaunchPlan` of a product of CUDA operands, whose shapes were checked."""
    a, b, out = (None if x is None else _core.view(gpuarray_class(), x) for x in (a, b, out))
    if kind == "split":
        return split_plan(a, b, out)
    outs = None if out is None else (out,)
    if kind == "integer":
        batch = broadcast_shapes((a.shape[:-2], b.shape[:-2]), "matmul")
        if len(batch) > _core.MAX_DIMS - 3:  # the sum's axis and the two of the result
            raise ShapeError(
                where="matmul", expected=f"at most {_core.MAX_DIMS - 1} axes for products of integers on CUDA",
                got=f"{len(batch) + 2} axes", fix="omit axes of length 1: x.squeeze(), or x[0]",
            )  # fmt: skip
        left = a.broadcast_to((*batch, *a.shape[-2:])).expand_dims(-2)
        right = b.broadcast_to((*batch, *b.shape[-2:])).swapaxes(-1, -2).expand_dims(-3)
    else:
        left, right = a, b if b.ndim == 1 else b.swapaxes(-1, -2)
    return kernel_of_product(left, right, kind == "wide").resolved((left, right), (), outs)


def kernel_of_product(
    a: Any, b: Any, wide: bool = False, on_host: bool = False, conjugates: bool = False
) -> ReductionKernel:
    """Return the kernel that sums a * b over the last axis; both broadcast, with any strides and dtypes."""
    key = (a.dtype, b.dtype, wide, on_host, conjugates)
    kernel = _products.get(key)
    if kernel is None:
        common = np.dtype(np.float32) if wide else common_dtype((a.dtype, b.dtype), "matmul")
        graph = Expression()
        x, y = graph.input(), graph.input()
        if common == np.bool_:
            graph.results = [graph.apply("logical_and", x, y)]
        else:
            # The dtype of the sum, so that small floats are rounded once.
            held = accumulated_dtype("sum", common)
            if on_host and held == "float32":
                held = "float64"
            x, y = graph.cast(x, held), graph.cast(y, held)
            x = graph.apply("conjugate", x) if conjugates else x
            graph.results = [graph.apply("multiply", x, y)]
        op = "any" if common == np.bool_ else "sum"
        kernel = _products[key] = ReductionKernel(graph, (op,), dtypes=(common,), where="matmul")
    return kernel


_kept: list[Any] = []  # operations that the core calls by their ids


def rank_one() -> int:
    """Return the core's id of the elementwise operation x * y + a."""
    graph = Expression()
    x, y, a = (graph.input() for _ in range(3))
    compiled = graph.compile([graph.apply("add", graph.apply("multiply", x, y), a)], "rank_one")
    operation = compiled.operation((None, None, None))
    _kept.append(operation)
    return _core._op_of(operation)


# ---- host memory -----------------------------------------------------------------------------------


def sum_of_products(a: Any, b: Any, out: Any = None) -> Any:
    """Return the sum of a * b over the last axis; floats of 16 and 32 bits are summed in float64."""
    shape = broadcast_shapes([a.shape, b.shape], "matmul")[:-1]
    result = np.empty(shape, a.dtype) if out is None else out
    kernel = kernel_of_product(a, b, on_host=True)
    kernel(wrap_numpy(a), wrap_numpy(b), out=wrap_numpy(result))
    return result


def compute(kind: str, result: Any, a: Any, b: Any, c: Any, alpha: complex, beta: complex) -> None:
    """Fill `result` with ``alpha * a @ b + beta * c``: now, or at each replay of a capture.

    Shapes, dtypes and `result` have been checked. As in BLAS, operands that an alpha or beta of 0
    multiplies are not read.
    """
    sink, left, right = as_numpy_view(result, written=True), as_numpy_view(a), as_numpy_view(b)
    added = None if c is None or beta == 0 else as_numpy_view(c)
    small = result.dtype.kind in "fV" and result.dtype.itemsize == 2
    # alpha or beta may bring a product back into the range of a small float, so compute it in a wider dtype.
    # The widest operand determines the dtype, even an addend that is not read.
    dtype: Any = np.dtype(np.float32) if small and (alpha != 1 or c is not None) else result.dtype
    floating = dtype.kind in "fc"
    scale: Any = dtype.type(alpha) if floating else alpha
    scale_added: Any = dtype.type(beta) if floating else beta
    # The addend is read after the product is written.
    in_place = dtype == result.dtype and (added is None or not _core._may_overlap(result, c))

    def product(out: Any) -> Any:
        # Each replay reads the operands again.
        x, y = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
        # NumPy gives matrices and vectors without gaps to BLAS; other vectors it would sum one by one in float32.
        in_blas = kind != "ger" and dtype.char in "fdFD" and x.flags.forc and y.flags.forc
        if kind == "gemm" or in_blas:
            return np.matmul(x, y, out=out)
        return sum_of_products(x, y if y.ndim == 1 else y.swapaxes(-1, -2), out)

    def work() -> None:
        with np.errstate(all="ignore"):
            if alpha == 0:
                sink[...] = 0 if added is None else added * scale_added
                return
            value = product(sink if in_place else None)
            if alpha != 1:
                np.multiply(value, scale, out=value)
            if added is not None:
                np.add(value, added if beta == 1 else added * scale_added, out=value)
            if value is not sink:
                sink[...] = value

    output_arrays.record_or_run(work)

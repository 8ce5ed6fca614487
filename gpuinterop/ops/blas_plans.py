"""Kernels of the products that cuBLAS does not compute: with vectors, of integers, of rank one.

The core asks for a plan once for each layout of operands and keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import STORAGE
from gpuinterop.errors import ShapeError
from gpuinterop.layout import broadcast_shapes
from gpuinterop.ops.blas_host import sum_of_products
from gpuinterop.ops.dtype_promotion import common_dtype
from gpuinterop.ops.expression import Expression
from gpuinterop.ops.map_reduce import MapReduce
from gpuinterop.ops.operand_conversion import gpuarray_class

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["plan", "rank_one"]

# Both factors in the type that is summed: C++ would multiply an int by a float in float32, and wrap
# where NumPy computes in float64.
_TIMES = "gi_mul(gi_to<Value>(x0), gi_to<Value>(x1))"  # integers wrap around

_products: dict[tuple[Any, Any, bool], MapReduce] = {}  # by the operands' dtypes
_scaled: dict[Any, MapReduce] = {}  # by dtype, alpha and beta: the core asks for at most 64


def plan(kind: str, a: Any, b: Any, c: Any, alpha: float, beta: float, out: Any) -> Any:
    """Return the `_core.LaunchPlan` of a product of CUDA operands, whose shapes were checked."""
    a, b, c, out = (None if x is None else _core.view(gpuarray_class(), x) for x in (a, b, c, out))
    outs = None if out is None else (out,)
    if kind == "gemv":
        extras = () if c is None else (c,)
        return _scaled_product(a, b, c, alpha, beta)._resolved((a, b), extras, outs)
    if kind == "integer":
        batch = broadcast_shapes((a.shape[:-2], b.shape[:-2]), "matmul")
        if len(batch) > _core.MAX_DIMS - 3:  # the sum's axis and the two of the result
            raise ShapeError(
                where="matmul", expected=f"at most {_core.MAX_DIMS - 1} axes for products of integers on CUDA",
                got=f"{len(batch) + 2}", fix="drop axes of extent 1: x.squeeze(), or x[0]",
            )  # fmt: skip
        left = a.broadcast_to((*batch, *a.shape[-2:])).expand_dims(-2)
        right = b.broadcast_to((*batch, *b.shape[-2:])).swapaxes(-1, -2).expand_dims(-3)
    else:
        left, right = a, b if b.ndim == 1 else b.swapaxes(-1, -2)
    return _product(left, right, kind == "wide")._resolved((left, right), (), outs)


def _product(a: Any, b: Any, wide: bool = False) -> MapReduce:
    """Sum of a * b over the last axis; both broadcast. One kernel, any strides, any number type."""
    key = (a.dtype, b.dtype, wide)
    kernel = _products.get(key)
    if kernel is None:
        common = np.dtype(np.float32) if wide else common_dtype((a.dtype, b.dtype), "matmul")
        op = "any" if common == np.bool_ else "sum"
        kernel = _products[key] = MapReduce(
            "x0 && x1" if op == "any" else _TIMES,
            _on_host,
            op=op,
            dtypes=(common,),
            where="matmul",
        )
    return kernel


def _on_host(operands: Sequence[Any], extras: Sequence[Any]) -> Sequence[Any]:
    return (sum_of_products(*operands),)


def _scaled_product(a: Any, x: Any, y: Any, alpha: float, beta: float) -> MapReduce:
    common = common_dtype([v.dtype for v in (a, x, y) if v is not None], "gemv")
    key = (common, alpha, None if y is None else beta)
    kernel = _scaled.get(key)
    if kernel is None:
        r, e0 = "r", "e0"
        if common.kind == "c":  # one of the two may be real
            r, e0 = (f"gi_to<{STORAGE[common.name]}>({x})" for x in (r, e0))
        post = r if alpha == 1 else f"{alpha!r} * {r}"
        if y is not None and beta != 0:
            post += f" + {e0}" if beta == 1 else f" + {beta!r} * {e0}"
        if common.itemsize <= 4 and common.kind == "f" and post != "r":
            post = f"float({post})"
        kernel = _scaled[key] = _Scaled(common, post)
    return kernel


class _Scaled(MapReduce):
    """A sum of products, scaled, computed in a dtype that the addend may have widened."""

    def __init__(self, dtype: np.dtype[Any], post: str) -> None:
        super().__init__(_TIMES, _on_host, posts=(post,), dtypes=(dtype,), where="gemv")
        self._dtype = dtype

    def _dtypes(self, operands: Sequence[Any]) -> tuple[Any, list[Any]]:
        return self._dtype, [self._dtype]


_kept: list[Any] = []  # operations that the core calls by their numbers


def rank_one() -> int:
    """Return the core's number of the elementwise operation x * y + a."""
    graph = Expression()
    x, y, a = (graph.input() for _ in range(3))
    compiled = graph.compile([graph.apply("add", graph.apply("multiply", x, y), a)], "rank_one")
    operation = compiled.operation((None, None, None))
    _kept.append(operation)
    return _core._op_of(operation)

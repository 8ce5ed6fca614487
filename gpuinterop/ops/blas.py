"""Products of matrices and vectors: cuBLAS for matrices, our own reductions for vectors.

Row-major, column-major and transposed operands are used as they lie in memory; only an operand
without a unit stride is copied. float32 is computed in float32 unless TF32 is asked for. On "cpu"
NumPy computes.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core, libs
from gpuinterop.errors import (
    ArgumentTypeError,
    DTypeError,
    ShapeError,
)
from gpuinterop.ops import results
from gpuinterop.ops.map_reduce import MapReduce
from gpuinterop.ops.runtime import _operand as operand
from gpuinterop.sources import host_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["addmm", "allow_tf32", "dot", "dot22", "gemm", "gemv", "ger", "inner", "matmul", "vdot"]

_FLOATS = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}
_cublas_takes: dict[Any, bool] = {}  # by dtype, whose name is slow to make


class _Precision(threading.local):
    tf32 = False


_precision = _Precision()


@contextmanager
def allow_tf32(allowed: bool = True) -> Iterator[None]:
    """Let products of float32 matrices round their operands to TF32 in this block and thread.

    Several times faster on GPUs since Ampere, with 10 bits of mantissa instead of 23.
    """
    before = _precision.tf32
    _precision.tf32 = allowed
    try:
        yield
    finally:
        _precision.tf32 = before


def _open() -> None:
    """Open cuBLAS at its first use."""
    if not _core.blas_is_open():
        _core.blas_open(libs.find("cublas").path, libs.find("cublasLt").path)


# ---- vectors: reductions of products ------------------------------------------------------------


def _host_sum_of_products(x: Sequence[Any], axis: int) -> Any:
    a, b = x
    if a.dtype == np.bool_ and b.dtype == np.bool_:
        return np.any(a & b, axis=axis)
    common = np.result_type(a, b)
    wide = {2: np.float32, 4: np.float64}.get(common.itemsize) if common.kind in "fV" else None
    total = np.sum(np.multiply(a, b, dtype=wide), axis=axis)
    return total.astype(common)


_products: dict[tuple[Any, Any], MapReduce] = {}  # by the operands' dtypes


def _inner(a: Any, b: Any, out: Any = None) -> Any:
    """Sum of a * b over the last axis; both broadcast. One kernel, any strides, any number type."""
    kernel = _products.get((a.dtype, b.dtype))
    if kernel is None:
        common = np.result_type(a.dtype, b.dtype)
        op = "any" if common == np.bool_ else "sum"
        kernel = _products[a.dtype, b.dtype] = MapReduce(
            "x0 && x1" if op == "any" else "x0 * x1",
            lambda x, e: (_host_sum_of_products(x, -1),),
            op=op,
            axis=-1,
            dtypes=(common,),
            where="matmul",
        )
    return kernel(a, b, out=out)


# ---- checks ---------------------------------------------------------------------------------------


def _require_inner(a: Any, b: Any, n: int, m: int, where: str) -> None:
    if n != m:
        raise ShapeError(
            where=where,
            expected="inner extents that are equal",
            got=f"shapes {tuple(a.shape)} and {tuple(b.shape)}: {n} against {m}",
            fix="transpose one operand: x.T",
        )


def _common(where: str, *operands: Any) -> np.dtype[Any]:
    common: np.dtype[Any] = operands[0].dtype
    if any(x.dtype is not common for x in operands):
        common = np.result_type(*[x.dtype for x in operands])
    if common.kind not in "biufcV":
        raise DTypeError(where=where, expected="numbers", got=str(common), fix="cast them first")
    return common


def _as(x: Any, dtype: np.dtype[Any]) -> Any:
    return x if x.dtype == dtype else x.astype(dtype)


# ---- matrices -------------------------------------------------------------------------------------


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    out: Any = None,
    tf32: bool | None = None,
) -> Any:
    """Return ``alpha * a @ b + beta * c``; leading axes are batches and broadcast.

    `c` broadcasts to the result and is only read: cuBLAS adds it as it writes the result, so no
    pass over memory is spent on it. With ``out=c`` the result replaces it. `out` may have any
    strides but must not overlap `a` or `b`. Queued on the current stream.

    Raises
    ------
    ShapeError
        Inner extents differ, or `c` or `out` do not fit.
    """
    operands = (a, b) if c is None else (a, b, c)
    results.require_arrays("gemm", *operands)
    for x in (a, b):
        if x.ndim < 2:
            raise ShapeError(
                where="gemm", expected="matrices (two axes or more)", got=f"shape {x.shape}",
                fix="use dot or matmul for vectors",
            )  # fmt: skip
    _require_inner(a, b, a.shape[-1], b.shape[-2], "gemm")
    common = _common("gemm", *operands)
    batch = _batches(a, b)
    shape = (*batch, a.shape[-2], b.shape[-1])
    if c is not None and c.shape != shape:
        c = c.broadcast_to(shape) if c.shape != shape[-1:] else c
    like = results.leading(operands)
    result = results.new_like(like, shape, common) if out is None else out
    if out is not None:
        results.check_out(out, shape, common, like, "gemm")
    if a.device.type == "cpu":
        _gemm_on_host(result, a, b, c, alpha, beta)
        return result
    taken = _cublas_takes.get(common)
    if taken is None:
        taken = _cublas_takes[common] = common.name in _FLOATS
    if not taken:
        return _gemm_of_integers(result, a, b, c, alpha, beta, common)
    a, b = _as(a, common), _as(b, common)
    c = c if c is None else _as(c, common)
    if result.size == 0:
        return result
    if a.shape[-1] == 0 or alpha == 0:
        return _scaled_into(result, c, beta)
    if out is not None and (_core._may_overlap(a, out) or _core._may_overlap(b, out)):
        result = gemm(a, b, c, alpha=alpha, beta=beta, tf32=tf32)
        _core.copy_into(out, result, where="gemm")
        return out
    _open()
    bias = None
    if c is not None and c.ndim == 1 and len(shape) == 2:
        # A vector that is added to every row rides along in cublasLt's epilogue.
        fits = beta == 1 and result.is_c_contiguous() and c.is_c_contiguous() and common.kind != "c"
        c, bias = (None, c) if fits else (c.broadcast_to(shape), None)
    elif c is not None and c.ndim < len(shape):
        c = c.broadcast_to(shape)
    if (
        c is not None
        and c is not out
        and out is not None
        and _core._may_overlap(c, out)
        and not _same(c, out)
    ):
        c = c.copy()
    out2, a2, b2, c2 = _merged(result, a, b, c, batch)
    _core.gemm(
        out2, a2, b2, c2, bias, alpha, beta, _precision.tf32 if tf32 is None else tf32, "gemm"
    )
    return result


def _same(x: Any, y: Any) -> bool:
    return bool(x.ptr == y.ptr and x.shape == y.shape and x.strides == y.strides)


def _batches(a: Any, b: Any) -> tuple[int, ...]:
    if a.ndim == b.ndim == 2:
        return ()
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError as error:
        raise ShapeError(
            where="matmul",
            expected="leading axes that broadcast",
            got=f"shapes {a.shape} and {b.shape}",
            fix="reshape one of them",
        ) from error


def _merged(out: Any, a: Any, b: Any, c: Any, batch: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """As few batch axes as strides allow: views only."""
    if not batch:
        return out, a, b, c
    if b.ndim == 2 and out.is_c_contiguous() and a.is_c_contiguous() and a.shape[:-2] == batch:
        # One tall matrix instead of many.
        rows = out.size // out.shape[-1]
        flat = None if c is None else c._reshaped((rows, c.shape[-1]))
        if c is None or flat is not None:
            return (
                out._reshaped((rows, out.shape[-1])),
                a._reshaped((rows, a.shape[-1])),
                b,
                flat,
            )
    full = [x if x is None else x.broadcast_to((*batch, *x.shape[-2:])) for x in (out, a, b, c)]
    count = int(np.prod(batch))
    merged = [None if x is None else x._reshaped((count, *x.shape[-2:])) for x in full]
    if all(m is not None or x is None for m, x in zip(merged, full, strict=True)):
        full = merged
    return full[0], full[1], full[2], full[3]


def _scaled_into(result: Any, c: Any, beta: float) -> Any:
    """Products of nothing are 0, so only beta * c is left."""
    if c is None or beta == 0:
        result[...] = 0
        return result
    source = c if c.shape == result.shape else c.broadcast_to(result.shape)
    if not _same(source, result):
        _core.copy_into(result, source, where="gemm")
    if beta != 1:
        result *= beta
    return result


def _gemm_on_host(result: Any, a: Any, b: Any, c: Any, alpha: float, beta: float) -> None:
    sink, left, right = host_view(result), host_view(a), host_view(b)
    added = None if c is None else host_view(c)
    plain = alpha == 1 and added is None
    kind = result.dtype.kind
    scale, scale_c = (
        (result.dtype.type(alpha), result.dtype.type(beta)) if kind in "fc" else (alpha, beta)
    )

    def work() -> None:
        with np.errstate(all="ignore"):
            product = np.matmul(left, right)
            if plain:
                sink[...] = product
                return
            if alpha != 1:
                product = product * scale
            if added is not None and beta != 0:
                product = product + (added if beta == 1 else added * scale_c)
            sink[...] = product

    results.record_or_run(work)


def _gemm_of_integers(
    result: Any, a: Any, b: Any, c: Any, alpha: float, beta: float, common: np.dtype[Any]
) -> Any:
    """CuBLAS has no such product: one reduction over all triples, exact and unhurried."""
    if alpha != 1 or (c is not None and beta != 1):
        raise DTypeError(
            where="gemm",
            expected="alpha and beta of 1 for integers",
            got=f"alpha={alpha}, beta={beta} for {common}",
            fix="cast the operands to float64",
        )
    batch = result.shape[:-2]
    k = a.shape[-1]
    left = a.broadcast_to((*batch, *a.shape[-2:])).expand_dims(-2)
    right = b.broadcast_to((*batch, *b.shape[-2:])).swapaxes(-1, -2).expand_dims(-3)
    if k == 0 or result.size == 0:
        return _scaled_into(result, c, beta)
    _inner(left, right, out=result)
    if c is not None:
        result += c
    return result


def _both(a: Any, b: Any, where: str) -> tuple[Any, Any]:
    """Operands as arrays: one that is not ours joins the other, by the rule of the operators."""
    if not isinstance(a, _core.Array):
        a = operand(a, b, where)
    elif not isinstance(b, _core.Array):
        b = operand(b, a, where)
    results.require_arrays(where, a, b)
    return a, b


def matmul(a: Any, b: Any, /, out: Any = None, *, tf32: bool | None = None) -> Any:
    """Return ``a @ b`` by NumPy's rules: vectors, matrices, and stacks of matrices that broadcast."""
    a, b = _both(a, b, "matmul")
    for x in (a, b):
        if x.ndim == 0:
            raise ShapeError(
                where="matmul",
                expected="operands of one axis or more",
                got="a 0-d array",
                fix="use *",
            )
    if a.ndim == 1 or b.ndim == 1:
        n = a.shape[-1]
        m = b.shape[0] if b.ndim == 1 else b.shape[-2]
        _require_inner(a, b, n, m, "matmul")
        if b.ndim == 1:
            return _inner(a, b, out)
        return _inner(a, b.swapaxes(-1, -2), out)
    _require_inner(a, b, a.shape[-1], b.shape[-2], "matmul")
    return gemm(a, b, out=out, tf32=tf32)


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Return numpy.dot's product: inner product, matrix product, or sum over the last axis of `a`
    and the last but one of `b`; a 0-d operand scales.
    """
    a, b = _both(a, b, "dot")
    if a.ndim == 0 or b.ndim == 0:
        product = a * b
        if out is None:
            return product
        results.check_out(out, product.shape, product.dtype, product, "dot")
        _core.copy_into(out, product, where="dot")
        return out
    _require_inner(a, b, a.shape[-1], b.shape[0] if b.ndim == 1 else b.shape[-2], "dot")
    if b.ndim <= 2:
        if a.ndim <= 2 or b.ndim == 1:
            return matmul(a, b, out)
        return gemm(a, b, out=out)
    if a.ndim == 1:
        return matmul(a, b, out)
    # Every row of a with every column of each matrix of b: one product, then the axes in order.
    k = a.shape[-1]
    columns = b.swapaxes(-1, -2)
    left = a.reshape((a.size // max(k, 1) if k else int(np.prod(a.shape[:-1])), k))
    right = columns.reshape((int(np.prod(columns.shape[:-1])), k))
    product = gemm(left, right.T).reshape((*a.shape[:-1], *columns.shape[:-1]))
    if out is None:
        return product
    results.check_out(out, product.shape, product.dtype, product, "dot")
    _core.copy_into(out, product, where="dot")
    return out


def dot22(a: Any, b: Any) -> Any:
    """Return the product of two matrices with the documents' errors: TypeError for any other
    number of axes, ValueError for inner extents that differ.
    """
    for x in (a, b):
        if not isinstance(x, _core.Array) or x.ndim != 2:
            got = f"{x.ndim} axes" if isinstance(x, _core.Array) else type(x).__name__
            raise ArgumentTypeError(
                where="dot",
                expected="two matrices",
                got=got,
                fix="reshape to two axes, or use matmul",
            )
    return gemm(a, b)


def vdot(a: Any, b: Any) -> Any:
    """Return the inner product of the flattened operands, `a` conjugated."""
    results.require_arrays("vdot", a, b)
    a, b = a.ravel(), b.ravel()
    _require_inner(a, b, a.size, b.size, "vdot")
    if a.dtype.kind == "c":
        a = a.conj()
    return _inner(a, b)


def inner(a: Any, b: Any) -> Any:
    """Return the sum of products over the last axes."""
    results.require_arrays("inner", a, b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    _require_inner(a, b, a.shape[-1], b.shape[-1], "inner")
    return dot(a, b if b.ndim == 1 else b.swapaxes(-1, -2))


def addmm(c: Any, a: Any, b: Any, *, alpha: float = 1.0, beta: float = 1.0, out: Any = None) -> Any:
    """Return ``beta * c + alpha * a @ b``."""
    return gemm(a, b, c, alpha=alpha, beta=beta, out=out)


_scaled: dict[Any, MapReduce] = {}


def gemv(
    a: Any, x: Any, y: Any = None, *, alpha: float = 1.0, beta: float = 1.0, out: Any = None
) -> Any:
    """Return ``alpha * a @ x + beta * y`` in one kernel; any strides, nothing copied.

    The kernel is a reduction of products and as accurate as `sum`; with ``out=y`` it works in
    place.
    """
    results.require_arrays("gemv", a, x, *(() if y is None else (y,)))
    if a.ndim != 2 or x.ndim != 1:
        raise ShapeError(
            where="gemv", expected="a matrix and a vector", got=f"shapes {a.shape} and {x.shape}",
            fix="use matmul for other shapes",
        )  # fmt: skip
    _require_inner(a, x, a.shape[1], x.shape[0], "gemv")
    if y is not None and y.shape != a.shape[:1]:
        raise ShapeError(
            where="gemv",
            expected=f"y of shape {a.shape[:1]}",
            got=str(y.shape),
            fix="broadcast it first",
        )
    common = _common("gemv", a, x, *(() if y is None else (y,)))
    key = (common, float(alpha), float(beta) if y is not None else None)
    kernel = _scaled.get(key)
    if kernel is None:
        post = f"{alpha!r} * r"
        if y is not None:
            post = f"{post} + {beta!r} * e0" if beta else post
        if common.itemsize <= 4 and common.kind == "f":
            post = f"float({post})" if alpha != 1 or y is not None else "r"

        def host(operands: Sequence[Any], extras: Sequence[Any]) -> Sequence[Any]:
            total = alpha * _host_sum_of_products(operands, -1)
            return (total + beta * extras[0] if extras and beta else total,)

        if len(_scaled) > 256:  # numbers that change with every call would grow it for ever
            _scaled.clear()
        kernel = _scaled[key] = MapReduce("x0 * x1", host, axis=-1, posts=(post,), dtypes=(common,))
    return kernel(a, x, extras=() if y is None else (y,), out=out)


def ger(x: Any, y: Any, a: Any = None, *, alpha: float = 1.0, out: Any = None) -> Any:
    """Return ``alpha * outer(x, y) + a``; with ``out=a`` in place."""
    results.require_arrays("ger", x, y, *(() if a is None else (a,)))
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            where="ger",
            expected="two vectors",
            got=f"shapes {x.shape} and {y.shape}",
            fix="ravel them",
        )
    return gemm(x.expand_dims(1), y.expand_dims(0), a, alpha=alpha, out=out)

"""Factorizations on CUDA: cuSOLVER's routines, those of cuBLAS for many small matrices, and the kernels of small.py.

The libraries' routines work in place on matrices in column-major order, so a function copies its operand once into
that order. Factors that are matrices are views of those copies. Nothing of it counts as a copy: it is a part of the
result, as in every operation.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.numpy_views import download
from gpuinterop.devices import find_libraries
from gpuinterop.elementwise.calls import FUNCTIONS, PREPARE, call
from gpuinterop.elementwise.functions import cast_into
from gpuinterop.elementwise.results import new_like
from gpuinterop.errors import CudaError, LinAlgError
from gpuinterop.fusion.fuse import fuse
from gpuinterop.index.join_split import concatenate
from gpuinterop.numpy_calls.submodules import NOT_CONVERGED, NOT_POSITIVE, SINGULAR

from . import small

# Above this many rows cuSOLVER is faster, one matrix after the other.
MOST_BATCHED = 512
# Up to this many columns Jacobi rotations are the fastest way to singular values.
MOST_JACOBI = 128
# A kernel of our own is faster: one system of real equations of up to so many rows and right sides,
MOST_SOLVED, MOST_SIDES = 64, 8
# and a stack of Hermitian matrices of so many rows.
FACTORED = range(32, 65)
# cuBLAS factors a stack of as many matrices as rows, up to this many, faster than cuSOLVER one after the other.
MOST_QR = 256


@cache
def load() -> None:
    """Open cuSOLVER and cuBLAS on first use."""
    cusolver, cublas = find_libraries.find("cusolver").path, find_libraries.find("cublas").path
    PREPARE["cublas"]()
    _core._linalg_open(cusolver, cublas)


# ---- matrices for cuSOLVER ------------------------------------------------------------------------


def empty(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialized array beside `like`."""
    return new_like(like, shape, dtype, "linalg")


def in_columns(x: Any, dtype: Any) -> Any:
    """Return a copy of matrices, column by column: its last axis runs along the columns."""
    return into(empty(x, (*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype), x.mT)


def into(target: Any, x: Any) -> Any:
    """Fill and return an array."""
    if x.dtype == target.dtype:
        _core.copy_into(target, x, where="linalg", uncounted=True)
    else:
        cast_into(target, x)
    return target


def _of_small(x: Any, dtype: Any) -> Any:
    """Return matrices as a stack of one axis, which a kernel reads as they lie."""
    if x.dtype != dtype or x.ndim > 3:
        x = into(empty(x, x.shape, dtype), x)
    return x.reshape((-1, *x.shape[-2:])) if x.ndim > 3 else x if x.ndim == 3 else x[None]


def filled(like: Any, shape: tuple[int, ...], dtype: Any, value: int = 0) -> Any:
    """Return an array of one value beside `like`."""
    made = empty(like, shape, dtype)
    made[...] = value
    return made


def identity(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a stack of identity matrices, of shape (..., n, n)."""
    n = shape[-1]
    made = filled(like, shape, dtype)
    made.reshape((math.prod(shape[:-2]), n * n))[:, :: n + 1] = 1
    return made


def _numbers(like: Any, n: int) -> Any:
    """Return 0 to n - 1."""
    return call("arange", n, dtype="int64", device=like.device)


def _addresses(x: Any) -> Any:
    """Return the addresses of a stack's matrices, on the device."""
    each = x.shape[-1] * x.shape[-2] * x.itemsize
    end = x.ptr + math.prod(x.shape[:-2]) * each
    return call("arange", x.ptr, end, each, dtype="int64", device=x.device)


def _is_batch(x: Any) -> bool:
    return bool(x.ndim > 2 and x.shape[-1] <= MOST_BATCHED and math.prod(x.shape[:-2]) > 1)


def _status(x: Any) -> Any:
    """Return an uninitialized int32 for each matrix, in which a routine reports what it found."""
    return empty(x, x.shape[:-2], "int32")


def _require_success(info: Any, expected: str, got: str, fix: str) -> None:
    """Raise for the first matrix whose status is not 0. Waits for the device."""
    if info.ndim == 0:
        if info.item() == 0:
            return
        matrix = "the matrix"
    else:
        found = np.nonzero(download(info, "linalg", uncounted=True))
        if not found[0].size:
            return
        matrix = f"matrix {tuple(int(i[0]) for i in found)} of the stack"
    raise LinAlgError(where="linalg", expected=expected, got=got.format(matrix=matrix), fix=fix)


# ---- LU -------------------------------------------------------------------------------------------


class _Factors:
    """LU factors of a stack of matrices."""

    def __init__(self, a: Any, dtype: Any) -> None:
        load()
        self.lu = lu = in_columns(a, dtype)
        self.info = _status(lu)
        self.batched = lu.size > 0 and _is_batch(lu)
        self.pivots = empty(lu, lu.shape[:-1], "int32" if self.batched else "int64")
        if self.batched:
            self.lu_at = _addresses(lu)
            _core._linalg_batched_lu(lu, self.lu_at, self.pivots, self.info)
        elif lu.size:
            _core._linalg_lu(lu, self.pivots, self.info)

    def solved(self, x: Any) -> Any:
        """Replace right sides, column by column, by the solutions, and return these as columns."""
        if x.size:
            if self.batched:
                at = _addresses(x)
                _core._linalg_batched_lu_solve(self.lu, self.lu_at, self.pivots, x, at)
            else:
                _core._linalg_lu_solve(self.lu, self.pivots, x)
        return x.mT

    def require_regular(self) -> None:
        """Raise for a singular matrix. Waits for the device."""
        if self.lu.size:
            _require_success(self.info, *SINGULAR)


def solve(a: Any, b: Any, dtype: Any) -> Any:
    """Return the solutions x of ``a @ x = b`` for stacks of matrices of one leading shape."""
    if (
        a.ndim == 2
        and dtype.kind == "f"
        and a.size <= MOST_SOLVED**2
        and 0 < b.size <= a.shape[-1] * MOST_SIDES
    ):
        x, info = empty(a, b.shape, dtype), _status(a)
        small.solve(_of_small(a, dtype), _of_small(b, dtype), x, info)
        _require_success(info, *SINGULAR)
        return x
    # The device factors while the right sides are copied.
    factors = _Factors(a, dtype)
    x = factors.solved(in_columns(b, dtype))
    if x.size:
        factors.require_regular()
    return x


def inv(a: Any, dtype: Any) -> Any:
    """Return the inverse of each matrix."""
    factors = _Factors(a, dtype)
    inverse = factors.solved(identity(factors.lu, factors.lu.shape, dtype))
    factors.require_regular()
    return inverse


def inv_and_status(a: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the inverses, and an int32 for each, which is not 0 if the matrix is singular."""
    factors = _Factors(a, dtype)
    return factors.solved(identity(factors.lu, factors.lu.shape, dtype)), factors.info


# A pivot differs from its own number where two rows were exchanged.
_signed_product = fuse(lambda u, p, i: FUNCTIONS["where"](p == i, u, -u).prod(-1))


def _sign(u: Any) -> Any:
    length = abs(u)
    return FUNCTIONS["where"](length == 0, u, u / length)


_sign_and_log = fuse(
    lambda u, p, i: (
        FUNCTIONS["where"](p == i, _sign(u), -_sign(u)).prod(-1),
        FUNCTIONS["log"](abs(u)).sum(-1),
    )
)


def det(a: Any, dtype: Any) -> Any:
    """Return the determinants. Does not wait for the device."""
    return _signed_product(*_triangle_of(a, dtype))


def slogdet(a: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the signs and the logarithms of the absolute values of the determinants."""
    sign, logarithm = _sign_and_log(*_triangle_of(a, dtype))
    return sign, logarithm


def _triangle_of(a: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """Return the diagonal of U, the pivots, and the pivots of rows that stay in place."""
    factors = _Factors(a, dtype)
    pivots = factors.pivots
    stay = call("arange", 1, a.shape[-1] + 1, dtype=pivots.dtype, device=a.device)
    return factors.lu.diagonal(0, -2, -1), pivots, stay


# ---- Cholesky, QR ---------------------------------------------------------------------------------


_keep_below = fuse(lambda x, row, column: FUNCTIONS["where"](row >= column, x, 0))


def cholesky(a: Any, dtype: Any) -> Any:
    """Return the lower factor of each matrix, from its lower triangle."""
    n = a.shape[-1]
    if a.size and n in FACTORED and _is_batch(a) and small.fits(n, n, dtype.itemsize):
        made, info = empty(a, a.shape, dtype), _status(a)
        small.cholesky(_of_small(a, dtype), made, info)
        _require_success(info, *NOT_POSITIVE)
        return made
    load()
    factor = in_columns(a, dtype)
    if factor.size:
        info = _status(a)
        at = _addresses(factor) if _is_batch(factor) else None
        _core._linalg_cholesky(factor, info, at)
        # Above the diagonal is the operand, or what the batched routine has left there: it works in that part.
        numbers = _numbers(a, a.shape[-1])
        _keep_below(factor, numbers, numbers[:, None], out=factor)
        _require_success(info, *NOT_POSITIVE)
    return factor.mT


def qr(a: Any, mode: str, dtype: Any) -> tuple[Any, Any]:
    """Return Q, or None for mode "r", and R."""
    load()
    m, n = a.shape[-2:]
    k, stack = min(m, n), a.shape[:-2]
    if a.size and a.ndim > 2 and m <= min(MOST_QR, math.prod(stack)):
        return _qr_of_stack(a, mode, dtype)
    width = m if mode == "complete" and m > n else n
    work = empty(a, (*stack, width, m), dtype)
    into(work[..., :n, :], a.mT)
    tau = empty(a, (*stack, k), dtype)
    if work.size and k:
        _core._linalg_qr(work, n, tau)
    rows = m if mode == "complete" else k
    r = _upper(work, rows, n)
    if mode == "r":
        return None, r
    if k == 0:  # Q is the identity, or has no columns
        return identity(a, (*stack, m, m), dtype) if rows else work[..., :0, :].mT, r
    wanted = m if mode == "complete" else k
    q = (
        work
        if wanted == width
        else into(empty(a, (*stack, wanted, m), dtype), work[..., :wanted, :])
    )
    if q.size:
        _core._linalg_make_q(q, k, tau)
    return q.mT, r


def _qr_of_stack(a: Any, mode: str, dtype: Any) -> tuple[Any, Any]:
    """Return Q and R of many small matrices."""
    m, n = a.shape[-2:]
    work, tau = in_columns(a, dtype), empty(a, (*a.shape[:-2], min(m, n)), dtype)
    _core._linalg_batched_qr(work, _addresses(work), tau, _addresses(tau[..., None]))
    rows = m if mode == "complete" else min(m, n)
    r = _upper(work, rows, n)
    if mode == "r":
        return None, r
    q = empty(a, (*a.shape[:-2], m, rows), dtype)
    small.reflectors(work, tau, q)
    return q, r


def _upper(work: Any, height: int, width: int) -> Any:
    """Return the part above the diagonal of factors column by column, as matrices."""
    part = work[..., :width, :height].mT
    made = empty(work, (*part.shape[:-2], height, width), work.dtype)
    _keep_below(part, _numbers(work, width), _numbers(work, height)[:, None], out=made)
    return made


# ---- eigenvalues ----------------------------------------------------------------------------------


def eigh(a: Any, lower: bool, vectors: bool, dtype: Any) -> tuple[Any, Any]:
    """Return ascending eigenvalues, and eigenvectors as columns, of Hermitian matrices from one triangle."""
    load()
    work = in_columns(a, dtype)
    values = empty(a, a.shape[:-1], real_dtype(dtype))
    if work.size:
        info = _status(a)
        batched = _is_batch(work)
        _core._linalg_eigh(work, values, info, vectors, lower, batched)
        _require_convergence(info, values)
    return values, work.mT


def eig(a: Any, vectors: bool, dtype: Any) -> tuple[Any, Any]:
    """Return complex eigenvalues and eigenvectors of general matrices."""
    load()
    work = in_columns(a, dtype)
    values = empty(a, a.shape[:-1], np.result_type(dtype, np.complex64))
    right = empty(work, work.shape, dtype) if vectors else None
    if work.size:
        info = _status(a)
        _core._linalg_eig(work, values, right, info)
        _require_convergence(info, values)
    if right is None or dtype.kind == "c":
        return values, None if right is None else right.mT
    return values, _joined_pairs(values, right).mT


def _joined_pairs(values: Any, parts: Any) -> Any:
    """Return complex eigenvectors of real matrices: a pair's two vectors are its real and its imaginary part."""
    where = FUNCTIONS["where"]
    sign = parts_of(values)[1][..., None]
    before, after = parts[..., :1, :], parts[..., -1:, :]
    earlier = concatenate([before, parts[..., :-1, :]], -2)
    later = concatenate([parts[..., 1:, :], after], -2)
    real = where(sign < 0, earlier, parts)
    imaginary = where(sign > 0, later, where(sign < 0, -parts, 0))
    made = empty(values, parts.shape, values.dtype)
    for part, source in zip(parts_of(made), (real, imaginary), strict=True):
        part[...] = source
    return made


def parts_of(x: Any) -> tuple[Any, Any]:
    """Return views of the real and the imaginary parts."""
    return _core._complex_part(x, False), _core._complex_part(x, True)


# The status of each matrix: not 0 where values are NaN either, for which some routines report success.
_with_nan = fuse(
    lambda info, values: FUNCTIONS["where"](FUNCTIONS["isnan"](values.max(-1)), 1, info)
)


def _require_convergence(info: Any, values: Any) -> None:
    _require_success(_with_nan(info, values), *NOT_CONVERGED)


def real_dtype(dtype: Any) -> Any:
    """Return the dtype of the parts of complex numbers, or that of real ones."""
    return np.empty(0, dtype).real.dtype


# ---- singular values ------------------------------------------------------------------------------


def svd(a: Any, vectors: bool, full: bool, dtype: Any) -> tuple[Any, Any, Any]:
    """Return U, descending singular values, and the adjoint of V; without `vectors` U and V are None."""
    load()
    m, n = a.shape[-2:]
    full = full and vectors
    if m < n:  # cuSOLVER takes tall matrices
        u, s, vh = svd(a.mT, vectors, full, dtype)
        return (vh.mT, s, u.mT) if vectors else (None, s, None)
    stack = a.shape[:-2]
    values = empty(a, (*stack, n), real_dtype(dtype))
    u = empty(a, (*stack, m if full else n, m), dtype)
    v = empty(a, (*stack, n, n), dtype)
    if n == 0:
        return (
            (identity(a, (*stack, m, m), dtype) if full else u.mT, values, v)
            if vectors
            else (None, values, None)
        )
    if not values.size:
        return (u.mT, values, v) if vectors else (None, values, None)
    method = "jacobi" if n <= MOST_JACOBI else "polar"
    if not _decompose(method, a, values, u, v, vectors, full):
        method = "qr"
        _decompose(method, a, values, u, v, vectors, full)
    if not vectors:
        return None, values, None
    return u.mT, values, v.mT if method == "qr" else FUNCTIONS["conjugate"](v)


def _decompose(method: str, a: Any, values: Any, u: Any, v: Any, vectors: bool, full: bool) -> bool:
    """Fill values, U and V. Return whether the method is exact for these matrices; "qr" raises instead."""
    work, info = in_columns(a, u.dtype), _status(a)
    try:
        shift = _core._linalg_svd(method, work, values, u, v, info, vectors, full)
    except CudaError:  # as the polar decomposition ends for NaN
        if FUNCTIONS["isfinite"](a).all().item():
            raise
        expected, _, fix = NOT_CONVERGED
        raise LinAlgError(
            where="linalg", expected=expected, got="NaN or infinity", fix=fix
        ) from None
    if method == "qr":
        _require_convergence(info, values)
        return True
    failed = bool(download(_with_nan(info, values), "linalg", uncounted=True).any())
    if failed or method == "jacobi":
        return not failed
    # The polar decomposition of a matrix without full rank is not unique. cuSOLVER then shifts the values near zero.
    found = download(values, "linalg", uncounted=True)
    largest, least = found[..., 0], found[..., -1]
    limit = max(a.shape[-2:]) * np.finfo(found.dtype).eps
    return bool((shift <= limit * min(1, largest.min())) and (least > largest * limit).all())

"""Linear algebra, with numpy.linalg's names: NumPy's functions on "cpu", cuSOLVER and cuBLAS on CUDA.

On CUDA the package's own products and reductions compute what needs no factorization. The others need cuSOLVER, and
wait for the device where they may raise `LinAlgError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS, call
from gpuinterop.elementwise.missing_names import missing_name
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import LinAlgError, ShapeError, short_repr
from gpuinterop.errors.messages import not_an_int, not_one_of
from gpuinterop.numpy_calls.submodules import by_device, require_dtypes
from gpuinterop.product.functions import matmul as _matmul
from gpuinterop.reduce.functions import norm as _norm_of_vectors
from gpuinterop.reduce.functions import norm_plan_of

from . import cusolver

__all__ = """
    LinAlgError cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power
    matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv tensorsolve
    trace vecdot vector_norm
""".split()


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    raise missing_name(f"gpuinterop.linalg.{name}", name, __all__)


# NumPy's tuples with names.
_TUPLES: list[Any] = [
    type(function(np.eye(1)))
    for function in (np.linalg.eig, np.linalg.eigh, np.linalg.qr, np.linalg.slogdet, np.linalg.svd)
]
EigResult, EighResult, QRResult, SlogdetResult, SVDResult = _TUPLES

_by_device = partial(by_device, np.linalg)
# Of functions that the package computes on both devices.
_own = partial(by_device, np.linalg, own=True)


# ---- checks ---------------------------------------------------------------------------------------


def _float_dtype(*operands: Any) -> Any:
    """Return the dtype of a computation: that of the operands, or float64 for integers."""
    dtype = common_dtype([x.dtype for x in operands], "linalg")
    return dtype if dtype.kind in "fc" else np.dtype("float64")


def _require_matrices(a: Any, square: bool = True) -> None:
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise LinAlgError(
            where="linalg", expected=f"{kind}: two axes or more" + ", the last two of one length" * square,
            got=f"shape {a.shape}", fix="reshape or slice the array",
        )  # fmt: skip


def _square(a: Any, *_args: Any, **_options: Any) -> None:
    _require_matrices(a)


def _two_axes(a: Any, *_args: Any, **_options: Any) -> None:
    _require_matrices(a, square=False)


def _equations(a: Any, b: Any) -> None:
    _require_matrices(a)
    if b.ndim == 0 or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(
            where="linalg", expected=f"b with {a.shape[-1]} rows", got=f"shape {b.shape}",
            fix="reshape b, or transpose it",
        )  # fmt: skip


def _more_equations(a: Any, b: Any, rcond: Any = None) -> None:
    _require_matrices(a, square=False)
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise LinAlgError(
            where="linalg", expected="a matrix, and a vector or a matrix with as many rows",
            got=f"shapes {a.shape} and {b.shape}", fix="reshape or slice the arrays",
        )  # fmt: skip


def _qr_mode(a: Any, mode: Any = "reduced") -> None:
    _require_matrices(a, square=False)
    if mode not in ("reduced", "complete", "r"):
        raise not_one_of("linalg", "mode", ("reduced", "complete", "r"), mode, error=ShapeError)


def _power(a: Any, n: Any) -> None:
    _require_matrices(a)
    if not isinstance(n, (int, np.integer)):
        raise not_an_int("linalg", "n", n)


def _triangle(a: Any, UPLO: Any = "L") -> None:
    _require_matrices(a)
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise not_one_of("linalg", "UPLO", ("L", "U"), UPLO, error=ShapeError)


# ---- basic functions ------------------------------------------------------------------------------


@_by_device(2, check=_equations)
def solve(a: Any, b: Any) -> Any:
    """Return the solution x of ``a @ x = b``, for matrices or stacks of matrices that broadcast.

    A `b` of one axis is a vector. On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0]).tolist()
    [1.0, 2.0]
    """
    dtype = _float_dtype(a, b)
    vector = b.ndim == 1
    right = b[:, None] if vector else b
    stack = tuple(_core.broadcast_shapes([a.shape[:-2], right.shape[:-2]], "linalg"))
    a = a.broadcast_to((*stack, *a.shape[-2:]))
    right = right.broadcast_to((*stack, *right.shape[-2:]))
    x = cusolver.solve(a, right, dtype)
    return x[..., 0] if vector else x


@_by_device(check=_square)
def inv(a: Any) -> Any:
    """Return the inverse of each matrix. On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return cusolver.inv(a, _float_dtype(a))


@_by_device(check=_square)
def det(a: Any) -> Any:
    """Return the determinant of each matrix. It does not wait for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.det([[2.0, 0.0], [0.0, 4.0]]).item()
    8.0
    """
    dtype = _float_dtype(a)
    if not a.size:
        return cusolver.filled(a, a.shape[:-2], dtype, 1)
    return cusolver.det(a, dtype)


@_by_device(check=_square)
def slogdet(a: Any) -> Any:
    """Return the sign of each determinant and the logarithm of its absolute value. It does not wait for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.slogdet([[1.0, 0.0], [0.0, -1.0]]).sign.item()
    -1.0
    """
    dtype = _float_dtype(a)
    if not a.size:
        stack = a.shape[:-2]
        ones = cusolver.filled(a, stack, dtype, 1)
        return SlogdetResult(ones, cusolver.filled(a, stack, cusolver.real_dtype(dtype)))
    return SlogdetResult(*cusolver.slogdet(a, dtype))


@_by_device(check=_square)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Return the lower factor L of each Hermitian matrix ``L @ L.conj().mT``, or the upper one.

    It reads one triangle of the matrix: the lower, or with `upper` the upper. On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.cholesky([[4.0, 0.0], [0.0, 9.0]]).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    dtype = _float_dtype(a)
    found = cusolver.cholesky(a.mT if upper else a, dtype)
    return found.mT if upper else found


@_by_device(check=_qr_mode)
def qr(a: Any, mode: str = "reduced") -> Any:
    """Return Q, whose columns are orthonormal, and the upper triangular R of ``a = Q @ R``.

    `mode` is "reduced", "complete", or "r" for R alone; "raw" runs on "cpu" only. It does not wait for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> q, r = gpuinterop.linalg.qr([[1.0, 2.0], [3.0, 4.0]])
    >>> gpuinterop.allclose(q @ r, [[1.0, 2.0], [3.0, 4.0]])
    True
    """
    q, r = cusolver.qr(a, mode, _float_dtype(a))
    return r if mode == "r" else QRResult(q, r)


@_by_device(check=_triangle)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Return the eigenvalues of Hermitian matrices, ascending, and the eigenvectors as columns.

    It reads one triangle: the lower, or the upper for UPLO="U". On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.eigh([[2.0, 0.0], [0.0, 1.0]]).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EighResult(*cusolver.eigh(a, UPLO.upper() == "L", True, _float_dtype(a)))


@_by_device(check=_triangle)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Return the eigenvalues of Hermitian matrices, ascending; see eigh.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]).tolist()
    [1.0, 2.0]
    """
    return cusolver.eigh(a, UPLO.upper() == "L", False, _float_dtype(a))[0]


def _real_if_close(values: Any) -> bool:
    """Return whether complex eigenvalues have no imaginary parts: NumPy then returns real ones."""
    return not bool(FUNCTIONS["not_equal"](cusolver.parts_of(values)[1], 0).any())


@_by_device(check=_square)
def eig(a: Any) -> Any:
    """Return the eigenvalues of general matrices, and the eigenvectors as columns.

    As in NumPy they are real if the matrices are real and all eigenvalues are. On CUDA it needs cuSOLVER of CUDA
    12.8 or later, and waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.eig([[2.0, 0.0], [0.0, 2.0]]).eigenvalues.tolist()
    [2.0, 2.0]
    """
    dtype = _float_dtype(a)
    values, vectors = cusolver.eig(a, True, dtype)
    if dtype.kind == "f" and _real_if_close(values):
        values, vectors = (cusolver.parts_of(x)[0].copy() for x in (values, vectors))
    return EigResult(values, vectors)


@_by_device(check=_square)
def eigvals(a: Any) -> Any:
    """Return the eigenvalues of general matrices; see eig.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.eigvals([[2.0, 0.0], [0.0, 2.0]]).tolist()
    [2.0, 2.0]
    """
    dtype = _float_dtype(a)
    values, _ = cusolver.eig(a, False, dtype)
    real = dtype.kind == "f" and _real_if_close(values)
    return cusolver.parts_of(values)[0].copy() if real else values


@_by_device(check=_two_axes)
def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Return U, the singular values in descending order, and the adjoint of V: ``a = (U * S) @ Vh``.

    With ``full_matrices=False`` U and Vh have as many columns and rows as there are singular values. On CUDA it waits
    for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.svd([[0.0, 2.0], [1.0, 0.0]]).S.tolist()
    [2.0, 1.0]
    """
    _require_matrices(a, square=bool(hermitian))
    dtype = _float_dtype(a)
    u, s, vh = cusolver.svd(a, bool(compute_uv), bool(full_matrices), dtype)
    return SVDResult(u, s, vh) if compute_uv else s


@_by_device(check=_two_axes)
def svdvals(x: Any, /) -> Any:
    """Return the singular values, in descending order; see svd.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.svdvals([[0.0, 2.0], [1.0, 0.0]]).tolist()
    [2.0, 1.0]
    """
    return cusolver.svd(x, False, False, _float_dtype(x))[1]


# ---- functions of the others ----------------------------------------------------------------------


def _cutoff(s: Any, rtol: Any, longest: int) -> Any:
    """Return the least singular value that counts, by default the largest times eps times its length."""
    rtol = longest * np.finfo(s.dtype).eps if rtol is None else rtol
    if isinstance(rtol, _core.Array) and rtol.ndim:
        rtol = rtol[..., None]
    return s[..., :1] * rtol


def _values_and_vectors(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    dtype = _float_dtype(a)
    if not hermitian:
        return cusolver.svd(a, True, False, dtype)
    values, vectors = cusolver.eigh(a, True, True, dtype)
    return vectors, values, _adjoint(vectors)


def _adjoint(x: Any) -> Any:
    return FUNCTIONS["conjugate"](x.mT) if x.dtype.kind == "c" else x.mT


def _inverse_of(s: Any, rtol: Any, longest: int) -> Any:
    """Return 1 / s, and 0 for what does not count."""
    length = abs(s)
    largest = length.max(-1, keepdims=True)
    keep = FUNCTIONS["greater"](length, _cutoff(largest, rtol, longest))
    return FUNCTIONS["where"](keep, 1 / FUNCTIONS["where"](keep, s, 1), 0).astype(
        s.dtype, copy=False
    )


@_by_device(check=_two_axes)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:
    """Return the pseudo-inverse of each matrix, from its singular values.

    Values up to `rtol`, or `rcond`, times the largest count as 0. On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.pinv([[2.0, 0.0], [0.0, 0.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    _require_matrices(a, square=bool(hermitian))
    if not a.size:
        return cusolver.filled(a, (*a.shape[:-2], a.shape[-1], a.shape[-2]), _float_dtype(a))
    if rtol is np._NoValue:  # NumPy's default; rtol=None requests that of the standard
        rtol = 1e-15 if rcond is None else rcond
    u, s, vh = _values_and_vectors(a, hermitian)
    inverse = _inverse_of(s, rtol, max(a.shape[-2:]))
    return _matmul(_adjoint(vh) * inverse[..., None, :], _adjoint(u))


@_by_device()
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Return the number of singular values that are greater than `tol`, or than `rtol` times the largest.

    On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.matrix_rank([[2.0, 0.0], [0.0, 0.0]]).item()
    1
    """
    if A.ndim < 2:
        return FUNCTIONS["not_equal"](A, 0).any().astype("int64")
    if not A.size:
        return cusolver.filled(A, A.shape[:-2], "int64")
    s = _singular_values(A, hermitian)
    if tol is None:
        least = _cutoff(s.max(-1, keepdims=True), rtol, max(A.shape[-2:]))
    else:
        least = tol[..., None] if isinstance(tol, _core.Array) and tol.ndim else tol
    return FUNCTIONS["greater"](s, least).sum(-1)


def _singular_values(a: Any, hermitian: bool) -> Any:
    dtype = _float_dtype(a)
    _require_matrices(a, square=bool(hermitian))
    if hermitian:
        return abs(cusolver.eigh(a, True, False, dtype)[0])
    return cusolver.svd(a, False, False, dtype)[1]


@_by_device(2, check=_more_equations)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Return the least-squares solution of ``a @ x = b``, the squared residuals, the rank and the singular values.

    On CUDA it is computed from the singular values, and waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> x, residuals, rank, s = gpuinterop.linalg.lstsq([[1.0], [1.0]], [1.0, 3.0])
    >>> round(x.item(), 6)
    2.0
    """
    dtype = _float_dtype(a, b)
    m, n = a.shape
    right = (b[:, None] if b.ndim == 1 else b).astype(dtype, copy=False)
    if not a.size:
        x, rank, s = (
            cusolver.filled(a, (n, right.shape[1]), dtype),
            0,
            cusolver.filled(a, (0,), cusolver.real_dtype(dtype)),
        )
    else:
        u, s, vh = cusolver.svd(a, True, False, dtype)
        eps = np.finfo(s.dtype).eps
        # Outside of 0 to 1 LAPACK takes the precision of the dtype.
        rtol = max(m, n) * eps if rcond is None else rcond if 0 < rcond < 1 else eps
        inverse = _inverse_of(s, rtol, max(m, n))
        x = _matmul(_adjoint(vh), inverse[:, None] * _matmul(_adjoint(u), right))
        rank = int(FUNCTIONS["not_equal"](inverse, 0).sum().item())
    residuals = cusolver.filled(a, (0,), s.dtype)
    if rank == n and m > n:
        apart = abs(_matmul(a.astype(dtype, copy=False), x) - right)
        residuals = (apart * apart).sum(0)
    return (
        x[:, 0] if b.ndim == 1 else x,
        residuals,
        cusolver.filled(a, (), np.dtype("int32"), rank),
        s,
    )


@_by_device(check=_two_axes)
def cond(x: Any, p: Any = None) -> Any:
    """Return the condition number: the norm of each matrix times that of its inverse. On CUDA it waits for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.cond([[2.0, 0.0], [0.0, 1.0]]).item()
    2.0
    """
    _require_matrices(x, square=p not in (None, 2, -2))
    if not math.prod(x.shape[-2:]):
        raise LinAlgError(where="linalg", expected="matrices with elements", got=f"shape {x.shape}",
                          fix="test x.size > 0")  # fmt: skip
    choose, is_nan = FUNCTIONS["where"], FUNCTIONS["isnan"]
    if p in (None, 2, -2):
        s = _singular_values(x, False)
        found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        inverse, status = cusolver.inv_and_status(x, _float_dtype(x))
        norms = (_matrix_norm(m, p, (-2, -1), False) for m in (x, inverse))
        found = choose(status == 0, math.prod(norms), np.nan)
    # What has no value is that of a singular matrix, unless the matrix has NaN itself.
    return choose(is_nan(found) & ~is_nan(x).any((-2, -1)), np.inf, found)


# ---- norms ----------------------------------------------------------------------------------------


def _vector_norm(x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind in "biu":
        x = x.astype("float64")
    if not x.size and ord == np.inf:
        return abs(x).max(axis, keepdims=keepdims, initial=0)
    if ord is None or ord in (2, 1, np.inf, -np.inf):
        return _norm_of_vectors(x, ord, axis, keepdims)
    if isinstance(ord, str):
        raise not_one_of("linalg", "ord", ("a number",), ord, error=ShapeError)
    if ord == 0:
        real = abs(x[(slice(0),) * x.ndim]).dtype
        return FUNCTIONS["not_equal"](x, 0).sum(axis, keepdims=keepdims).astype(real)
    return (abs(x) ** ord).sum(axis, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if x.dtype.kind in "biu":
        x = x.astype("float64")
    if ord is None or (isinstance(ord, str) and ord in ("fro", "f")):
        return _norm_of_vectors(x, None, axes, keepdims)
    row, column = (_core.read_axis(axis, x.ndim, "linalg") for axis in axes)
    if ord in (1, -1, np.inf, -np.inf):
        summed, other = (row, column) if abs(ord) == 1 else (column, row)
        sums = abs(x).sum(summed, keepdims=True)
        found = (
            sums.max(other, keepdims=True, initial=0) if ord > 0 else sums.min(other, keepdims=True)
        )
    elif ord in (2, -2, "nuc"):
        require_dtypes("linalg", x)
        moved = x.transpose((*(i for i in range(x.ndim) if i not in (row, column)), row, column))
        s = svdvals(moved)
        found = s.sum(-1) if ord == "nuc" else s.max(-1, initial=0) if ord == 2 else s.min(-1)
        found = found.reshape(tuple(1 if i in (row, column) else n for i, n in enumerate(x.shape)))
    else:
        raise not_one_of(
            "linalg", "ord", ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf), ord, error=ShapeError
        )
    return found if keepdims else found.squeeze((row, column))


def _norm_plan_of(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    is_vector = ord is None or axis is not None or x.ndim == 1
    return norm_plan_of(x, ord, axis, keepdims) if is_vector else None


@_core.planned(_norm_plan_of, "x ord axis keepdims", on_host=True)
@_own()
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return numpy.linalg.norm: of a vector, or of a matrix, or of those along `axis`.

    On CUDA the orders 2, -2 and "nuc" of matrices need singular values, and wait for the device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.norm([3.0, 4.0]).item()
    5.0
    """
    if axis is None:
        if ord is None:
            return _vector_norm(x, None, None, keepdims)
        axis = tuple(range(x.ndim))
    axes = tuple(_core.read_axes(axis, x.ndim, "linalg"))
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) != 2:
        raise ShapeError(where="linalg", expected="one axis or two", got=f"axis={short_repr(axis)}",
                         fix="pass axis=(-2, -1) for matrices")  # fmt: skip
    # In the order of the caller, by which orders 1 and inf differ.
    row, column = (_core.read_axis(i, x.ndim, "linalg") for i in _core.read_ints(axis))
    return _matrix_norm(x, ord, (row, column), keepdims)


@_core.planned(norm_plan_of, "x / * axis keepdims ord", on_host=True)
@_own()
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return the norm of vectors of any order along `axis`, by default of all elements.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.vector_norm([3.0, 4.0]).item()
    5.0
    """
    return _vector_norm(x, ord, axis, keepdims)


def _matrix_norm_plan_of(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    return norm_plan_of(x, None, (-2, -1), keepdims) if ord == "fro" else None


@_core.planned(_matrix_norm_plan_of, "x / * keepdims ord", on_host=True)
@_own()
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf; see norm.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.matrix_norm([[3.0, 0.0], [0.0, 4.0]]).item()
    5.0
    """
    _require_matrices(x, square=False)
    return _matrix_norm(x, ord, (-2, -1), keepdims)


# ---- products -------------------------------------------------------------------------------------


@_own(2)
def matmul(x1: Any, x2: Any, /) -> Any:
    """Return ``x1 @ x2``; see gpuinterop.matmul.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    return _matmul(x1, x2)


@_own(2)
def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of each element of one vector with each of the other.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.outer([1.0, 2.0], [3.0, 4.0]).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(where="linalg", expected="two vectors", got=f"shapes {x1.shape} and {x2.shape}",
                         fix="ravel them")  # fmt: skip
    return FUNCTIONS["multiply"](x1[:, None], x2)


@_own(2)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the inner products of vectors along `axis`, those of `x1` conjugated.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.vecdot([[1.0, 2.0]], [3.0, 4.0]).tolist()
    [11.0]
    """
    return call("vecdot", x1, x2, axis=axis)


@_own(2)
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the vectors that are perpendicular to two vectors of three elements along `axis`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).tolist()
    [0.0, 0.0, 1.0]
    """
    if any(x.shape[_core.read_axis(axis, x.ndim, "linalg")] != 3 for x in (x1, x2)):
        raise ShapeError(where="linalg", expected="vectors of three elements",
                         got=f"shapes {x1.shape} and {x2.shape}", fix="pass axis= of the vectors")  # fmt: skip
    return call("cross", x1, x2, axis=axis)


@_own(2)
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Return the sums of products over `axes`: a number of them, or two lists.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.tensordot([[1.0, 2.0]], [[3.0, 4.0]], axes=2).item()
    11.0
    """
    return call("tensordot", x1, x2, axes)


def _power_of(a: Any, n: int) -> Any:
    """Return the function of the second or third power of square matrices, in the order in which NumPy multiplies."""
    if type(n) is not int or n not in (2, 3) or a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        return None
    if a.dtype == np.bool_:
        return None
    require_dtypes("linalg", a)
    if n == 2:
        return lambda a: _matmul(a, a)
    return lambda a: _matmul(_matmul(a, a), a)


@_core.prepared(_power_of, "a n", "a", on_gpu=True)
@_by_device(check=_power)
def matrix_power(a: Any, n: int) -> Any:
    """Return the product of n times the matrix; for a negative n, of its inverse.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.matrix_power([[2.0, 0.0], [0.0, 1.0]], 3).tolist()
    [[8.0, 0.0], [0.0, 1.0]]
    """
    if n < 0:
        a, n = cusolver.inv(a, _float_dtype(a)), -n
    if n == 0:
        return cusolver.identity(a, a.shape, a.dtype)
    power = None
    while True:
        if n & 1:
            power = a if power is None else _matmul(power, a)
        n >>= 1
        if not n:
            return power.copy() if power is a else power
        a = _matmul(a, a)


def _multi_dot_of(*arrays: Any, out: Any = None) -> Any:
    """Return the function of matrices of these shapes."""
    if len(arrays) < 2 or any(x.ndim != 2 for x in arrays):
        return None
    cut = _cheapest((*[x.shape[0] for x in arrays], arrays[-1].shape[1]))
    if len(arrays) != 3:
        return lambda *arrays: _in_order(arrays, cut, 0, len(arrays) - 1)
    if cut[0, 2]:
        return lambda a, b, c: _matmul(_matmul(a, b), c)
    return lambda a, b, c: _matmul(a, _matmul(b, c))


@_core.prepared(_multi_dot_of, "arrays * out", "", on_gpu=True)
@_own(0)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """Return the product of several matrices, in the order that costs the least; the ends may be vectors.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.multi_dot([[1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0]]).item()
    11.0
    """
    ends = (arrays[0].ndim, arrays[-1].ndim)
    if len(arrays) < 2 or any(x.ndim != 2 for x in arrays[1:-1]) or not set(ends) <= {1, 2}:
        raise ShapeError(where="linalg", expected="two matrices or more, of which the ends may be vectors",
                         got=", ".join(str(x.shape) for x in arrays), fix="reshape the arrays")  # fmt: skip
    first = arrays[0][None] if ends[0] == 1 else arrays[0]
    last = arrays[-1][:, None] if ends[1] == 1 else arrays[-1]
    matrices = [first, *arrays[1:-1], last]
    lengths = (*[x.shape[0] for x in matrices], last.shape[1])
    found = _in_order(matrices, _cheapest(lengths), 0, len(matrices) - 1)
    found = found[0] if ends[0] == 1 else found
    found = found[..., 0] if ends[1] == 1 else found
    if out is None:
        return found
    results.check_out(out, found.shape, found.dtype, found, "linalg")
    return cusolver.into(results.plain(out), found)


@lru_cache(maxsize=256)
def _cheapest(lengths: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Return for each run of matrices where to cut it, by the number of multiplications."""
    count = len(lengths) - 1
    cost = {(i, i): 0 for i in range(count)}
    cut = {}
    for size in range(1, count):
        for i in range(count - size):
            j = i + size
            cost[i, j], cut[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1], k)
                for k in range(i, j)
            )
    return cut


def _in_order(matrices: Sequence[Any], cut: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return matrices[i]
    k = cut[i, j]
    return _matmul(_in_order(matrices, cut, i, k), _in_order(matrices, cut, k + 1, j))


@_by_device()
def tensorinv(a: Any, ind: int = 2) -> Any:
    """Return the inverse of an array as a map from its last axes to its first `ind` ones.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.tensorinv([[2.0, 0.0], [0.0, 4.0]], ind=1).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    if ind <= 0:
        raise ShapeError(
            where="linalg", expected="ind of 1 or more", got=f"ind={ind}", fix="pass ind=2"
        )
    rows = math.prod(a.shape[:ind])
    flat = a.reshape((rows, math.prod(a.shape[ind:])))
    _require_matrices(flat)
    found = cusolver.inv(flat, _float_dtype(a))
    return found.reshape((*a.shape[ind:], *a.shape[:ind]))


@_by_device(2)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Return x of ``tensordot(a, x, x.ndim) = b``.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.tensorsolve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0]).tolist()
    [1.0, 2.0]
    """
    if axes is not None:
        moved = [_core.read_axis(i, a.ndim, "linalg") for i in axes]
        a = a.transpose((*(i for i in range(a.ndim) if i not in moved), *moved))
    shape = a.shape[b.ndim :]
    if math.prod(shape) != b.size:
        raise LinAlgError(where="linalg", expected="as many unknowns as equations",
                          got=f"shapes {a.shape} and {b.shape}", fix="reshape the arrays")  # fmt: skip
    flat = a.reshape((b.size, b.size))
    return cusolver.solve(flat, b.reshape((b.size, 1)), _float_dtype(a, b)).reshape(shape)


# ---- views ----------------------------------------------------------------------------------------


@_own()
def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return a view of the diagonal of each matrix.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.diagonal([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [1.0, 4.0]
    """
    _require_matrices(x, square=False)
    return x.diagonal(offset, -2, -1)


@_own()
def matrix_transpose(x: Any, /) -> Any:
    """Return a view with the last two axes exchanged.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.matrix_transpose([[1.0, 2.0]]).tolist()
    [[1.0], [2.0]]
    """
    _require_matrices(x, square=False)
    return x.mT


@_own()
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sum of the diagonal of each matrix.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linalg.trace([[1.0, 2.0], [3.0, 4.0]]).item()
    5.0
    """
    _require_matrices(x, square=False)
    return x.diagonal(offset, -2, -1).sum(-1, dtype)

"""Products of matrices and vectors: cuBLAS for matrices, gpuinterop's reductions for vectors.

Row-major, column-major and transposed operands are used in place; only an operand without a unit
stride is copied. float32 is computed in float32 unless another precision is chosen; tensor_product.py has the rule
by which "tf32x3" then uses tensor cores. On "cpu" NumPy's loops compute.

The functions are the core's. It calls the hooks below on the first call of a signature; a cached
call on CUDA runs no Python code.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuinterop import _core
from gpuinterop.arrays.dtypes import (
    ACCUMULATORS,
    WITHOUT_KERNELS,
    dtype_from_id,
    dtype_id,
    refuse_half_complex,
)
from gpuinterop.devices import find_libraries
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import CALLS, FUNCTIONS, PREPARE
from gpuinterop.elementwise.examples import example_of
from gpuinterop.elementwise.operands import result_class
from gpuinterop.elementwise.promotion import common_dtype, require_exact_in
from gpuinterop.errors import GpuInteropError
from gpuinterop.errors.arguments import require_bool
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import undefined_for_dtypes

from .plans import conjugate_product, plan, rank_one
from .tensor_product import tensor_product


def product_precision(precision: str) -> Any:
    """Choose how gpuinterop multiplies float32 matrices in this block and thread.

    * "exact", the default: cuBLAS multiplies them as float32.
    * "tf32x3": the tensor cores of a Hopper GPU compute three products of TF32, up to 2.8 times as fast. Other GPUs,
      and shapes that would not be faster, multiply as "exact"; on Blackwell cuBLAS may emulate float32.
      :doc:`/reference/product-precision` has the errors.
    * "tf32": the operands are rounded to TF32, which has 10 bits of mantissa instead of 23.

    A captured graph keeps the precision that was set while it was recorded.

    Examples
    --------
    >>> import gpuinterop
    >>> with gpuinterop.product_precision("tf32x3"):
    ...     pass  # products here may use tensor cores
    """
    enter = partial(_core._enter_precision, precision, "product_precision")
    return _core.Block((enter, _core._leave_precision), result=None)


def set_product_precision(precision: str) -> str:
    """Choose how the process multiplies float32 matrices outside of `product_precision` blocks; return the last choice.

    `precision` is "exact", "tf32x3" or "tf32", as in `product_precision`.

    Examples
    --------
    >>> import gpuinterop
    >>> before = gpuinterop.set_product_precision("tf32x3")
    >>> gpuinterop.set_product_precision(before)
    'tf32x3'
    """
    return _core._exchange_precision(precision, "set_product_precision")


def allow_tf32(allowed: bool = True) -> Any:
    """Let products of float32 matrices round their operands to TF32 in this block and thread.

    The same as ``product_precision("tf32")``, or "exact" for False.

    Examples
    --------
    >>> import gpuinterop
    >>> with gpuinterop.allow_tf32():
    ...     pass  # products here may use TF32
    """
    allowed = require_bool(allowed, "allowed", "allow_tf32")
    return product_precision("tf32" if allowed else "exact")


# ---- callbacks of the core --------------------------------------------------------------------------


def _load_cublas() -> None:
    _core.blas_open(find_libraries.find("cublas").path, find_libraries.find("cublasLt").path)


def _product_type(
    where: str, classes: tuple[Any, ...], type_ids: tuple[int, ...]
) -> tuple[int, Any]:
    """Return the dtype and the class of a product, by the operators' rule."""
    leading = result_class(classes)
    only = getattr(leading, "_only", None)
    if only is not None:
        require_exact_in(where, only, type_ids)
    types = [dtype_from_id(type_id) for type_id in type_ids]
    for dtype in types:
        refuse_half_complex(dtype, where)
    common = common_dtype(types, where)
    # The kernels that sum accept no floats below 16 bits, so refuse them on both devices.
    if common.name not in ACCUMULATORS or any(dtype.name in WITHOUT_KERNELS for dtype in types):
        names = ", ".join(dtype.name for dtype in types)
        wide = "int32" if all("int" in dtype.name for dtype in types) else "float32"
        raise undefined_for_dtypes(where, where, names, f"cast first: x.astype('{wide}')")
    cls = results.class_for(leading, common)
    return dtype_id(common), _core.gpuarray_class() if cls is _core.Array else cls


def _other_product(name: str, a: Any, b: Any, out: Any) -> Any:
    """Compute a product of operands with other numbers of axes by products that the core has."""
    if name == "scale":
        multiply = FUNCTIONS["multiply"]
        if out is not None:  # the product of operands without elements has the same dtype
            none = [x[..., None][..., :0] if isinstance(x, _core.Array) else x for x in (a, b)]
            like = multiply(*none)
            results.check_out(out, like.shape[:-1], like.dtype, like, "dot")
        return multiply(a, b, out=out)
    if name == "inner":
        return dot(a, _core.view(type(b), results.plain(b).swapaxes(-1, -2)))
    if name == "dot":
        return _dot_of_stacks(a, b, out)
    x, y = _flat(a), _flat(b)
    if x.dtype.kind == "c" and x.size == y.size:
        return conjugate_product(results.plain(x).dtype, results.plain(y).dtype)(x, y)
    try:
        return dot(x, y)
    except GpuInteropError as error:
        raise error.changed(where=name) from None


def _flat(x: Any) -> Any:
    return _core.view(type(x), results.plain(x).ravel())


def _dot_of_stacks(a: Any, b: Any, out: Any) -> Any:
    """Multiply every row of `a` with every column of each matrix of `b`, in dot's order of axes."""
    left, right = results.plain(a), results.plain(b)
    lead, stack = left.ndim - 2, right.ndim - 2
    dtype, cls = _product_type(
        "dot", (type(a), type(b)), (dtype_id(left.dtype), dtype_id(right.dtype))
    )
    shape = (*left.shape[:-1], *right.shape[:-2], right.shape[-1])
    if out is None:
        out = results.new_like(left, shape, dtype_from_id(dtype), "dot", cls)
    result = results.check_out(out, shape, dtype_from_id(dtype), a, "dot")
    spread = left.reshape((*left.shape[:-2], *[1] * stack, *left.shape[-2:]))
    # (leading of a, rows, leading of b, columns) as (leading of a, leading of b, rows, columns)
    axes = (*range(lead), *range(lead + 1, lead + 1 + stack), lead, lead + stack + 1)
    with reraise_from("dot"):
        matmul(spread, right, out=result.transpose(axes))
    return out


PREPARE.update(
    {
        "cublas": _load_cublas,
        "product types": _product_type,
        "product": plan,
        "rank one": rank_one,
        "tensor product": tensor_product,
    }
)
CALLS.update({name: partial(_other_product, name) for name in ("scale", "vdot", "inner", "dot")})
CALLS["require arrays"] = results.require_arrays

# ---- the functions ----------------------------------------------------------------------------------

matmul: Any = _core._product_function(
    "matmul",
    """matmul(a, b, /, out=None, *, precision=None, tf32=None)
--

Return ``a @ b`` by NumPy's rules: vectors, matrices, and stacks of matrices that broadcast.

Queued on the current stream. `out` may have any strides and may overlap the operands."""
    + example_of("matmul"),
)

dot: Any = _core._product_function(
    "dot",
    """dot(a, b, out=None)
--

Return numpy.dot's product: inner product, matrix product, or sum over the last axis of `a` and the
last but one of `b`; a number or a 0-d array multiplies the other operand."""
    + example_of("dot"),
)

inner: Any = _core._product_function(
    "inner",
    """inner(a, b)
--

Return the sum of products over the last axes."""
    + example_of("inner"),
)

vdot: Any = _core._product_function(
    "vdot",
    """vdot(a, b)
--

Return the inner product of the flattened operands, `a` conjugated."""
    + example_of("vdot"),
)

gemm: Any = _core._product_function(
    "gemm",
    """gemm(a, b, c=None, *, alpha=1.0, beta=1.0, out=None, precision=None, tf32=None)
--

Return ``alpha * a @ b + beta * c``; leading axes are batches and broadcast.

`c` broadcasts to the result and is only read: cuBLAS adds it as it writes the result, without a
further pass over memory. With ``out=c`` the result replaces it. `out` alone is overwritten, and a
beta without `c` raises. `out` may have any strides and may overlap the operands. As in BLAS, an
operand that is multiplied by an alpha or beta of 0 is not read. With float32 operands they are float32,
as the number in ``x * 1e39`` is, so 1e39 is infinite; with integers they must be 1.
Queued on the current stream.

Raises
------
ShapeError
    Inner dimensions differ, or `c` or `out` do not fit."""
    + example_of("gemm"),
)

addmm: Any = _core._product_function(
    "addmm",
    """addmm(c, a, b, *, alpha=1.0, beta=1.0, out=None, precision=None, tf32=None)
--

Return ``beta * c + alpha * a @ b``; see gemm."""
    + example_of("addmm"),
)

gemv: Any = _core._product_function(
    "gemv",
    """gemv(a, x, y=None, *, alpha=1.0, beta=1.0, out=None)
--

Return ``alpha * a @ x + beta * y``; any strides, the matrix is not copied.

The product is a reduction and as accurate as `sum`; an alpha, a beta and `y` each take a pass over
vectors. With ``out=y`` it works in place."""
    + example_of("gemv"),
)

ger: Any = _core._product_function(
    "ger",
    """ger(x, y, a=None, *, alpha=1.0, out=None)
--

Return ``alpha * outer(x, y) + a`` in one pass over the matrix; with ``out=a`` in place.

Each element is rounded after the product and after the sum; float16 and bfloat16 are computed in float32
and rounded once. As in BLAS, an alpha of 0 means that `x` and `y` are not read."""
    + example_of("ger"),
)

"""Products of operands however they lie, against NumPy in float64."""

import numpy as np
import pytest
from helpers.layouts import pair, recipes
from helpers.products import close, values
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop
from gpuinterop import CudaNdarray, GpuArray

EXTENTS = st.sampled_from([0, 1, 1, 2, 3, 5])


@st.composite
def laid_out(draw, shape: tuple[int, ...], device: str, writable: bool = False):
    """A device array of this shape in some layout, and its values in float64."""
    recipe = draw(recipes(shape, may_repeat=not writable))
    _, numbers, _, array = pair(recipe, np.float32, sum(shape), device, CudaNdarray)
    numbers = numbers.astype(float)
    if writable:
        return array, numbers
    return array.broadcast_to(shape), np.broadcast_to(numbers, shape)


@st.composite
def products(draw, device: str):
    m, n, k = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)
    kind = draw(st.sampled_from(["matrices", "vector", "row", "inner", "stack"]))
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2)) if kind == "stack" else []
    thin = [draw(st.sampled_from([b, b, 1])) for b in batch]
    if draw(st.booleans()):
        thin = thin[1:]
    left = (k,) if kind in ("row", "inner") else (*batch, m, k)
    right = (k,) if kind in ("vector", "inner") else (*thin, k, n)
    return draw(laid_out(left, device)), draw(laid_out(right, device))


def check_products(data, device: str) -> None:
    (a, p), (b, q) = data.draw(products(device))
    expected = np.matmul(p, q)
    close(a @ b, expected)
    shape = expected.shape
    out, _ = data.draw(laid_out(shape, device, writable=True))
    assert gpuinterop.matmul(a, b, out=out) is out
    close(out, expected)
    if a.ndim > 1 and b.ndim > 1:
        kept = data.draw(st.integers(0, len(shape)))
        c, r = data.draw(laid_out(shape[kept:], device))
        alpha, beta = (data.draw(st.sampled_from([0, 1, -0.5])) for _ in range(2))
        expected = alpha * expected + beta * r
        close(gpuinterop.gemm(a, b, c, alpha=alpha, beta=beta), expected)
        gpuinterop.gemm(a, b, c, alpha=alpha, beta=beta, out=out)
        close(out, expected)
    elif a.ndim == 2 and b.ndim == 1:
        y, r = data.draw(laid_out(shape, device))
        close(gpuinterop.gemv(a, b, y, alpha=2, beta=-0.5), 2 * expected - 0.5 * r)


@examples(100)
@given(st.data())
def test_any_layout(device: str, data) -> None:
    check_products(data, device)


@pytest.mark.parametrize(
    ("shape", "strides"),  # strides in elements
    [((3, 1, 2), (0, 5, 1)), ((3, 1, 1), (0, 7, 7)), ((3, 1, 2), (1, 9, 1)), ((3, 1, 4), (2, 0, 1)),
     ((3, 1, 2), (-2, 2, 1)), ((3, 2, 1), (0, 0, 9)), ((3, 2, 2), (0, 0, 1)), ((2, 3, 1, 2), (0, 0, 1, 1)),
     ((3, 1, 2), (5, 1, 1)), ((2, 3, 1, 2), (6, 2, 2, 1))],
)  # fmt: skip
def test_stacks_of_single_rows(device: str, shape, strides) -> None:
    """One tall matrix only where its rows lie as cuBLAS can read them."""
    host = values(40)
    x = CudaNdarray(host, device=device)
    first = 16
    steps = tuple(4 * s for s in strides)
    a = CudaNdarray.from_pointer(x.ptr + 4 * first, shape, strides, base=x, device=device)
    p = np.lib.stride_tricks.as_strided(host[first:], shape, steps).astype(float)
    q = values(shape[-1], 3)
    b = CudaNdarray(q, device=device)
    close(a @ b, p @ q)
    c = values(*shape[:-1], 3)
    close(gpuinterop.gemm(a, b, CudaNdarray(c, device=device), alpha=2, beta=-1), 2 * (p @ q) - c)


@pytest.mark.parametrize("product", ["matmul", "gemm", "gemv", "vector", "ger"])
def test_out_that_overlaps(device: str, product: str) -> None:
    """Every place of `out` in the memory of an operand gives what a copy would give."""
    n = 4
    store = values(3 * n * n)
    for shift in range(0, 2 * n * n, 3):
        x = CudaNdarray(store, device=device)
        a, b = x[n : n + n * n].reshape((n, n)), x[2 * n : 2 * n + n * n].reshape((n, n))
        p, q = (store[i : i + n * n].reshape(n, n).astype(float) for i in (n, 2 * n))
        out = x[shift : shift + n * n].reshape((n, n))
        if product == "matmul":
            gpuinterop.matmul(a, b, out=out)
            expected = p @ q
        elif product == "gemm":
            gpuinterop.gemm(a, b, b, out=out)
            expected = p @ q + q
        elif product == "ger":
            gpuinterop.ger(a[0], b[1], b, out=out)
            expected = np.outer(p[0], q[1]) + q
        elif product == "gemv":
            out = out[0]
            gpuinterop.gemv(a, b[0], b[1], beta=2, out=out)
            expected = p @ q[0] + 2 * q[1]
        else:
            out = out[0]
            gpuinterop.dot(a, b[0], out=out)
            expected = p @ q[0]
        close(out, expected)


@pytest.mark.parametrize("stride", [0, 1, -100, 1 << 38])
def test_strides_of_single_elements_do_not_count(device: str, stride: int) -> None:
    host = values(5)
    x = CudaNdarray(host, device=device)
    row, column, one = (
        CudaNdarray.from_pointer(x.ptr, shape, strides, base=x, device=device)
        for shape, strides in (
            ((1, 5), (stride, 1)),
            ((5, 1), (1, stride)),
            ((1, 1), (stride,) * 2),
        )
    )
    h = host.astype(float)
    close(row @ column, [[h @ h]])
    close(column @ row, np.outer(h, h))
    close(one @ row, host[:1].astype(float)[:, None] * h)
    close(gpuinterop.gemm(row, column, one), [[h @ h + h[0]]])


def test_a_nan_that_counts_for_nothing(device: str) -> None:
    nan = CudaNdarray(np.full((2, 2), np.nan, np.float32), device=device)
    x = CudaNdarray(values(2, 2), device=device)
    close(gpuinterop.gemm(nan, x, x, alpha=0, beta=2), 2 * values(2, 2).astype(float))
    close(gpuinterop.gemm(x, x, nan, beta=0), values(2, 2).astype(float) @ values(2, 2))
    close(gpuinterop.gemv(nan, x[0], x[1], alpha=0), values(2, 2)[1])
    close(gpuinterop.gemv(x, x[0], nan[0], beta=0), values(2, 2).astype(float) @ values(2, 2)[0])
    assert np.isinf(gpuinterop.gemv(x, x[0], nan[0], alpha=np.inf, beta=0).get()).all()
    close(gpuinterop.ger(nan[0], nan[1], alpha=0), np.zeros((2, 2)))
    close(gpuinterop.ger(nan[0], nan[1], x, alpha=0), values(2, 2))
    addend = x.copy()
    assert gpuinterop.ger(nan[0], nan[1], addend, alpha=0, out=addend) is addend
    close(addend, values(2, 2))
    assert np.isnan(np.asarray(gpuinterop.gemm(nan, x))).all()


@pytest.mark.parametrize("dtype", ["int32", "bool", "uint8", "float64"])
def test_other_dtypes(device: str, dtype: str) -> None:
    a, b, c = ((values(n, m) * 3).astype(dtype) for n, m in ((3, 4), (4, 2), (3, 2)))
    x, y, z = (GpuArray(v, device=device) for v in (a, b, c))
    close(gpuinterop.gemm(x, y, z), (a @ b) + c)
    gpuinterop.gemm(x, y, z, out=z)
    close(z, (a @ b) + c)
    close(gpuinterop.ger(x[0], y[:, 0]), np.outer(a[0], b[:, 0]))
    close(gpuinterop.dot(x[0], y), a[0] @ b)
    mixed = GpuArray(a.astype("float64"), device=device) @ y
    assert mixed.dtype == np.float64
    close(mixed, a.astype(float) @ b)


@pytest.mark.parametrize(
    ("left", "right"),
    [("int32", "float32"), ("int64", "uint64"), ("float16", "int8"), ("bool", "float32"),
     ("complex64", "float64"), ("int32", "complex64"), ("complex128", "complex64")],
)  # fmt: skip
def test_factors_of_two_dtypes(device: str, left: str, right: str) -> None:
    """In the dtype that NumPy computes in: these numbers wrap, or round, in the narrower ones."""
    large = {"int32": 2**24 + 1, "int64": -(2**40), "uint64": 2**40}
    a, b = (np.arange(1, 6) * large.get(t, 1) for t in (left, right))
    a, b = a.astype(left), b.astype(right)
    if "complex" in left:
        a = a * (1 - 2j)
    x, y = GpuArray(a.astype(left), device=device), GpuArray(b, device=device)
    expected = np.multiply(a, b, dtype=np.result_type(left, right)).sum()
    got = gpuinterop.dot(x, y)
    assert got.dtype == np.result_type(left, right)
    np.testing.assert_allclose(
        np.asarray(got), expected, rtol=1e-3 if "float16" in (left, right) else 1e-12
    )
    close(gpuinterop.dot(x.reshape((1, 5)), y), np.asarray(expected)[None])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (-0.5, 2), (3, 0)])
def test_complex_vectors(device: str, dtype: str, alpha: float, beta: float) -> None:
    a, v, w = ((values(*s) - 2j * values(*s)[::-1]).astype(dtype) for s in ((3, 4), (4,), (3,)))
    x, y, z = (GpuArray(h, device=device) for h in (a, v, w))
    exact = a.astype(complex) @ v
    close(gpuinterop.gemv(x, y, z, alpha=alpha, beta=beta), alpha * exact + beta * w)
    close(gpuinterop.gemv(x, y, alpha=alpha), alpha * exact)
    close(gpuinterop.dot(x, y), exact)
    close(gpuinterop.vdot(y, y), np.vdot(v.astype(complex), v))
    close(y.T @ x.T, exact)

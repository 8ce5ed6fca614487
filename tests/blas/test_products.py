"""Products of matrices and vectors against NumPy in float64, on every device there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuinterop
from gpuinterop import CudaNdarray, GpuArray
from gpuinterop.ops import blas


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(got, expected, tolerance: float = 1e-5) -> None:
    got = np.asarray(got)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def laid_out(host: np.ndarray, layout: str, device: str) -> CudaNdarray:
    """`host` on the device with the memory order that is named; its values do not change."""
    if layout == "rows":
        return CudaNdarray(host, device=device)
    if layout == "columns":
        return CudaNdarray(np.ascontiguousarray(host.T), device=device).T
    wide = np.zeros((host.shape[0], host.shape[1] + 3), np.float32)
    wide[:, 1:-2] = host
    if layout == "padded rows":
        return CudaNdarray(wide, device=device)[:, 1:-2]
    tall = np.ascontiguousarray(host[::-1])
    assert layout == "reversed"
    return CudaNdarray(tall, device=device)[::-1]


IN_PLACE = ["rows", "columns", "padded rows"]


@pytest.mark.parametrize("left", IN_PLACE)
@pytest.mark.parametrize("right", IN_PLACE)
def test_matrices_as_they_lie(device: str, left: str, right: str) -> None:
    a, b = values(5, 7), values(7, 4)
    close(laid_out(a, left, device) @ laid_out(b, right, device), a.astype(float) @ b)


@pytest.mark.parametrize("out_layout", ["rows", "columns", "padded rows"])
def test_out_of_any_order(device: str, out_layout: str) -> None:
    a, b = values(5, 7), values(7, 4)
    store = laid_out(np.zeros((5, 4), np.float32), out_layout, device)
    result = gpuinterop.matmul(
        laid_out(a, "rows", device), laid_out(b, "columns", device), out=store
    )
    assert result is store
    base = store if out_layout == "rows" else store.base
    whole = np.asarray(base)
    shown = {"rows": whole, "columns": whole.T}.get(out_layout)
    close(whole[:, 1:-2] if shown is None else shown, a.astype(float) @ b)


@pytest.mark.parametrize("shapes", [((1, 5), (5, 1)), ((5, 1), (1, 5)), ((1, 1), (1, 1)), ((1, 4), (4, 6)),
                                    ((6, 4), (4, 1)), ((3, 1), (1, 1))])  # fmt: skip
def test_extents_of_one(device: str, shapes) -> None:
    a, b = values(*shapes[0]), values(*shapes[1])
    for left in ("rows", "columns"):
        for right in ("rows", "columns"):
            close(laid_out(a, left, device) @ laid_out(b, right, device), a.astype(float) @ b)


@pytest.mark.parametrize(
    "shapes", [((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0, 0), (0, 0))]
)
def test_empty_extents(device: str, shapes) -> None:
    a, b = np.zeros(shapes[0], np.float32), np.zeros(shapes[1], np.float32)
    close(CudaNdarray(a, device=device) @ CudaNdarray(b, device=device), a @ b)


def test_addition_rides_along(device: str) -> None:
    m, x, b = values(6, 5), values(5, 4), values(6, 4)
    gm, gx, gb = (CudaNdarray(v, device=device) for v in (m, x, b))
    exact = m.astype(float) @ x
    close(gpuinterop.gemm(gm, gx, gb), exact + b)
    close(gpuinterop.addmm(gb, gm, gx, alpha=2, beta=-0.5), 2 * exact - 0.5 * b)
    close(gb, b)  # only read
    y = gb.copy()
    assert gpuinterop.gemm(gm, gx, y, beta=3, out=y) is y
    close(y, exact + 3 * b)


def test_a_vector_is_added_to_every_row(device: str) -> None:
    m, x, b = values(6, 5), values(5, 4), values(4)
    close(
        gpuinterop.gemm(*(CudaNdarray(v, device=device) for v in (m, x, b))),
        m.astype(float) @ x + b,
    )


def test_products_of_nothing_leave_the_addend(device: str) -> None:
    c = values(3, 2)
    a, b = np.zeros((3, 0), np.float32), np.zeros((0, 2), np.float32)
    close(gpuinterop.gemm(*(CudaNdarray(v, device=device) for v in (a, b, c))), c)


@pytest.mark.parametrize("shapes", [((3, 4, 5), (3, 5, 2)), ((2, 3, 4, 5), (2, 3, 5, 2)), ((3, 4, 5), (5, 2)),
                                    ((4, 5), (3, 5, 2)), ((2, 1, 4, 5), (3, 5, 2)), ((0, 4, 5), (5, 2))])  # fmt: skip
def test_stacks_of_matrices(device: str, shapes) -> None:
    a, b = values(*shapes[0]), values(*shapes[1])
    close(CudaNdarray(a, device=device) @ CudaNdarray(b, device=device), a.astype(float) @ b)


def test_vectors(device: str) -> None:
    a, b, v, w = values(4, 5), values(5, 6), values(5), values(4)
    ga, gb, gv, gw = (CudaNdarray(x, device=device) for x in (a, b, v, w))
    close(gv @ gv, v.astype(float) @ v)
    close(ga @ gv, a.astype(float) @ v)
    close(gv @ gb, v.astype(float) @ b)
    close(gpuinterop.dot(gv, gv[::-1]), v.astype(float) @ v[::-1])
    close(ga.T @ gw, a.T.astype(float) @ w)
    close(gpuinterop.gemv(ga, gv, gw, alpha=0.5, beta=2.0), 0.5 * (a.astype(float) @ v) + 2 * w)
    close(gpuinterop.inner(ga, gv), np.inner(a.astype(float), v))


def test_gemv_in_place_with_the_tutorials_numbers(device: str) -> None:
    x, g, w = values(400, 7), values(400), values(7)
    gx, gg, gw = (CudaNdarray(v, device=device) for v in (x, g, w))
    gpuinterop.gemv(gx.T, gg, gw, alpha=-0.01, beta=0.9998, out=gw)
    close(gw, 0.9998 * w - 0.01 * (x.T.astype(float) @ g))


def test_dot_of_many_axes(device: str) -> None:
    a, b = values(2, 3, 4), values(5, 4, 6)
    close(
        gpuinterop.dot(CudaNdarray(a, device=device), CudaNdarray(b, device=device)),
        np.dot(a.astype(float), b),
    )


def test_ger(device: str) -> None:
    x, y, a = values(3), values(4), values(3, 4)
    gx, gy, ga = (CudaNdarray(v, device=device) for v in (x, y, a))
    close(gpuinterop.ger(gx, gy, ga, alpha=2), 2 * np.outer(x.astype(float), y) + a)
    close(np.outer(gx, gy), np.outer(x, y))


def test_refusals(device: str) -> None:
    a, b = CudaNdarray(values(3, 4), device=device), CudaNdarray(values(3, 4), device=device)
    for product in (gpuinterop.matmul, gpuinterop.dot, blas.dot22):
        with pytest.raises(ValueError, match="inner dimensions"):
            product(a, b)
    with pytest.raises(TypeError, match="two matrices"):
        blas.dot22(a, b[0])
    with pytest.raises(TypeError):
        blas.dot22(a, np.zeros((4, 3), np.float32))
    with pytest.raises(ValueError, match="one axis or more"):
        a @ a.sum()
    with pytest.raises(ValueError, match="out= with shape"):
        gpuinterop.matmul(a, b.T, out=a)
    with pytest.raises(TypeError):
        a @ "text"


def test_out_may_overlap_an_operand(device: str) -> None:
    a, b = values(4, 4), values(4, 4)
    x, y = CudaNdarray(a, device=device), CudaNdarray(b, device=device)
    gpuinterop.gemm(x, y, out=x)
    close(x, a.astype(float) @ b)


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "complex64", "float16"])
def test_gpuarray_dtypes(device: str, dtype: str) -> None:
    a, b = (values(4, 5) * 2).astype(dtype), (values(5, 3) * 2).astype(dtype)
    result = GpuArray(a, device=device) @ GpuArray(b, device=device)
    expected = a @ b
    assert result.dtype == expected.dtype
    close(result, expected, 1e-2 if dtype == "float16" else 1e-5)


def test_numpy_dispatches(device: str) -> None:
    a, b = values(3, 4), values(4, 2)
    x, y = CudaNdarray(a, device=device), CudaNdarray(b, device=device)
    for result in (np.dot(x, y), np.matmul(x, y)):
        assert type(result) is CudaNdarray
        close(result, a.astype(float) @ b)
    assert type(np.concatenate([x, x])) is CudaNdarray
    close(np.sum(x, axis=0), a.astype(float).sum(0))
    close(np.add.reduce(x), a.astype(float).sum(0))
    close(np.linalg.norm(x), np.linalg.norm(a.astype(float)))


matrices = st.tuples(
    st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.sampled_from([1, -1, 2]),
    st.sampled_from([1, -1, 2]), st.booleans(), st.booleans(),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(matrices)
def test_any_strides(case) -> None:
    m, n, k, step_a, step_b, turn_a, turn_b = case
    a = values(2 * (k if turn_a else m), 2 * (m if turn_a else k))
    b = values(2 * (n if turn_b else k), 2 * (k if turn_b else n))
    cut_a = tuple(slice(None, None, step_a * 2 // abs(step_a)) for _ in range(2))
    cut_b = tuple(slice(None, None, step_b * 2 // abs(step_b)) for _ in range(2))
    x, y = CudaNdarray(a, device="cpu")[cut_a], CudaNdarray(b, device="cpu")[cut_b]
    p, q = a[cut_a].astype(float), b[cut_b].astype(float)
    if turn_a:
        x, p = x.T, p.T
    if turn_b:
        y, q = y.T, q.T
    close(x @ y, p @ q)


def test_a_wider_addend_decides_what_is_computed(device: str) -> None:
    a = GpuArray(np.full((2, 3), 100, np.uint8), device=device)
    wide = GpuArray(np.full((2, 2), 1 << 40, np.int64), device=device)
    made = gpuinterop.gemm(a, a.T, wide)
    assert made.dtype == np.int64
    assert made.tolist() == [[(1 << 40) + 30000] * 2] * 2
    assert gpuinterop.gemm(a, a.T, wide, out=wide) is wide
    assert wide.tolist() == made.tolist()

    m, x = (GpuArray(values(*s), device=device) for s in ((4, 3), (3,)))
    y = GpuArray(values(4, dtype="float64"), device=device)
    for alpha in (2.0, float("inf")):  # the second one has no kernel of its own
        made = gpuinterop.gemv(m, x, y, alpha=alpha, beta=0.5)
        assert made.dtype == np.float64
        exact = alpha * (np.asarray(m).astype(float) @ np.asarray(x)) + 0.5 * np.asarray(y)
        np.testing.assert_allclose(np.asarray(made), exact, rtol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize(("narrow", "wide"), [("int8", "float32"), ("float32", "float64"), ("bool", "float32"),
                                              ("float16", "float32")])  # fmt: skip
def test_a_wider_addend_decides_for_gemv_whatever_beta_is(
    device: str, narrow: str, wide: str, beta: float
) -> None:
    a, x, y = (50 * values(*shape) for shape in ((3, 40), (40,), (3,)))
    a, x, y = a.astype(narrow), x.astype(narrow), y.astype(wide)
    made = gpuinterop.gemv(*(GpuArray(v, device=device) for v in (a, x, y)), beta=beta)
    assert made.dtype == wide
    exact = a.astype(float) @ x.astype(float) + beta * y
    bound = 8 * np.finfo(wide).eps * (np.abs(a.astype(float)) @ np.abs(x.astype(float)))
    assert (np.abs(made.get() - exact) <= bound).all()


def test_a_wider_addend_decides_for_gemm_whatever_beta_is(device: str) -> None:
    a = GpuArray(np.ones((3, 3), np.bool_), device=device)
    x = GpuArray(np.full((3, 3), 100, np.int8), device=device)
    c = GpuArray(np.ones((3, 3), np.float64), device=device)
    assert gpuinterop.gemm(a, a, c, beta=0).tolist() == [[3] * 3] * 3
    assert gpuinterop.gemm(x, x, c, beta=0).tolist() == [[30000] * 3] * 3


def test_small_floats_are_scaled_before_they_are_rounded(device: str) -> None:
    a = GpuArray(np.full((2, 2), 300, np.float16), device=device)
    expected = [[18000] * 2] * 2
    assert gpuinterop.gemm(a, a, alpha=0.1).get().round(-1).tolist() == expected
    assert gpuinterop.gemv(a, a[0], alpha=0.1).get().round(-1).tolist() == expected[0]


@pytest.mark.parametrize(
    ("left", "right"), [("float16", "float32"), ("float32", "float64"), ("float32", "complex128")]
)
def test_ger_scales_in_the_results_dtype(device: str, left: str, right: str) -> None:
    x, y = np.array([60000, 0.7], left), np.array([0.5, 3], right)
    for first, second in ((x, y), (y, x)):
        made = gpuinterop.ger(*(GpuArray(v, device=device) for v in (first, second)), alpha=2.1)
        assert made.dtype == right
        wide = np.result_type(right, np.float64)
        exact = 2.1 * np.outer(first.astype(wide), second.astype(wide))
        np.testing.assert_allclose(made.get(), exact, rtol=4 * np.finfo(right).eps)


@pytest.mark.parametrize("wide", ["int64", "float64"])
def test_ger_computes_in_the_addends_dtype(device: str, wide: str) -> None:
    x = np.array([100, -2, 7], np.int8)
    a = np.arange(9).reshape(3, 3).astype(wide)
    gx, ga = GpuArray(x, device=device), GpuArray(a, device=device)
    expected = np.outer(x.astype(wide), x.astype(wide)) + a
    np.testing.assert_array_equal(gpuinterop.ger(gx, gx, ga).get(), expected)
    np.testing.assert_array_equal(gpuinterop.ger(gx, gx, ga, out=ga).get(), expected)
    # Without one, as numpy.outer: in the vectors' own.
    np.testing.assert_array_equal(np.outer(gx, gx).get(), np.outer(x, x))


def test_products_of_very_many_axes(device: str) -> None:
    host = np.arange(6, dtype=np.float32).reshape((1,) * 62 + (2, 3))
    x, y = (
        CudaNdarray(host, device=device),
        CudaNdarray(host[0, 0][..., 0, :].ravel(), device=device),
    )
    expected = host.astype(np.float64) @ host.ravel()[:3]
    for got in (x @ y, gpuinterop.dot(x, y), gpuinterop.inner(x, y)):
        close(got, expected)
    whole, rows = host[0].astype("int32"), x[0].astype("int32")
    got = rows @ rows.swapaxes(-1, -2)
    np.testing.assert_array_equal(got.get(), whole @ whole.swapaxes(-1, -2))

"""Products of matrices and vectors against NumPy in float64, on every device there is."""

import ml_dtypes
import numpy as np
import pytest
from helpers.products import close, values

import gpuinterop
from gpuinterop import CudaNdarray, GpuArray


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "complex64", "float16"])
def test_gpuarray_dtypes(device: str, dtype: str) -> None:
    a, b = (values(4, 5) * 2).astype(dtype), (values(5, 3) * 2).astype(dtype)
    result = GpuArray(a, device=device) @ GpuArray(b, device=device)
    expected = a @ b
    assert result.dtype == expected.dtype
    close(result, expected, 1e-2 if dtype == "float16" else 1e-5)


def test_wider_addend_decides_the_compute_dtype(device: str) -> None:
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


LAYOUTS = {
    "rows": lambda x: GpuArray(x, device="cpu"),
    "columns": lambda x: GpuArray(x.T.copy(), device="cpu").T,
    "reversed": lambda x: GpuArray(x[..., ::-1].copy(), device="cpu")[..., ::-1],
    "with gaps": lambda x: GpuArray(x.repeat(2, -1), device="cpu")[..., ::2],
}
SHAPES = [((70, 130), (130, 50)), ((130,), (130, 50)), ((70, 130), (130,)), ((3000,), (3000,)),
          ((2, 3, 1, 130), (3, 130, 1)), ((2, 1, 33, 49), (3, 49, 65)), ((3, 33, 49), (49,))]  # fmt: skip
DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int64", "uint8"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_small_integers_on_the_host_are_rounded_once(dtype: str, layout: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    wide = {"c": "complex128", "i": "int64", "u": "uint8"}.get(kind.kind, "float64")
    alpha, beta = (1, 1) if kind.kind in "iu" else (1.5, -0.5)
    rng = np.random.default_rng(0)

    def operand(*shape: int):
        host = rng.integers(0 if kind.kind == "u" else -4, 5, shape).astype(wide)
        host = host * (1 - 2j) if kind.kind == "c" else host
        return host, LAYOUTS[layout](host.astype(kind))

    for shapes in SHAPES:
        (a, x), (b, y) = (operand(*shape) for shape in shapes)
        exact = a @ b
        np.testing.assert_array_equal((x @ y).get(), exact.astype(kind))
        if a.ndim > 1 and b.ndim > 1:
            c, z = operand(*exact.shape[-2:])
            out = LAYOUTS[layout](np.zeros(exact.shape, kind))
            gpuinterop.gemm(x, y, z, alpha=alpha, beta=beta, out=out)
        elif a.ndim == 2:
            c, z = operand(*exact.shape)
            out = gpuinterop.gemv(x, y, z, alpha=alpha, beta=beta)
        else:
            continue
        np.testing.assert_array_equal(out.get(), (alpha * exact + beta * c).astype(kind))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_vectors_with_gaps_are_summed_accurately(device: str, dtype: str) -> None:
    x = gpuinterop.full((1 << 18, 2), 0.1, dtype=dtype, device=device)
    exact = float(np.float32(0.1)) ** 2 * (1 << 18)
    for made in (gpuinterop.dot(x[:, 0], x[:, 1]), x[:, 0] @ x[:, ::-1], x[:, :1].T @ x[:, 1]):
        np.testing.assert_allclose(made.get(), np.full(made.shape, exact), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("alpha", [1, 0.375])
def test_ger_of_small_floats_rounds_once(device: str, dtype: type, alpha: float) -> None:
    x, y, a = (values(*shape).astype(dtype) for shape in ((30,), (20,), (30, 20)))
    got = gpuinterop.ger(*(GpuArray(v, device=device) for v in (x, y, a)), alpha=alpha)
    x, y, addend = (v.astype("float64") for v in (x, y, a))
    exact = alpha * np.outer(x, y) + addend
    np.testing.assert_array_equal(got.get(), exact.astype("float32").astype(dtype))


def test_alpha_beside_float32_is_float32_as_the_number_of_an_operator_is(device: str) -> None:
    x, column = (gpuinterop.ones((2, n), device=device) for n in (2, 1))
    for number in (1e39, -(10**50), 0.1):
        expected = (x * number).tolist()
        # One product for each element: a library may multiply alpha by each before it adds them.
        assert gpuinterop.gemm(column, column.T, alpha=number).tolist() == expected
        assert gpuinterop.ger(x[0], x[0], alpha=number).tolist() == expected

"""Products with few results and a long inner dimension, which the blocks share. float64 is the oracle."""

import numpy as np
import pytest

import gpuinterop as gi

LAYOUTS = {
    "rows": lambda m: m,
    "columns": lambda m: np.asfortranarray(m),
    "odd rows": lambda m: np.pad(m, ((0, 0), (1, 2)))[:, 1:-2],
    "odd columns": lambda m: np.asfortranarray(np.pad(m, ((1, 2), (0, 0))))[1:-2],
    "steps": lambda m: np.repeat(np.repeat(m, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda m: m[::-1, ::-1].copy()[::-1, ::-1],
    "repeated": lambda m: np.broadcast_to(m[:1], m.shape),
}


def operand(shape, layout, dtype, device, seed):
    """The same matrix, with the same strides, for NumPy and gpuinterop."""
    host = np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float64)
    view = LAYOUTS[layout](host)
    root = view
    while root.base is not None:
        root = root.base
    flat = gi.asarray(root.ravel("K").astype(dtype), device=device)
    start = (view.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // 8
    return view, flat._restrided(view.shape, [s // 8 for s in view.strides], start)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(16, 16, 5000), (17, 19, 4099), (2, 5, 1024), (32, 65, 4100), (3, 200, 4097)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes(device, m, n, k, dtype):
    if dtype == "float64" and m * n > 256:
        m, n = 15, 17  # tensor cores multiply larger ones
    for left, right in (("rows", "rows"), ("columns", "odd columns")):
        a, x = operand((m, k), left, dtype, device, 1)
        b, y = operand((k, n), right, dtype, device, 2)
        result = x @ y
        assert result.dtype == dtype
        assert result.is_c_contiguous()
        np.testing.assert_allclose(result.get(), (a @ b).astype(dtype), rtol=1e-6)


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_layouts(device, left, right):
    a, x = operand((12, 4104), left, "float32", device, 1)
    b, y = operand((4104, 20), right, "float32", device, 2)
    np.testing.assert_array_equal((x @ y).get(), a @ b)  # sums of integers are exact


def test_results_in_any_place(device):
    a, x = operand((12, 4104), "rows", "float32", device, 1)
    b, y = operand((4104, 20), "rows", "float32", device, 2)
    for view in (lambda c: c[:240].reshape(12, 20), lambda c: c[3:243].reshape(20, 12).T,
                 lambda c: c[:480].reshape(12, 40)[:, ::-2], lambda c: c[:960].reshape(24, 40)[::2, 1::2]):  # fmt: skip
        canvas, expected = gi.zeros(1000, device=device), np.zeros(1000, np.float32)
        assert gi.matmul(x, y, out=view(canvas)) is not None
        view(expected)[...] = a @ b
        np.testing.assert_array_equal(canvas.get(), expected)


def test_addends(device):
    a, x = operand((12, 4104), "rows", "float32", device, 1)
    b, y = operand((4104, 20), "columns", "float32", device, 2)
    c = np.arange(240, dtype=np.float32).reshape(12, 20)
    for h in (c, c[:1], c[:, :1], c[0]):
        g = gi.asarray(h, device=device)
        np.testing.assert_array_equal(gi.addmm(g, x, y).get(), a @ b + h)
        np.testing.assert_array_equal(
            gi.addmm(g, x, y, alpha=2, beta=0.5).get(), 2 * (a @ b) + 0.5 * h
        )
    z = gi.GpuArray(c, device=device)
    assert gi.gemm(x, y, z, out=z) is z
    np.testing.assert_array_equal(z.get(), a @ b + c)


@pytest.mark.gpu
@pytest.mark.slow
def test_halves_beyond_31_bits_of_the_inner_dimension():
    k = 2**31 + 3
    x, y = (gi.empty(s, "float16", device="cuda") for s in ((2, k), (k, 2)))
    x.fill(2.0**-10)
    y.fill(2.0**-12)
    x[1], y[-1, 1] = 2.0**-11, 2.0**15
    expected = [[512, 544], [256, 272]]
    np.testing.assert_allclose((x @ y).get(), expected, rtol=1e-3)


def test_small_floats_are_rounded_once_with_the_addend(device):
    x = gi.ones((4, 4096), dtype="float16", device=device)
    y = gi.ones((4096, 4), dtype="float16", device=device) * 0.5
    c = gi.full((4, 4), 1 / 2, dtype="float16", device=device)
    np.testing.assert_array_equal(gi.addmm(c, x, y).get(), np.full((4, 4), 2048.5, np.float16))


def test_an_out_that_overlaps_an_operand(device):
    a, x = operand((16, 4096), "rows", "float32", device, 1)
    b, y = operand((4096, 16), "rows", "float32", device, 2)
    assert gi.matmul(x, y, out=y[100:116]) is not None
    np.testing.assert_array_equal(y[100:116].get(), a @ b)


def test_a_captured_product(device):
    a, x = operand((16, 4096), "rows", "float32", device, 1)
    b, y = operand((4096, 16), "rows", "float32", device, 2)
    step = gi.capture(lambda x, y: x @ y, x, y)
    for factor in (1, 3):
        x[...] = gi.asarray(a.astype("float32") * factor, device=device)
        np.testing.assert_array_equal(step().get(), a @ b * factor)


def test_equal_calls_give_equal_bits(device):
    x = gi.asarray(
        np.random.default_rng(0).standard_normal((16, 1 << 15), np.float32), device=device
    )
    y = gi.asarray(
        np.random.default_rng(1).standard_normal((1 << 15, 16), np.float32), device=device
    )
    first = (x @ y).get()
    assert all(np.array_equal((x @ y).get(), first) for _ in range(5))
    exact = x.get().astype("f8") @ y.get().astype("f8")
    assert abs(first - exact).max() < 2e-6 * abs(exact).max()

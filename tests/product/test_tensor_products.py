"""Products of float32 on tensor cores by three products of TF32. NumPy in float64 and cuBLAS are the oracles."""

import re

import numpy as np
import pytest
from doubles import internals

import gpuinterop as gi

THREE = "tf32x3"
SPACE = 3  # elements around results that stay as they are


def gpu(test):
    return pytest.mark.gpu(pytest.mark.usefixtures("hopper")(test))


@pytest.fixture
def hopper():
    if internals.compute_capability() != internals.tensor_product.HOPPER.arch:
        pytest.skip("needs a Hopper GPU")


@pytest.fixture
def every_shape(monkeypatch):
    """Small products use tensor cores, too. Give the shapes of those that do, as the core prepares them."""
    yield internals.multiply_all_shapes_on_tensor_cores(monkeypatch)
    internals.forget_calls()


def uses_tensor_cores(a, b) -> bool:
    """Whether some element differs from float32's: nearly all sums of random numbers differ in the last place."""
    return bool((gi.matmul(a, b, precision=THREE) != gi.matmul(a, b)).any())


# ---- random products --------------------------------------------------------------------------------

LAYOUTS = {
    "rows": lambda m: m,
    "transposed": lambda m: m.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "part of rows": lambda m: np.pad(m, [(0, 0)] * (m.ndim - 1) + [(1, 2)])[..., 1:-2],
    "part of columns": lambda m: LAYOUTS["part of rows"](m.swapaxes(-1, -2)).swapaxes(-1, -2),
    "steps": lambda m: np.repeat(np.repeat(m, 2, -1), 2, -2)[..., ::2, ::2],
    "reversed": lambda m: m[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
    "repeated": lambda m: np.broadcast_to(m[..., :1, :], m.shape),
}  # fmt: skip


def on_gpu(view):
    """The same memory and strides as a NumPy view's, on the GPU."""
    root = view
    while root.base is not None:
        root = root.base
    flat = gi.asarray(root.ravel("K"), device="cuda:0")
    start = view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return flat._restrided(view.shape, [s // 4 for s in view.strides], start // 4)


# Leading axes of the result and of both operands.
BATCHES = (
    ((), (), ()), ((3,), (3,), (3,)), ((4,), (1,), (4,)), ((4,), (4,), ()), ((2, 3), (2, 1), (2, 3)),
)  # fmt: skip


class Case:
    """One product: operands, addend, factors, and where the result goes."""

    def __init__(self, seed: int) -> None:
        self.random = random = np.random.default_rng(seed)
        m, n, k = (int(2 ** random.uniform(0, 10.5)) for _ in range(3))
        if seed % 2:
            m, n, k = (max(1, x // 4) for x in (m, n, k))
        batch, left, right = BATCHES[random.integers(1, len(BATCHES)) if seed % 2 else 0]
        self.shape = (*batch, m, n)
        self.a, self.b = self.operand((*left, m, k)), self.operand((*right, k, n))
        self.addend = random.choice(["none", "full", "row", "column", "out"])
        self.alpha, self.beta = (float(random.choice([1, 1, 0.5, -2])) for _ in range(2))

    def operand(self, shape):
        host = self.random.standard_normal(shape, dtype=np.float32)
        return LAYOUTS[self.random.choice(list(LAYOUTS))](host)

    def out(self):
        """A view of a larger array of ones: in order, transposed, or with steps."""
        *lead, m, n = self.shape
        kind = self.random.integers(4)
        if kind == 3:
            return np.ones((*lead, 2 * m, 3 * n), np.float32)[..., ::2, ::3]
        space = np.ones((*lead, m + 2 * SPACE, n + 2 * SPACE + int(kind)), np.float32)
        view = space[..., SPACE : SPACE + m, SPACE : SPACE + n]
        if kind == 1:
            turned = np.ones((*lead, n + 2 * SPACE, m + 2 * SPACE), np.float32)
            return turned[..., SPACE : SPACE + n, SPACE : SPACE + m].swapaxes(-1, -2)
        return view

    def check(self) -> None:
        out = self.out()
        canvas = out
        while canvas.base is not None:
            canvas = canvas.base
        target = on_gpu(out)
        a, b = on_gpu(self.a), on_gpu(self.b)
        sizes = {"full": self.shape, "row": self.shape[-1:], "column": (self.shape[-2], 1)}
        size = sizes.get(self.addend)
        c = None if size is None else self.random.standard_normal(size, dtype=np.float32)
        options = {"alpha": self.alpha, "precision": THREE, "out": target}
        if self.addend == "out":
            c = np.ones(self.shape, np.float32)
            gi.gemm(a, b, target, beta=self.beta, **options)
        elif c is not None:
            gi.gemm(a, b, gi.asarray(c, device="cuda:0"), beta=self.beta, **options)
        else:
            gi.gemm(a, b, **options)
        exact = self.alpha * (self.a.astype(float) @ self.b.astype(float))
        scale = abs(self.alpha) * (np.abs(self.a).astype(float) @ np.abs(self.b).astype(float))
        if c is not None:
            exact, scale = exact + self.beta * c.astype(float), scale + np.abs(self.beta * c)
        error = np.abs(target.get() - exact)
        assert (error <= 8e-7 * scale + 1e-30).all(), (error / scale).max()
        # Nothing beside the result has changed.
        after = target._restrided((canvas.size,), (1,), -self.start(out, canvas)).get()
        written = np.zeros(canvas.shape, bool)
        marks = np.lib.stride_tricks.as_strided(
            written.reshape(-1)[self.start(out, canvas) :], out.shape, [s // 4 for s in out.strides]
        )
        marks[...] = True
        assert (after[~written.ravel()] == 1).all()

    @staticmethod
    def start(view, canvas) -> int:
        ends = (x.__array_interface__["data"][0] for x in (view, canvas))
        return int(np.subtract(*ends)) // 4


@gpu
@pytest.mark.parametrize("tenth", range(10))
def test_random_products(every_shape, tenth):
    for seed in range(30 * tenth, 30 * tenth + 30):
        Case(seed).check()
    assert len(every_shape) >= 15  # of 30; matrices of one row or column are vectors


# ---- shapes that use tensor cores by themselves -----------------------------------------------------


def random_matrices(*shapes, seed=1):
    random = np.random.default_rng(seed)
    return [gi.asarray(random.standard_normal(s, dtype=np.float32), device="cuda:0") for s in shapes]  # fmt: skip


@gpu
def test_large_products_use_tensor_cores():
    a, b = random_matrices((2000, 900), (900, 2048))
    assert uses_tensor_cores(a, b)
    small = a[:100, :200], b[:200, :100]
    assert not uses_tensor_cores(*small)
    with gi.product_precision(THREE):
        assert ((a @ b) == gi.matmul(a, b, precision=THREE)).all()
    before = gi.set_product_precision(THREE)
    try:
        assert ((a @ b) == gi.matmul(a, b, precision=THREE)).all()
        with gi.product_precision("exact"):
            assert ((a @ b) == gi.matmul(a, b, precision="exact")).all()
    finally:
        assert gi.set_product_precision(before) == THREE


@gpu
@pytest.mark.parametrize("left", ["rows", "transposed"])
@pytest.mark.parametrize("right", ["rows", "transposed"])
def test_equal_calls_give_equal_bits(every_shape, left, right):
    random = np.random.default_rng(3)
    a, b = (on_gpu(LAYOUTS[layout](random.standard_normal(s, dtype=np.float32)))
            for layout, s in ((left, (1030, 515)), (right, (515, 1021))))  # fmt: skip
    first = gi.matmul(a, b, precision=THREE)
    for _ in range(20):
        assert (gi.matmul(a, b, precision=THREE) == first).all()
    exact = a.get().astype(float) @ b.get().astype(float)
    scale = np.abs(a.get()).astype(float) @ np.abs(b.get()).astype(float)
    assert (np.abs(first.get() - exact) / scale).max() < 2e-7


@gpu
def test_captured_products():
    a, b, c = random_matrices((2048, 512), (512, 2000), (2048, 2000))
    out = gi.empty((2048, 2000), device="cuda:0")
    with gi.capture() as graph:
        gi.gemm(a, b, c, out=out, precision=THREE)
    for step in range(3):
        a[...] = a * 0.5
        graph.replay()
        assert (out == gi.gemm(a, b, c, precision=THREE)).all(), step


@gpu
def test_a_product_larger_than_2_to_the_31():
    a, b = random_matrices((65600, 128), (128, 33000))
    result = gi.matmul(a, b, precision=THREE)
    for rows, columns in ((slice(0, 3), slice(0, 5)), (slice(65597, None), slice(32990, None))):
        exact = a[rows].get().astype(float) @ b[:, columns].get().astype(float)
        np.testing.assert_allclose(result[rows, columns].get(), exact, rtol=1e-4, atol=1e-5)


# ---- infinities, NaNs, small numbers ----------------------------------------------------------------

SPECIAL = np.array(
    [np.inf, -np.inf, np.nan, 0, -0.0, 3.4028235e38, 1e-45, -1e-40, 1], np.float32
)  # fmt: skip
# NaNs of all kinds of bits: the GPU's own, the smallest, and negative ones.
NANS = np.array([0x7FFFFFFF, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0xFF800001], np.uint32).view("f4")


@gpu
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("layout", ["rows", "transposed"])
def test_infinities_and_nans_are_those_of_float32(every_shape, side, layout):
    random = np.random.default_rng(5)
    for values in (SPECIAL[:3], SPECIAL[:5], NANS, SPECIAL):
        a = random.integers(-3, 4, (200, 90)).astype(np.float32)
        b = random.integers(-3, 4, (90, 170)).astype(np.float32)
        chosen = a if side == "a" else b
        chosen[random.random(chosen.shape) < 0.002] = values[0]
        for value in values:
            chosen[random.integers(len(chosen)), random.integers(chosen.shape[1])] = value
        x, y = on_gpu(LAYOUTS[layout](a)), on_gpu(LAYOUTS[layout](b))
        exact, three = gi.matmul(x, y).get(), gi.matmul(x, y, precision=THREE).get()
        for of in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(of(three), of(exact))
        finite = np.isfinite(exact)
        np.testing.assert_allclose(three[finite], exact[finite], rtol=2e-6, atol=1e-30)


@gpu
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("layout", ["rows", "transposed"])
@pytest.mark.parametrize("count", [1, 3])
def test_an_infinity_changes_few_rows_or_columns(every_shape, side, layout, count):
    """Products of tiles of every width, with an addend in their own memory; the other results keep their bits."""
    random = np.random.default_rng(8)
    for rows, columns in ((300, 330), (140, 48), (130, 6000)):
        a = random.standard_normal((rows, 130), dtype=np.float32)
        b = random.standard_normal((130, columns), dtype=np.float32)
        c = random.standard_normal((rows, columns), dtype=np.float32)

        def product(a, b, precision, c=c):
            out = on_gpu(c.copy())
            x, y = (on_gpu(LAYOUTS[layout](operand)) for operand in (a, b))
            return gi.gemm(x, y, out, alpha=-0.5, beta=2, out=out, precision=precision).get()

        clean = product(a, b, THREE)
        for value in (np.inf, np.nan):
            x, y = a.copy(), b.copy()
            lines = x if side == "a" else y.T
            places = random.integers(16) + 16 * np.arange(count)  # a warp has 16 rows
            lines[places, random.integers(130, size=count)] = value
            exact, three = product(x, y, "exact"), product(x, y, THREE)
            for of in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(of(three), of(exact))
            finite = np.isfinite(exact)
            assert 0 < finite.sum() < finite.size
            np.testing.assert_allclose(three[finite], exact[finite], rtol=1e-5, atol=1e-4)
            # Row r of a warp is multiplied again with row r + 8.
            again = np.isin(np.arange(len(lines)), [places, places ^ 8])
            kept = finite & ~(again[:, None] if side == "a" else again)
            np.testing.assert_array_equal(three[kept], clean[kept])


@gpu
def test_denormals_are_not_zeros(every_shape):
    random = np.random.default_rng(6)
    a = (random.standard_normal((150, 64)) * 1e-39).astype(np.float32)
    b = random.standard_normal((64, 140)).astype(np.float32)
    three = gi.matmul(*(gi.asarray(x, device="cuda:0") for x in (a, b)), precision=THREE).get()
    error = np.abs(three - a.astype(float) @ b) / (np.abs(a).astype(float) @ np.abs(b))
    assert error.max() < 2e-2


# ---- everywhere -------------------------------------------------------------------------------------


@pytest.mark.text
@pytest.mark.parametrize("width", [64, 96, 128])
def test_the_kernels_compile(nvrtc, width):
    for inner in (False, True):
        text = internals.tensor_product.text(width, inner)
        code = nvrtc.compile_source(
            text, internals.tensor_product.HOPPER, options=("--fmad=false",)
        )
        assert b"gi_tensor_product" in code
    assert b"gi_tensor_split" in nvrtc.compile_source(internals.tensor_product.before_text(), 90)


def test_short_inner_dimensions_stay_with_cublas():
    """The median error of positive data would be up to twice that of cuBLAS, so no size makes up for it."""
    faster = internals.tensor_product.is_faster
    for edge in (1 << 10, 1 << 12, 1 << 14):
        waves = (edge // 128) ** 2 / 132
        assert not any(faster(edge, edge, k, 1, 12 * edge * k, waves, 132) for k in (32, 64, 95))
    assert faster(1 << 14, 1 << 14, 96, 1, 12 * 96 << 14, 125, 132)


@pytest.mark.fake_driver
def test_the_fake_driver_refuses_them(every_shape, device):
    a = gi.ones((100, 100), device=device)
    with pytest.raises(gi.CudaError, match="cuTensorMapEncodeTiled"):
        gi.matmul(a, a, precision=THREE)
    assert len(every_shape) == 1


def test_words_of_the_switch(device):
    x = gi.ones((2, 2), device=device)
    assert re.fullmatch("exact|tf32x3|tf32", gi.set_product_precision("exact"))
    for call in (lambda: gi.matmul(x, x, precision="fast"), lambda: gi.product_precision("").__enter__(),
                 lambda: gi.set_product_precision("TF32")):  # fmt: skip
        with pytest.raises(gi.RangeError, match="tf32x3"):
            call()
    for call in (lambda: gi.gemm(x, x, precision=True), lambda: gi.set_product_precision(None),
                 lambda: gi.product_precision(None).__enter__()):  # fmt: skip
        with pytest.raises(gi.ArgumentTypeError):
            call()
    for name in ("exact", THREE, "tf32"):
        with gi.product_precision(name):
            assert (x @ x).tolist() == [[2, 2], [2, 2]]
        assert gi.gemm(x, x, x, precision=name).tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_products(device, shape):
    m, n, k = shape
    a, b = gi.ones((m, k), device=device), gi.ones((k, n), device=device)
    assert gi.matmul(a, b, precision=THREE).tolist() == np.zeros((m, n)).tolist()

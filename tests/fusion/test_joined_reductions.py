"""Reductions that share a kernel, against NumPy in float64, and the number of kernels."""

import numpy as np
import pytest
from helpers.layouts import LAYOUTS

import gpuinterop as gi

RNG = np.random.default_rng(7)
X = RNG.uniform(0.5, 1.5, (33, 70)).astype("float32")
ROW, COLUMN = X[0].copy(), X[:, 0].copy()

# name: (function of x, row and column, the kernels on a GPU)
PROGRAMS = {
    "the same axes": (lambda x, row, col: (x.min(), x.max()), 1),
    "of an axis": (lambda x, row, col: (x.sum(axis=0), (x * x).mean(axis=0)), 1),
    "of rows": (lambda x, row, col: (x.sum(axis=1) * 2, x.max(axis=1) - col), 1),
    "used together": (lambda x, row, col: (x * x).mean(axis=0) - x.mean(axis=0) ** 2, 1),
    "kept axes": (lambda x, row, col: (x.sum(axis=0, keepdims=True) + 1, x.max(axis=0)), 1),
    "kept by both": (lambda x, row, col: x.max(axis=1, keepdims=True) - x.min(axis=1, keepdims=True), 1),
    "one of them used later": (lambda x, row, col: (x - x.mean(axis=0), x.max(axis=0)), 2),
    "dependent": (lambda x, row, col: abs(x - x.mean()).sum(), 2),
    "other axes": (lambda x, row, col: (x.sum(axis=0), x.sum(axis=1)), 2),
    "other lengths": (lambda x, row, col: (row.sum(), col.sum()), 2),
    "more than four": (lambda x, row, col: (x.sum(), x.min(), x.max(), x.mean(), x.prod(), row.sum()), 3),
    "a vector beside columns": (lambda x, row, col: (col @ x, col.sum()), 1),
    "a vector beside rows": (lambda x, row, col: (x @ row, (row * row).sum() * 0.5 + 1), 1),
    "three": (lambda x, row, col: (col @ x + row, col.mean(), 1 - col.max()), 1),
    "a vector with kept axes": (lambda x, row, col: (x.T @ col, col.sum(keepdims=True)), 1),
    "a vector of two axes": (lambda x, row, col: (x @ row, row[:, None].max(), row[None].sum()), 1),
    "a vector that rows need": (lambda x, row, col: (x @ row / row.sum(), row.max()), 2),
    "two vectors used together": (lambda x, row, col: (x @ row, row.max() - row.min()), 1),
    "before both": (lambda x, row, col: (x.sum(axis=1) + x.sum(), x.max(axis=1)), 2),
    "numbers after it": (lambda x, row, col: (x * x).sum(axis=1) * 2 + 1, 1),
    "a vector after it": (lambda x, row, col: x.sum(axis=1) - col, 1),
    "a vector after kept axes": (lambda x, row, col: x.mean(axis=1, keepdims=True) * 2 - col[:, None], 1),
    "two and a vector": (lambda x, row, col: x.max(axis=1) - x.min(axis=1) * col, 1),
    "a comparison after it": (lambda x, row, col: x.sum(axis=1) > col, 1),
    "a larger operand after it": (lambda x, row, col: x.sum(axis=1)[:, None] + x, 2),
    "used twice": (lambda x, row, col: (x - x.mean(axis=1)[:, None]).sum(axis=0) + x.mean(axis=1).sum(), 3),
    "any and all": (lambda x, row, col: ((x > 1).any(axis=0), (x > 0.7).all(axis=0), (col > 9).any()), 1),
}  # fmt: skip


def tuple_of(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def check(function, *hosts, device, cls=gi.GpuArray, rtol=3e-6) -> None:
    arrays = [cls(h, device=device) for h in hosts]
    fused = gi.fuse(function)
    expected = function(*[h.astype("float64") if h.dtype.kind == "f" else h for h in hosts])
    got, apart = tuple_of(fused(*arrays)), tuple_of(function(*arrays))
    for g, a, e in zip(got, apart, tuple_of(expected), strict=True):
        assert (g.dtype, g.shape, type(g)) == (a.dtype, a.shape, type(a))
        np.testing.assert_allclose(g.get(), e, rtol=rtol, atol=1e-6)
    for g, again in zip(got, tuple_of(fused(*arrays)), strict=True):
        assert g.get().tobytes() == again.get().tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("cls", [gi.GpuArray, gi.CudaNdarray])
def test_equal_to_the_steps(device: str, cls: type, name: str) -> None:
    check(PROGRAMS[name][0], X, ROW, COLUMN, device=device, cls=cls)


@pytest.mark.driver
@pytest.mark.parametrize("name", PROGRAMS)
def test_number_of_kernels(name: str) -> None:
    function, count = PROGRAMS[name]
    arrays = [gi.CudaNdarray(a, device="cuda:0") for a in (X, ROW, COLUMN)]
    assert gi.capture(gi.fuse(function), *arrays).nodes == count


@pytest.mark.parametrize(
    ("layout", "host"),
    [*((layout, X) for layout in LAYOUTS), *(("C", part) for part in (X[:1], X[:, :1], X[:1, :1]))],
)
def test_layouts(device: str, layout: str, host: np.ndarray) -> None:
    x = LAYOUTS[layout](host, lambda a: gi.asarray(np.ascontiguousarray(a), device=device))
    col = gi.asarray(np.ascontiguousarray(host[:, 0]), device=device)
    fused = gi.fuse(lambda x, col: (x.sum(axis=0), x.max(axis=0), col.sum(), col @ x))
    wide, tall = host.astype("float64"), host[:, 0].astype("float64")
    expected = wide.sum(axis=0), wide.max(axis=0), tall.sum(), tall @ wide
    for got, value in zip(fused(x, col), expected, strict=True):
        np.testing.assert_allclose(got.get(), value, rtol=3e-6)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_without_elements(device: str, shape: tuple[int, int]) -> None:
    x, col = gi.zeros(shape, device=device), gi.ones(shape[0], device=device)
    sums, total = gi.fuse(lambda x, col: (col @ x, col.sum()))(x, col)
    assert sums.tolist() == [0] * shape[1]
    assert total.item() == shape[0]


@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 2), 1])
def test_three_axes(device: str, axes) -> None:
    a = RNG.standard_normal((5, 6, 7)).astype("float32")
    check(
        lambda x: (x.sum(axis=axes), abs(x).max(axis=axes), x[:, :, :, None].sum(axis=axes)),
        a,
        device=device,
        rtol=1e-5,
    )
    reduced = [n for i, n in enumerate(a.shape) if i in np.atleast_1d(axes)]
    beside = RNG.standard_normal(reduced).astype("float32")
    check(lambda x, y: (abs(x).max(axis=axes), y.sum()), a, beside, device=device)


@pytest.mark.parametrize(
    "dtype", ["float64", "int8", "int64", "bool", "complex64", "complex128", "float16", "uint32"]
)
def test_dtypes(device: str, dtype: str) -> None:
    x = (X * 3).astype(dtype)
    check(
        lambda x: (x.sum(axis=0), (x + x).mean(axis=0), x.any(axis=0)), x, device=device,
        rtol=2e-2 if dtype == "float16" else 1e-5,
    )  # fmt: skip


def test_numbers_and_mixed_classes(device: str) -> None:
    x, row = gi.CudaNdarray(X, device=device), gi.GpuArray(ROW, device=device)
    fused = gi.fuse(lambda x, row, n: ((x * n) @ row, (row - n).sum() / n))
    wide, flat = X.astype("float64"), ROW.astype("float64")
    first, second = fused(x, row, 3)
    np.testing.assert_allclose(first.get(), 3 * wide @ flat, rtol=3e-6)
    np.testing.assert_allclose(second.get(), (flat - 3).sum() / 3, rtol=3e-6)
    first, second = fused(x, gi.CudaNdarray(ROW, device=device), 2.5)
    np.testing.assert_allclose(second.get(), (flat - 2.5).sum() / 2.5, rtol=3e-6)


def test_in_place(device: str) -> None:
    """Each result replaces an operand that only its own part of the kernel reads after the reduction."""
    x, row, col = (gi.CudaNdarray(a, device=device) for a in (X, ROW, COLUMN))
    total = gi.full((), 2, device=device)
    fused = gi.fuse(lambda x, row, col, total: (row - col @ x, total + col.sum()))
    with gi.capture(device=device) as graph:
        fused(x, row, col, total, out=(row, total))
    if device != "cpu":
        assert graph.nodes == 1
    graph.replay()
    graph.replay()
    sums = COLUMN.astype("float64") @ X
    np.testing.assert_allclose(row.get(), ROW - 2 * sums, rtol=1e-5)
    np.testing.assert_allclose(total.get(), 2 + 2 * COLUMN.sum(dtype="float64"), rtol=1e-6)


def test_out_that_another_part_reads(device: str) -> None:
    """Each result is written to an operand that the kernel still reads for the others."""
    wide, flat, tall = (a.astype("float64") for a in (X, ROW, COLUMN))

    def arrays():
        return [gi.GpuArray(a, device=device) for a in (X, ROW, COLUMN, np.float32(2))]

    # The total is read in the other part, for all elements of its result.
    fused = gi.fuse(lambda x, row, col, total: (row - total * (col @ x), col.sum()))
    x, row, col, total = arrays()
    fused(x, row, col, total, out=(row, total))
    np.testing.assert_allclose(row.get(), flat - 2 * (tall @ wide), rtol=1e-5)
    np.testing.assert_allclose(total.get(), tall.sum(), rtol=1e-6)
    # An operand of the elements.
    fused = gi.fuse(lambda x, row, col, total: (x @ row, (row * row).sum()))
    x, row, col, total = arrays()
    fused(x, row, col, total, out=(None, row[3:4].reshape(())))
    assert row[3].item() == pytest.approx((flat * flat).sum(), rel=1e-6)
    x, row, col, total = arrays()
    square = gi.fuse(lambda x, col: (x.T @ col, col.sum()))
    first, _ = square(x, col, out=(row, total))
    np.testing.assert_allclose(row.get(), wide.T @ tall, rtol=1e-5)
    assert first is row


def test_many_operands(device: str) -> None:
    """More than one kernel with reductions accepts."""
    rows = [gi.asarray(X[i : i + 1], device=device) for i in range(17)]

    @gi.fuse
    def function(*rows):
        total = sum(rows)
        return total.sum(), total.min(axis=0) * 2, total.max(axis=0)

    total = sum(X[i : i + 1].astype("float64") for i in range(17))
    expected = total.sum(), total[0] * 2, total[0]
    for got, value in zip(function(*rows), expected, strict=True):
        np.testing.assert_allclose(got.get(), value, rtol=3e-6)


LARGE = [(1, 300_000), (300_000, 1), (5000, 300), (400, 784), (200_000, 6), (3, 2**19 + 1)]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_parts_of_long_reductions(shape: tuple[int, int], axis) -> None:
    """A reduction that many blocks share adds the accumulators of all its parts."""
    x = np.random.default_rng(1).uniform(0.5, 1.5, shape).astype("float32")
    check(
        lambda x: (x.sum(axis=axis), x.min(axis=axis), (x * x).mean(axis=axis)), x,
        device="cuda:0", rtol=1e-5,
    )  # fmt: skip
    vector = (x[:, 0] if axis == 0 else x[0]).copy()
    if axis is not None:
        check(lambda x, v: (abs(x).sum(axis=axis), v.sum(), v.max()), x, vector, device="cuda:0")


@pytest.mark.driver
def test_large_reductions_share_a_kernel_only_for_an_array() -> None:
    n = 2**20 + 1
    x, y = gi.ones(n, device="cuda:0"), gi.ones(n, device="cuda:0")
    for size, counts in ((n, (2, 1)), (n // 2, (1, 1))):
        a, b = x[:size], y[:size]
        assert gi.capture(gi.fuse(lambda a, b: (a.sum(), b.max())), a, b).nodes == counts[0]
        assert gi.capture(gi.fuse(lambda a, b: (a.sum(), (a + b).max())), a, b).nodes == counts[1]
    vector = gi.ones(1, device="cuda:0").broadcast_to((64,))
    tall = gi.ones((2**15, 64), device="cuda:0")
    assert gi.capture(gi.fuse(lambda a, v: (a @ v, v.sum())), tall, vector).nodes == 2

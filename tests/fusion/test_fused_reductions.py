"""Fused functions with reductions, against the same steps one by one and against float64."""

import numpy as np
import pytest
from helpers.profile import functions_of

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, BoundsError, ShapeError


def softmax(x):
    e = gi.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# The same function on gpuinterop arrays and on NumPy float64, because np.exp and np.sqrt dispatch to gpuinterop.
PROGRAMS = {
    "epilogue": lambda x: (x - 1).sum() * 2 + 1,
    "epilogue of an axis": lambda x: np.sqrt((x * x).sum(axis=0)) + 0.5,
    "mean": lambda x: x.sum() / x.size,
    "mean of rows": lambda x: x.sum(axis=1) / x.shape[1],
    "distance to the extreme": lambda x: x - x.max(),
    "normalized": lambda x: x / np.sqrt((x * x).sum(axis=1, keepdims=True)),
    "normalized columns": lambda x: x / x.sum(axis=0),
    "softmax": lambda x: (
        np.exp(x - x.max(axis=-1, keepdims=True))
        / np.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)
    ),
    "variance": lambda x: ((x - x.mean(axis=0)) ** 2).sum(axis=0) / len(x),
    "log of a sum": lambda x: np.log(np.exp(x - x.max()).sum()) + x.max(),
    "sum of maxima": lambda x: x.max(axis=1).sum(),
    "ratio": lambda x: (x * 2).sum(axis=0) / x.sum(axis=0).max(),
    "number first": lambda x: 7 / x.sum(axis=1) - 2.5,
    "integers": lambda x: x * (x > 1).sum(),
}


OPERATIONS = ("sum", "prod", "mean", "min", "max", "any", "all")


def inputs(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_float64_and_to_the_steps(device: str, name: str) -> None:
    a = inputs(9, 33)
    function = PROGRAMS[name]
    expected = function(a.astype(np.float64))
    for x in (gi.GpuArray(a, device=device), gi.GpuArray(a.T.copy(), device=device).T):
        got, apart = gi.fuse(function)(x), function(x)
        assert (got.dtype, got.shape, type(got)) == (apart.dtype, apart.shape, type(apart))
        np.testing.assert_allclose(got.get(), expected, rtol=3e-6, atol=1e-6)
        np.testing.assert_allclose(got.get(), apart.get(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool"])
def test_dtypes_of_stages_are_those_of_the_steps(device: str, dtype: str) -> None:
    x = gi.GpuArray((np.arange(24) % 3).reshape(4, 6).astype(dtype), device=device)
    for function in (
        lambda x: x.sum(axis=1) * 2,
        lambda x: x + x.max(axis=0),
        lambda x: x.mean() * x,
    ):
        got, apart = gi.fuse(function)(x), function(x)
        assert got.dtype == apart.dtype
        np.testing.assert_allclose(got.get(), apart.get(), rtol=1e-3)


def test_result_of_cudandarrays_is_a_cudandarray(device: str) -> None:
    x = gi.CudaNdarray(inputs(3, 4), device=device)
    assert type(gi.fuse(softmax)(x)) is gi.CudaNdarray
    np.testing.assert_allclose(gi.fuse(softmax)(x).get().sum(axis=1), 1, rtol=1e-6)
    shares = gi.fuse(lambda x: (x > 1).sum() / x)
    for call in (shares, shares.__wrapped__):
        with pytest.raises(TypeError, match="holds exactly"):  # int64 with a CudaNdarray
            call(x)


def test_each_result_has_the_shape_of_its_own_operands(device: str) -> None:
    a, b = inputs(4, 6), inputs(6, seed=1)
    x, y = gi.GpuArray(a, device=device), gi.GpuArray(b, device=device)

    @gi.fuse
    def several(x, y, unused=None):
        total = y.sum()
        return x + y, total, y * 2, x.max(axis=0) - y, total, total / 2, x.sum(axis=1)

    for extra in ((), (gi.GpuArray(a[None], device=device),)):
        got = several(x, y, *extra)
        wanted = (a + b, b.sum(), b * 2, a.max(0) - b, b.sum(), b.sum() / 2, a.sum(1))
        for value, expected in zip(got, wanted, strict=True):
            assert value.shape == np.shape(expected)
            np.testing.assert_allclose(value.get(), expected, rtol=1e-6)
    assert got[1] is not got[4]
    assert several(x[:2, :3], y[:3])[0].shape == (2, 3)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
def test_a_reduced_result(device: str, op: str, axis) -> None:
    a, b = inputs(4, 5, 6), inputs(5, 6, seed=1)
    x, y = gi.CudaNdarray(a, device=device), gi.CudaNdarray(b, device=device)
    got = gi.fuse(lambda x, y: getattr(x * y - y, op)(axis))(x, y)
    value = (a * b).astype(np.float32) - b
    expected = getattr(np, op)(value if op in ("any", "all") else value.astype(np.float64), axis)
    scale = np.abs(value.astype(np.float64)).sum(axis) if op == "sum" else np.abs(expected) + 1e-30
    assert got.shape == np.shape(expected)
    if op in ("any", "all", "min", "max"):
        np.testing.assert_array_equal(np.asarray(got), expected.astype(got.dtype))
    else:
        assert np.all(np.abs(np.asarray(got) - expected) <= 3e-7 * scale)
    apart = getattr(x * y - y, op)(axis)
    assert got.dtype == apart.dtype
    assert type(got) is type(apart)
    assert np.all(np.abs(np.asarray(got) * 1.0 - np.asarray(apart)) <= 3e-7 * scale)


def test_more_reduced_values_than_a_kernel_reads(device):
    x = gi.asarray(np.arange(6, dtype="float32"), device=device)

    def sums(x, first, last):
        return [(x * (i + 1)).sum() for i in range(first, last)]

    with pytest.raises(gi.ShapeError, match="24"):
        gi.fuse(lambda x: sum(sums(x, 0, 60), x * 0))(x)
    # Reduced values in any number, and the rest without fuse.
    sums_of_all = gi.fuse(lambda x: tuple(sums(x, 0, 60)))(x)
    assert gi.stack(sums_of_all).sum(0).item() == 15 * 60 * 61 / 2
    for parts in (1, 20):
        one = gi.fuse(lambda x, n=parts: sum(sums(x, 0, n), x * 0))(x)
        assert one.tolist() == [15 * parts * (parts + 1) / 2] * 6


def test_function_may_read_shapes_and_dtypes(device: str) -> None:
    @gi.fuse
    def scaled(x, y):
        z = x + y
        assert (z.ndim, len(z), np.shape(z)) == (2, z.shape[0], z.shape)
        return (z / z.size).astype(y.dtype) if z.shape[0] > 2 else z.sum(axis=0).astype(x.dtype)

    for shape, dtype in [
        ((4, 3), "float32"),
        ((2, 3), "float32"),
        ((5, 3), "float64"),
        ((4, 3), "float64"),
    ] * 2:
        a, b = np.ones(shape, np.float32), np.arange(3).astype(dtype)
        expected = (
            ((a + b) / a.size).astype(dtype) if shape[0] > 2 else (a + b).sum(0).astype("float32")
        )
        got = scaled(gi.GpuArray(a, device=device), gi.GpuArray(b, device=device))
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got.get(), expected, rtol=1e-6)


def test_new_shapes_make_no_new_kernels(device: str) -> None:
    both = gi.fuse(lambda x, y: (x * 2, y * 2, x.sum() - y))
    counts = set()
    for n in (3, 4, 5):
        x, y = gi.ones((n, 2), device=device), gi.ones(2, device=device)
        assert [v.shape for v in both(x, y)] == [(n, 2), (2,), (2,)]
        counts.add(len(both._kernels))
    assert len(counts) == 1


def test_empty_and_single_elements(device: str) -> None:
    mean = gi.fuse(lambda x: x.sum(axis=0) + 1)
    assert mean(gi.ones((0, 3), device=device)).tolist() == [1, 1, 1]
    assert mean(gi.ones((3, 0), device=device)).shape == (0,)
    assert gi.fuse(softmax)(gi.ones((0, 3), device=device)).shape == (0, 3)
    with pytest.raises(ShapeError):
        gi.fuse(softmax)(gi.ones((3, 0), device=device))
    assert gi.fuse(lambda x: x - x.max())(gi.ones((), device=device)).tolist() == 0
    with pytest.raises(ValueError, match="broadcast"):
        gi.fuse(lambda x: x - x.max(axis=1))(gi.ones((3, 4), device=device))


def test_out_may_be_what_is_read(device: str) -> None:
    a = inputs(5, 5)
    expected = np.exp(a.astype(np.float64))
    expected /= expected.sum(axis=1, keepdims=True)
    x = gi.CudaNdarray(a, device=device)
    assert gi.fuse(softmax)(x, out=x) is x
    np.testing.assert_allclose(x.get(), expected, rtol=1e-6)

    x, y = gi.CudaNdarray(a, device=device), gi.CudaNdarray(a[0].copy(), device=device)
    fused = gi.fuse(lambda x, y: (x.sum(axis=0), x.sum(axis=0) * y, x + y))
    total = a.sum(axis=0)
    got = fused(x, y, out=(y, None, x))  # y is written before the others have read it
    assert got[0] is y
    assert got[2] is x
    for value, wanted in zip(got, (total, total * a[0], a + a[0]), strict=True):
        np.testing.assert_allclose(value.get(), wanted, rtol=1e-6)
    x, out = gi.CudaNdarray(a, device=device), gi.zeros(5, device=device)
    assert gi.fuse(lambda x: x.sum(axis=1) * 2)(x, out=(out,)) is out
    np.testing.assert_allclose(out.get(), a.sum(axis=1) * 2, rtol=1e-6)
    with pytest.raises(ShapeError, match="3 in all"):
        fused(x, y, out=(None, None))
    one_kernel = gi.fuse(lambda x, y: (x + y, x - y, x * y))
    with pytest.raises(ShapeError, match="3 in all"):
        one_kernel(x, y, out=(None, None))


def test_outs_that_share_memory_are_refused(device: str) -> None:
    x, z = gi.GpuArray(inputs(4, 4), device=device), gi.zeros((6, 4), device=device)
    row = z[0]
    two = gi.fuse(lambda x: (x.sum(axis=0), x.max(axis=0)))
    for function, outs in (
        (two, (row, row)),
        (two, (row, row[::-1])),
        (gi.fuse(lambda x: (x.sum(axis=0), x + 1)), (row, z[:4])),
        (gi.fuse(lambda x: (x + 1, x.sum(axis=1), x - 1)), (z[:4], None, z[2:])),
    ):
        with pytest.raises(BoundsError, match="do not overlap"):
            function(x, out=outs)
    assert not z.get().any()
    two(x, out=(z[0], z[1]))
    np.testing.assert_allclose(z.get()[:2], [x.get().sum(0), x.get().max(0)], rtol=1e-6)


def test_nothing_is_written_where_a_later_stage_refuses(device: str) -> None:
    x = gi.GpuArray(inputs(2, 3), device=device)
    total, fine = gi.full((), 7, device=device), gi.zeros((2, 3), device=device)
    frozen, elsewhere = gi.zeros((2, 3), device=device).copy(), gi.zeros((2, 3), device="cpu")
    frozen.readonly = True
    staged = gi.fuse(lambda x, y: (x.sum(), y * x.sum(), y.max(axis=1)))
    refused = [
        (x, (total, gi.zeros((3, 3), device=device), None), ShapeError),
        (x, (total, gi.zeros(3, device=device), None), ShapeError),
        (x, (total, gi.zeros((2, 3), "int32", device=device), None), gi.DTypeError),
        (x, (total, fine, gi.zeros(3, device=device)), ShapeError),
        (x, (total, fine, gi.zeros(2, "float64", device=device)), gi.DTypeError),
        (x, (total, None, gi.zeros(1, device=device).broadcast_to((2,))), ValueError),
        (x, (total, frozen, None), ValueError),
        (x, (total, fine, np.zeros(2, np.float32)), ArgumentTypeError),
        (gi.zeros((2, 0), device=device), (total, None, None), ShapeError),  # no maximum
        (gi.zeros((2, 3), "complex64", device=device), (total, fine, None), gi.DTypeError),
    ]
    if device != "cpu":
        refused += [
            (x, (total, elsewhere, None), ValueError),
            (elsewhere, (total, None, None), ValueError),
        ]
    for y, outs, error in refused * 2:
        with pytest.raises(error):
            staged(x, y, out=outs)
        assert (total.tolist(), fine.get().any()) == (7, False)
    for y in (x, x.get()):
        wide, most = gi.zeros((4, 2, 3), device=device), gi.zeros(2, device=device)
        staged(x, y, out=(total, wide, most))
        np.testing.assert_allclose(total.get(), x.get().sum(), rtol=1e-6)
        np.testing.assert_allclose(wide.get()[3], x.get() * x.get().sum(), rtol=1e-6)
        np.testing.assert_array_equal(most.get(), x.get().max(1))
        total[...] = 7


def test_operands_of_another_library_that_share_memory_with_an_out() -> None:
    host = np.array([1, 2, 3], "float32")
    shared, other = gi.asarray(host, device="cpu", copy=False), gi.zeros(3, device="cpu")
    gi.fuse(lambda x: (x.sum(), x * x.max()))(host, out=(shared[:1].reshape(()), other))
    assert other.tolist() == [3, 6, 9]
    assert host.tolist() == [6, 2, 3]


def test_operands_of_other_kinds(device: str) -> None:
    a = inputs(4, 6)
    x = gi.GpuArray(a, device=device)
    weights = gi.GpuArray(a[0].copy(), device=device)
    fused = gi.fuse(lambda x, y: (x * weights).sum(axis=1, keepdims=True) + y * weights)
    expected = (a * a[0]).sum(1, keepdims=True) + a * a[0]
    np.testing.assert_allclose(fused(x, a).get(), expected, rtol=1e-6)
    z = gi.GpuArray(a * np.complex64(1 + 2j), device=device)
    got = gi.fuse(lambda z: z - z.mean())(z)
    np.testing.assert_allclose(got.get(), z.get() - z.get().mean(), rtol=1e-4, atol=1e-6)
    number = gi.fuse(lambda x, by: x.sum() * by)
    np.testing.assert_allclose(float(number(x, np.float32(0.5))), a.sum() / 2, rtol=1e-6)


def test_fused_functions_call_one_another(device: str) -> None:
    x = gi.GpuArray(np.arange(1, 7, dtype=np.float32).reshape(2, 3), device=device)
    half = gi.fuse(lambda a, *, by=2: a / by)
    shares = gi.fuse(lambda a: a / half(a).sum(axis=0))
    outer = gi.fuse(lambda a: half(shares(a), by=a) + 1)
    for _ in range(2):  # the inner ones have been called alone in between
        expected = x.get() / (x.get() / 2).sum(axis=0) / x.get() + 1
        np.testing.assert_allclose(outer(x).get(), expected, rtol=1e-6)
        half(x), shares(x)


WARM = {
    **{name: function for name, function in PROGRAMS.items() if name != "integers"},
    "integers of a class": lambda x: (x > 1).sum(axis=0),
    "view": lambda x: x.sum(axis=1)[:, None] * x,
    "several": lambda x: (x.min(), x - x.max(), x.sum(axis=1)),
}


@pytest.mark.parametrize("name", WARM)
def test_a_warm_call_runs_no_python(device: str, name: str) -> None:
    function = WARM[name]
    for cls in (gi.GpuArray, gi.CudaNdarray):
        x, fused = cls(inputs(9, 33), device=device), gi.fuse(function)
        results = fused(x)
        outs = tuple(r.copy() for r in results) if isinstance(results, tuple) else results.copy()
        assert functions_of(lambda fused=fused, x=x: fused(x)) == []
        assert functions_of(lambda fused=fused, x=x, outs=outs: fused(x, out=outs)) == []


def test_a_warm_call_with_a_number_runs_no_python(device: str) -> None:
    x = gi.GpuArray(inputs(9, 33), device=device)
    fused = gi.fuse(lambda x, n: (x * n).sum(axis=0) - n)
    numbers = iter([2.5, 1.0, 4.0, -1.0])
    assert functions_of(lambda: fused(x, next(numbers))) == []
    np.testing.assert_allclose(fused(x, 3.0).get(), (x.get() * 3.0).sum(axis=0) - 3, rtol=1e-5)


def test_a_computed_number_of_another_type_has_other_steps(device: str) -> None:
    """2**-1 is a float, and 2**2 an int: an integer sum of the one must not serve the other."""
    x = gi.GpuArray(np.arange(12, dtype=np.int32).reshape(3, 4), device=device)
    fused = gi.fuse(lambda x, n, m: (x * n**m).sum(axis=1))
    for m in (2, -1, 2, -1, 0):
        expected = (x.get() * 2**m).sum(axis=1)
        got = fused(x, 2, m)
        assert got.dtype == expected.dtype or m >= 0
        np.testing.assert_array_equal(got.get(), expected)

"""The reducing methods and functions against NumPy, on every device there is."""

import ml_dtypes
import numpy as np
import pytest
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

from gpuinterop import CudaNdarray, DTypeError, GpuArray

NAMES = ["sum", "prod", "mean", "min", "max", "argmin", "argmax", "any", "all", "var", "std"]


def values(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(sum(shape) + len(shape))
    return (rng.standard_normal(shape) * 3).astype(dtype)


def close(got, expected, tolerance: float = 2e-6) -> None:
    got = np.asarray(got)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_follow_numpy(device: str, name: str, axis: int | None, keepdims: bool) -> None:
    host = values((5, 6, 7))
    x = CudaNdarray(host, device=device)
    expected = getattr(np, name)(host.astype(np.float64), axis=axis, keepdims=keepdims)
    got = getattr(x, name)(axis, keepdims=keepdims)
    assert str(got.device).startswith(device)
    close(got, expected)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float64"]
)
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "min", "max", "any"])
def test_gpuarray_results_have_numpy_dtypes(device: str, dtype: str, name: str) -> None:
    host = np.arange(24).reshape(4, 6).astype(dtype)
    got = getattr(GpuArray(host, device=device), name)(axis=1)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(host, axis=1)
        assert got.dtype == expected.dtype
        close(got, expected, 1e-3 if dtype == "float16" else 1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for the mean of nothing
@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "mean", "var"])
def test_empty_axes_give_the_identity_or_nan(device: str, name: str) -> None:
    for shape, axis in [((0,), None), ((3, 0), 1), ((0, 3), 0), ((3, 0), 0), ((0, 0), 1)]:
        x = CudaNdarray(np.zeros(shape, np.float32), device=device)
        close(getattr(x, name)(axis=axis), getattr(np, name)(np.zeros(shape), axis=axis))


@pytest.mark.parametrize("name", ["min", "max", "argmin", "argmax"])
def test_empty_axes_without_identity_refuse(device: str, name: str) -> None:
    x = CudaNdarray(np.zeros((3, 0), np.float32), device=device)
    with pytest.raises(ValueError, match="element"):
        getattr(x, name)(axis=1)
    assert getattr(x, name)(axis=0).shape == (0,)


def test_0d(device: str) -> None:
    x = CudaNdarray(np.float32(-3).reshape(()), device=device)
    assert float(x.sum()) == float(x.max(axis=0)) == float(x.mean(-1)) == -3
    assert float(x.norm()) == 3
    with pytest.raises(ValueError, match="no axis"):
        x.sum(axis=1)


def test_out(device: str) -> None:
    host = values((6, 8))
    x = CudaNdarray(host, device=device)
    store = CudaNdarray(np.full((8, 2), 7, np.float32), device=device)
    out = store[:, 0]
    assert x.sum(axis=0, out=out) is out
    close(store, np.stack([host.astype(np.float64).sum(0), np.full(8, 7)], 1))
    with pytest.raises(ValueError, match=r"\(8,\)"):
        x.sum(axis=0, out=store)
    with pytest.raises(TypeError, match="dtype"):
        x.argmax(axis=0, out=out)
    forwards = CudaNdarray(np.zeros((1, 8), np.float32), device=device)
    x.sum(axis=0, out=forwards[:, ::-1], keepdims=True)
    close(forwards, host.astype(np.float64).sum(0, keepdims=True)[:, ::-1])


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (2, 0), (1, 2), (-1, 0, 1), (1,)])
@pytest.mark.parametrize("view", ["plain", "turned", "backwards"])
def test_positions_over_several_axes(device: str, axes: tuple[int, ...], view: str) -> None:
    host = np.random.default_rng(7).permutation(np.arange(2 * 3 * 4.0)).reshape(2, 3, 4)
    see = {"plain": lambda x: x, "turned": lambda x: x.T, "backwards": lambda x: x[::-1, :, ::-2]}[
        view
    ]
    x, host = see(CudaNdarray(host.astype(np.float32), device=device)), see(host)
    # The place in C order among the elements over these axes.
    over = sorted(axis % 3 for axis in axes)
    last = np.moveaxis(host, over, range(3 - len(over), 3))
    rest = last.shape[: 3 - len(over)]
    shape = [1 if axis in over else n for axis, n in enumerate(host.shape)]
    for name in ("argmax", "argmin"):
        expected = getattr(last.reshape(*rest, -1), name)(axis=-1)
        np.testing.assert_array_equal(getattr(x, name)(axis=axes).get(), expected)
        got = getattr(x, name)(axis=axes, keepdims=True).get()
        np.testing.assert_array_equal(got, expected.reshape(shape), strict=True)


MASKS = [((4,), (1,)), ((4,), (0,)), ((4, 5), (1, 0)), ((4, 5), (0, 1)), ((4, 5), (1, 1)), ((4, 5), (0, 0)),
         ((2, 3, 4, 5), (1, 0, 1, 0)), ((2, 1, 3, 1, 4, 2), (0, 1, 1, 0, 0, 1)), ((0, 3), (1, 0)),
         ((0, 3), (0, 1)), ((), ())]  # fmt: skip


@pytest.mark.parametrize(("shape", "mask"), MASKS)
def test_reduce_sum_matches_theano(
    device: str, shape: tuple[int, ...], mask: tuple[int, ...]
) -> None:
    host = values(shape)
    x = CudaNdarray(host, device=device)
    axes = tuple(i for i, m in enumerate(mask) if m)
    result = x.reduce_sum(mask)
    assert type(result) is CudaNdarray
    close(result, host.astype(np.float64).sum(axis=axes) if axes else host)
    assert result.ptr != x.ptr or x.size == 0


def test_reduce_sum_of_a_broadcast_axis(device: str) -> None:
    # The ancestor misread a stride of 0 on an axis longer than 1.
    x = CudaNdarray(values((1, 4)), device=device).broadcast_to((3, 4))
    close(x.reduce_sum((1, 0)), 3 * values((1, 4))[0])


@pytest.mark.parametrize("order", [None, 1, 2, np.inf, -np.inf])
def test_norms(device: str, order: float | None) -> None:
    for host in (values((5, 7)), values((5, 7)) - 1j * values((5, 7))[::-1]):
        x = GpuArray(host, device=device)
        wide = host.astype(np.complex128)
        close(x.norm(order, axis=1), np.linalg.norm(wide, order, axis=1))
        assert x.norm(order, axis=1).dtype == np.float32
    big = CudaNdarray(np.full(4, 3e38, np.float32), device=device)
    assert np.isfinite(float(big[:1].norm(order)))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_float32_sums_are_better_than_pairwise(device: str, axis: int | None) -> None:
    # Pairwise summation of n terms loses up to log2(n) ulps of the sum of magnitudes; this does not grow.
    rng = np.random.default_rng(0)
    host = rng.standard_normal((512, 700)).astype(np.float32)
    x = CudaNdarray(host, device=device)
    exact = host.astype(np.float64).sum(axis=axis)
    magnitude = np.abs(host.astype(np.float64)).sum(axis=axis)
    error = np.abs(np.asarray(x.sum(axis=axis)) - exact)
    assert np.all(error <= 6e-8 * np.abs(exact) + 1.2e-7 * magnitude)


def test_same_bits_every_time(device: str) -> None:
    x = CudaNdarray(values((300, 500)), device=device)
    for axis in (None, 0, 1):
        first = np.asarray(x.sum(axis=axis)).tobytes()
        assert all(np.asarray(x.sum(axis=axis)).tobytes() == first for _ in range(5))


@st.composite
def strided(draw):
    """(host array, view): the same index applied to NumPy and to us."""
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=0, max_size=4)))
    order = draw(st.permutations(range(len(shape))))
    steps = tuple(slice(None, None, draw(st.sampled_from([1, 1, 2, -1, -2]))) for _ in shape)
    axes = draw(st.none() | st.sets(st.integers(0, max(len(shape) - 1, 0)), max_size=len(shape)))
    return shape, tuple(order), steps, None if axes is None or not shape else tuple(axes)


@pytest.mark.parametrize(("name", "rows"), [("sum", (2, 2051)), ("max", (2051, 2))])
def test_with_and_without_parts_to_join(device: str, name: str, rows: tuple[int, int]) -> None:
    """Two layouts whose kernels have one text, of which only one is launched twice."""
    for n in rows:
        host = values((n, 256), "float16")
        got = np.asarray(getattr(GpuArray(host, device=device), name)(axis=0))
        exact = getattr(np, name)(host.astype(np.float64), axis=0)
        np.testing.assert_allclose(got, exact, rtol=1e-3, atol=1e-3 * np.sqrt(n))


@examples(150)
@given(case=strided())
def test_any_view(device: str, case) -> None:
    shape, order, steps, axes = case
    host = values(shape)
    x = CudaNdarray(host, device=device)[steps].transpose(order)
    reference = host[steps].transpose(order).astype(np.float64)
    close(x.sum(axis=axes), reference.sum(axis=axes))
    if x.size:
        close(x.max(axis=axes), reference.max(axis=axes))
        close(x.var(axis=axes, ddof=-1), reference.var(axis=axes, ddof=-1))


@pytest.mark.parametrize("shape", [(140_003,), (20_000, 7)], ids=str)
def test_parts_are_joined(device: str, shape: tuple[int, ...]) -> None:
    host = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x, exact = CudaNdarray(host, device=device), host.astype(np.float64)
    np.testing.assert_allclose(x.sum(axis=0).get(), exact.sum(axis=0), rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(
        x.std(axis=0, ddof=1.5).get(), exact.std(axis=0, ddof=1.5), rtol=1e-6
    )
    host[4], host[[70, 9_000]] = np.nan, 99
    x.set(host)
    np.testing.assert_array_equal(x.argmax(axis=0).get(), np.argmax(host, axis=0))
    np.testing.assert_array_equal(x[5:].argmax(axis=0).get(), np.argmax(host[5:], axis=0))


def test_rounding_errors_of_partial_sums_are_kept(device: str) -> None:
    # The sum of eight values is exact in float32; sums of thousands lie beyond 2^24 and are rounded.
    values = np.repeat(np.float32([2**20 + 1, 2**20 + 1, -(2**21)]), 22_000)
    host = np.random.default_rng(2).permutation(values)
    for shape in ((66_000,), (66_000, 1), (300, 220), (20, 3300)):
        assert CudaNdarray(host.reshape(shape), device=device).sum().item() == 44_000, shape


def test_infinities_and_nans_survive_compensation(device: str) -> None:
    host = np.ones((6, 40), np.float32)
    host[0, 3], host[1, 3], host[3, 7] = np.inf, -np.inf, np.nan
    host[2, 3], host[2, 9] = np.inf, -np.inf
    host[4, :2] = 3e38
    with np.errstate(all="ignore"):
        for axis in (0, 1):
            found = CudaNdarray(host, device=device).sum(axis=axis)
            np.testing.assert_array_equal(found.get(), host.sum(axis=axis))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_integers_of_less_than_a_byte_are_reduced_on_the_host_only(device, dtype):
    host = np.asarray([[1, 0, 1], [0, 1, 1]]).astype(getattr(ml_dtypes, dtype))
    x, wide = GpuArray(host, device=device), host.astype("int64")
    if device != "cpu":
        with pytest.raises(DTypeError, match="cast first"):
            x.sum()
        return
    total = x.sum(axis=1)
    assert total.dtype == ("uint64" if dtype.startswith("u") else "int64")
    assert total.tolist() == wide.sum(axis=1).tolist()
    assert (x.max().item(), x.argmin().item()) == (wide.max(), wide.argmin())

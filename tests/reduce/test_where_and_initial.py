"""NumPy's where= and initial= of the reductions, as methods, functions and through NumPy's own."""

import numpy as np
import pytest

import gpuinterop as gi

SHAPE = (5, 6, 4)
# Each pair is a kernel of its own.
SELECTING = [
    *(
        (name, "float32")
        for name in ("sum", "prod", "mean", "min", "max", "any", "all", "var", "std")
    ),
    *((name, "int16") for name in ("mean", "min", "all")),
    *((name, "complex64") for name in ("prod", "max", "std")),
]


def values(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(4)
    return (rng.standard_normal(SHAPE) * 3 + 2).astype(dtype)


def mask(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    chosen = np.random.default_rng(5).random(shape) < 0.6
    chosen[..., 1] = False  # nothing is chosen along some axes
    return chosen


def close(got, expected, tolerance: float = 3e-6) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "dtype"), SELECTING)
def test_where_matches_numpy(device: str, name: str, dtype: str) -> None:
    host, chosen = values(dtype), mask()
    exact = host.astype({"f": np.float64, "i": np.int16, "c": np.complex128}[host.dtype.kind])
    more = {"initial": 7} if name in ("min", "max") else {}
    x, where = gi.GpuArray(host, device=device), gi.GpuArray(chosen, device=device)
    for axis, keepdims in ((1, False), ((0, 2), True)):
        expected = getattr(np, name)(exact, axis=axis, keepdims=keepdims, where=chosen, **more)
        got = getattr(x, name)(axis, keepdims=keepdims, where=where, **more)
        assert got.dtype == getattr(np, name)(host, axis=axis, where=chosen, **more).dtype
        close(got, expected, 3e-5 if name == "prod" else 3e-6)


def test_every_way_to_ask(device: str) -> None:
    host, chosen = values("float32"), mask()
    x, where = gi.CudaNdarray(host, device=device), gi.GpuArray(chosen, device=device)
    expected = np.sum(host, axis=0, where=chosen, initial=2, dtype=np.float64)
    out = gi.empty(SHAPE[1:], device=device)
    for got in (
        x.sum(0, where=where, initial=2),
        x.sum(0, None, None, False, 2, where),
        gi.sum(x, 0, where=where, initial=np.float64(2)),
        np.sum(x, axis=0, where=where, initial=2),
        np.sum(x, axis=0, where=chosen, initial=gi.GpuArray(np.float32(2), device=device)),
        np.add.reduce(x, where=where, initial=2),
        x.sum(0, out=out, where=where, initial=2),
    ):
        assert type(got) is gi.CudaNdarray
        close(got, expected)
    assert got is out
    close(x.sum(where=False), 0)
    close(x.sum(where=True, initial=None), host.sum(dtype=np.float64))
    close(x[:, ::-1].mean(1, where=chosen[0, :, :1]), host[:, ::-1].mean(1, where=chosen[0, :, :1]))


def test_initial_values(device: str) -> None:
    host = values("int16")
    x = gi.GpuArray(host, device=device)
    for name in ("sum", "prod", "min", "max"):
        got, expected = (getattr(np, name)(v, axis=0, initial=3) for v in (x, host))
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got.get(), expected)
    np.testing.assert_array_equal(x[:0].min(0, initial=5).get(), host[:0].min(0, initial=5))
    np.testing.assert_array_equal(x[:0].max(initial=-5, keepdims=True).get(), [[[-5]]])
    assert x.sum(dtype="int32", where=host > 2).dtype == np.int32
    chosen, positive = mask(), host > 0
    for name, start in (("min", True), ("max", False), ("any", None), ("all", None)):
        more = {} if start is None else {"initial": start}
        got = getattr(gi.GpuArray(positive, device=device), name)(1, where=chosen, **more)
        expected = getattr(np, name)(positive, axis=1, where=chosen, **more)
        np.testing.assert_array_equal(got.get(), expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_initial_values_are_joined_before_results_are_rounded(device: str, dtype: str) -> None:
    """NumPy starts from the value, so a zero stays zero, and a sum that fits does not overflow before it."""
    large = {"float16": 6e4, "float64": 1e200}.get(dtype, 3e38)
    host = np.array([[large, -large, large, large / 4], [large, np.inf, 3, 4], [large] * 4], dtype)
    wide = host.astype("clongdouble" if host.dtype.kind == "c" else "longdouble")
    x = gi.GpuArray(np.repeat(host, 50, 1), device=device)[:, ::50]
    chosen = np.array([[True], [False], [True]])
    for axis, where in ((1, True), (None, chosen), (1, chosen)):
        for name, start in (("prod", 0), ("prod", -0.0), ("sum", -large), ("min", 5), ("max", 5)):
            expected = getattr(np, name)(wide, axis=axis, initial=start, where=where)
            more = {} if where is True else {"where": chosen}
            first = gi.GpuArray(np.array(start, dtype), device=device)
            for given in (start, first):
                got = getattr(x, name)(axis, initial=given, **more)
                assert got.dtype == host.dtype
                close(got.get() / large, expected.astype(dtype) / large)
    out = gi.empty((3, 2), dtype, device=device)[:, 1]
    assert x.prod(1, initial=0, out=out) is out
    np.testing.assert_array_equal(out.get(), host.prod(1, initial=0))
    if device == "cpu":  # NumPy multiplies in this order
        tiny = gi.GpuArray(np.full(5, 1e70 if dtype == "float64" else 100, dtype), device=device)
        start = 1e-300 if dtype == "float64" else 1e-4
        np.testing.assert_allclose(
            tiny.prod(initial=start).get(), tiny.get().prod(initial=start), 1e-2
        )


def test_small_floats_do_not_overflow(device: str) -> None:
    host = np.full(4, 49152, np.float16)
    chosen = np.array([True, True, False, True])
    got = gi.GpuArray(host, device=device).mean(where=chosen)
    assert (got.dtype, float(got)) == (np.float16, 49152.0)


def test_invalid_where_or_initial_is_refused(device: str) -> None:
    host = values("float32")
    x = gi.CudaNdarray(host, device=device)
    for expected, call in [
        (gi.ShapeError, lambda: x.min(where=host > 0)),
        (gi.ShapeError, lambda: x.sum(where=np.ones(3, bool))),
        (gi.ShapeError, lambda: x.sum(where=np.ones((2, *SHAPE), bool))),
        (gi.DTypeError, lambda: x.sum(where=np.ones(SHAPE))),
        (gi.DTypeError, lambda: x.sum(initial=1j)),
        (
            gi.DTypeError,
            lambda: gi.GpuArray(host.astype("int8"), device=device).sum(initial=np.inf),
        ),
        (gi.DTypeError, lambda: x.sum(dtype="float64", initial=1)),
        (gi.DTypeError, lambda: x.mean(dtype="int32", where=host > 0)),
        (gi.ShapeError, lambda: x.sum(0, where=host > 0, out=gi.empty(3, device=device))),
        (gi.DTypeError, lambda: x.sum(where=None)),
        (gi.DTypeError, lambda: gi.all(x, where=None)),
        (gi.DTypeError, lambda: np.sum(x, where=None)),
        (gi.DTypeError, lambda: np.max(x, where=None, initial=0)),
        (gi.DTypeError, lambda: np.add.reduce(x, where=None)),
        (TypeError, lambda: x.sum(initial="1")),
        (TypeError, lambda: x.sum(initial=x)),
        (TypeError, lambda: x.argmax(where=host > 0)),
        (TypeError, lambda: x.mean(initial=1)),
        (TypeError, lambda: x.mean(None, None, None, False, True)),
        (TypeError, lambda: np.any(x, initial=True)),
    ]:
        with pytest.raises(expected, match="expected"):
            call()

"""Reductions on "cpu": NumPy's results for every dtype, layout and axis, in the promised accuracy."""

import itertools
import math

import numpy as np
import pytest
from doubles import driver
from helpers.layouts import values, views

import gpuinterop as gi

DTYPES = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64",
          "complex64", "complex128"]  # fmt: skip
NAMES = ["sum", "prod", "mean", "min", "max", "any", "all", "var", "std"]


def filled_views(host):
    return [
        view for view in (*views(host), np.broadcast_to(host[0, 0, :1], (3, 2, 4))) if view.size
    ]


def reference(name, host, axis, **options):
    """NumPy's reduction, with accumulators of 64 bits for smaller floats."""
    dtype = host.dtype
    if name in ("sum", "prod", "mean", "var", "std") and dtype.kind in "fc":
        options["dtype"] = "complex128" if dtype.kind == "c" else "float64"
    with np.errstate(all="ignore"):
        found = np.asarray(getattr(np, name)(host, axis=axis, **options))
        if name in ("sum", "prod", "mean") and dtype.kind in "fc":
            found = found.astype(dtype)
    if name in ("var", "std") and dtype.kind in "fc":
        found = found.real.astype(np.zeros(1, dtype).real.dtype)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_layout_and_axis(name, dtype):
    host = values(dtype, (4, 6, 20))
    for view in filled_views(host):
        x = gi.asarray(view, device="cpu", copy=False) if view.flags.writeable else None
        x = gi.GpuArray(view, device="cpu") if x is None else x
        axes = [
            c for n in range(view.ndim + 1) for c in itertools.combinations(range(view.ndim), n)
        ]
        for axis in [None, *axes]:
            for keepdims in (False, True):
                expected = reference(name, view, axis, keepdims=keepdims)
                found = getattr(x, name)(axis, keepdims=keepdims).get()
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                if expected.dtype.kind in "fc":
                    eps = np.finfo(expected.dtype).eps
                    np.testing.assert_allclose(found, expected, rtol=400 * eps, atol=20 * eps)
                else:
                    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16", "float8_e5m2", "int4"])
def test_positions_of_every_dtype_layout_and_axis(name, dtype):
    host = values("float32", (4, 6, 300)).astype(gi.GpuArray(0, dtype, "cpu").get().dtype)
    host[1, 2, 70] = host[3, 5, 299] = np.nan if "float" in dtype or "complex" in dtype else 3
    for view in [*filled_views(host), host[:1], host[0].T, host[2:, ::-1].transpose(2, 1, 0)]:
        x = gi.asarray(view, device="cpu")
        for n in range(1, view.ndim + 1):
            for axes in itertools.combinations(range(view.ndim), n):
                last = np.moveaxis(view, axes, range(-n, 0))
                expected = getattr(last.reshape(*last.shape[:-n], -1), name)(-1)
                np.testing.assert_array_equal(getattr(x, name)(axes).get(), expected)
                out = gi.zeros(expected.shape, "int64", device="cpu")[..., None][..., ::-1]
                getattr(x, name)(axes, out=out[..., 0])
                np.testing.assert_array_equal(out[..., 0].get(), expected)
        assert getattr(x, name)().tolist() == getattr(view, name)()


def test_positions_where_numpy_has_another_abi():
    program = """
        import ctypes, numpy as np
        version = ctypes.CFUNCTYPE(ctypes.c_uint)(lambda: 0x03000000)
        table = (ctypes.c_void_p * 1)(ctypes.cast(version, ctypes.c_void_p).value)
        make = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3)(
            ("PyCapsule_New", ctypes.pythonapi)
        )
        np._core._multiarray_umath._ARRAY_API = make(ctypes.addressof(table), None, None)
        import gpuinterop as gi
        x = gi.arange(7, device="cpu")
        for name in ("argmin", "argmax"):
            try:
                getattr(x, name)()
            except gi.UnsupportedError as error:
                print("numpy<3" in str(error))
    """
    assert driver.run(program).split() == ["True", "True"]


@pytest.mark.parametrize(
    "shape", [(1, 5000), (5000, 1), (3, 5000), (5000, 3), (700, 40), (40, 2100), (2, 600, 3)]
)
def test_lines_of_every_length(shape):
    host = values("float32", shape)
    for order in itertools.permutations(range(len(shape))):
        view = host.transpose(order)
        x = gi.from_any(host).transpose(*order)
        for n in range(len(shape) + 1):
            for axis in itertools.combinations(range(len(shape)), n):
                for name in ("sum", "max", "var"):
                    found = getattr(x, name)(axis).get()
                    expected = reference(name, view, axis)
                    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_sums_keep_their_rounding_errors():
    rng = np.random.default_rng(0)
    for host in (
        np.full(1 << 22, 0.1, "float32"),
        rng.normal(size=1 << 20).astype("float32") * 1e6,
    ):
        x, square = gi.from_any(host), gi.from_any(host.reshape(1024, -1))
        assert float(x.sum()) == np.float32(math.fsum(host.tolist()))
        for axis, columns in ((0, square.get().T), (1, square.get())):
            expected = [np.float32(math.fsum(column.tolist())) for column in columns]
            np.testing.assert_array_equal(square.sum(axis=axis).get(), expected)
    thousand = gi.GpuArray(np.full(1000, 60000, "float16"), device="cpu")
    assert float(thousand.mean()) == 60000  # though the sum is beyond float16


def test_empty_axes():
    for view in (gi.zeros((5, 0, 4), device="cpu"), gi.zeros((4, 0, 5), device="cpu").T):
        assert view.sum(axis=(1, 2)).tolist() == [0] * 5
        assert view.sum(axis=1).shape == (5, 4)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1,), (3,), (2000,), (3, 1), (3, 4), (1, 40), (300, 40)])
def test_sums_of_negative_zeros_have_numpys_sign(device, dtype, shape):
    host = -np.zeros(shape, dtype)
    x = gi.GpuArray(host, device=device)
    for name in ("sum", "mean"):
        for axis in (None, 0, -1):
            found = getattr(x, name)(axis).get()
            wanted = np.asarray(getattr(host, name)(axis))
            for part in ("real", "imag"):
                a, b = getattr(found, part), getattr(wanted, part)
                np.testing.assert_array_equal(np.signbit(a), np.signbit(b), f"{name} {axis}")


def test_nan_wins_and_infinities_stay():
    host = np.array([1, np.nan, -np.inf, np.inf], "float32")
    x = gi.GpuArray(host, device="cpu")
    assert all(np.isnan(getattr(x, name)().get()) for name in ("min", "max", "sum"))
    assert float(x[2:].max()) == np.inf
    assert float(x[2:3].max()) == -np.inf
    assert np.isnan(x[2:].sum().get())
    assert float(x[3:].sum()) == np.inf


def test_a_dtype_is_that_of_the_sum():
    host = values("uint8", (30, 40))
    x = gi.GpuArray(host, device="cpu")
    for dtype in ("float32", "float64", "int16", "complex64"):
        for _ in range(2):
            found = x.sum(axis=1, dtype=dtype).get()
            np.testing.assert_array_equal(found, host.sum(axis=1, dtype=dtype), strict=True)
    y = gi.GpuArray(values("float64", 100), device="cpu")
    np.testing.assert_allclose(y.var(dtype="float32").get(), np.var(y.get()), rtol=1e-6)


def test_fused_reductions_of_many_blocks():
    host = [values("float32", (300, 70), seed) for seed in range(2)]
    x, y = map(gi.from_any, host)
    for axis in (None, 0, 1):
        fused = gi.fuse(lambda x, y, axis=axis: (gi.exp(x) * y).sum(axis))
        expected = (np.exp(host[0]) * host[1]).sum(axis, dtype="float64")
        np.testing.assert_allclose(fused(x, y).get(), expected, rtol=1e-6, atol=1e-4)
        expected = (np.exp(host[0][::-1]) * host[1][:1]).max(axis)
        fused = gi.fuse(lambda x, y, axis=axis: (gi.exp(x) * y).max(axis))
        np.testing.assert_allclose(fused(x[::-1], y[:1]).get(), expected, rtol=1e-6)

"""Fourier transforms against NumPy in float64, on both devices."""

import numpy as np
import pytest
from doubles import internals
from helpers.numbers import numbers

import gpuinterop as gi

DTYPES = ["float32", "float64", "complex64", "complex128"]
NAMES = "fft ifft rfft irfft hfft ihfft".split()
SEVERAL = "fft2 ifft2 fftn ifftn rfft2 irfft2 rfftn irfftn".split()
REAL = ("rfft", "ihfft")  # of real numbers only


def same(name, a, device, *args, **options):
    """Call both functions and compare."""
    if name.startswith(REAL) and a.dtype.kind == "c":
        a = a.real
    single = a.dtype in (np.float32, np.complex64)
    expected = getattr(np.fft, name)(
        a.astype(np.result_type(a.dtype, np.float64)), *args, **options
    )
    x = gi.asarray(a, device=device)
    before = np.array(x)
    for f in (gi.fft, np.fft):
        found = getattr(f, name)(x, *args, **options)
        assert isinstance(found, (gi.GpuArray, gi.CudaNdarray))
        wide = {"f": "float64", "c": "complex128"}[found.dtype.kind]
        assert found.dtype == (
            expected.dtype
            if not single
            else np.dtype(wide.replace("64", "32").replace("128", "64"))
        )
        assert expected.dtype == wide
        assert found.shape == expected.shape
        scale = max(1.0, np.abs(expected).max(initial=0))
        np.testing.assert_allclose(
            np.asarray(found), expected, rtol=0, atol=(1e-5 if single else 1e-12) * scale
        )
    np.testing.assert_array_equal(np.array(x), before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(8,), (1,), (2,), (7,), (3, 16), (5, 1, 9), (0, 4)])
def test_one_axis(device, dtype, name, shape):
    if name in ("irfft", "hfft") and shape[-1] < 2:
        with pytest.raises(ValueError, match="point"):
            getattr(gi.fft, name)(gi.asarray(numbers(shape, dtype), device=device))
        return
    same(name, numbers(shape, dtype), device)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1, -2, 2])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_axes_and_norms(device, name, axis, norm):
    same(name, numbers((4, 5, 6), "complex128"), device, axis=axis, norm=norm)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
def test_other_numbers_of_points(device, name, n):
    same(name, numbers((3, 8), "complex64"), device, n)
    same(name, numbers((3, 8), "complex64"), device, n, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_several_axes(device, dtype, name, shape):
    same(name, numbers(shape, dtype), device)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (-1,), (0, 2), (2, 0, 1)])
def test_chosen_axes(device, name, axes):
    a = numbers((4, 3, 6), "complex128")
    same(name, a, device, axes=axes, norm="ortho")
    same(name, a, device, s=(5, 2, 4)[: len(axes)], axes=axes)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_five_axes(device, name):
    same(name, numbers((2, 3, 4, 2, 5), "complex128"), device)


VIEWS = {
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "sliced": lambda x: x[1::2, ::3],
    "columns": lambda x: x[:, :1],
    "row": lambda x: x[0],
}


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fft2", "irfft2"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("axis", [0, -1])
def test_layouts_of_operands(device, name, view, axis):
    a = numbers((8, 12), "float64" if name == "rfft" else "complex128")
    x, y = VIEWS[view](gi.asarray(a, device=device)), VIEWS[view](a)
    if name.endswith("2"):
        if y.ndim < 2:
            y, x = y[None], x[None]
        axis = (0, -1) if axis == 0 else (-1, 0)
    if name.startswith("irfft") and y.shape[axis if isinstance(axis, int) else axis[-1]] < 2:
        with pytest.raises(ValueError, match="point"):
            getattr(gi.fft, name)(x, None, axis)
        return
    found = getattr(gi.fft, name)(x, None, axis)
    np.testing.assert_allclose(
        np.asarray(found), getattr(np.fft, name)(y, None, axis), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["rfft", "ihfft", "rfft2", "rfftn"])
def test_real_operands_at_odd_addresses(device, dtype, name):
    z = numbers((5, 8), dtype)
    x = gi.asarray(z, device=device)
    flat, real = gi.asarray(z.real.copy(), device=device).ravel(), z.real.ravel()
    rows = (slice(1, 33), (4, 8))
    for operand, a in (
        (x.imag, z.imag),
        (flat[rows[0]].reshape(rows[1]), real[rows[0]].reshape(rows[1])),
    ):
        before = np.array(operand)
        found = getattr(gi.fft, name)(operand)
        expected = getattr(np.fft, name)(a.astype("float64"))
        np.testing.assert_allclose(
            np.asarray(found), expected, rtol=0, atol=1e-4 if dtype == "complex64" else 1e-12
        )
        np.testing.assert_array_equal(np.array(operand), before)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2"])
def test_whole_axes_by_minus_one(device, name):
    same(name, numbers((4, 6), "complex128"), device, (3, -1), (0, 1))
    same(name, numbers((4, 6), "complex128"), device, (-1, 5), (0, 1))


def test_prime_and_long_transforms(device):
    for n in (10007, 1 << 16):
        same("fft", numbers((n,), "complex128"), device)
        same("rfft", numbers((n,), "float32"), device)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint16"])
def test_integers_count_as_float64(device, dtype):
    a = np.array([1, 0, 1, 1], dtype)
    for name in ("fft", "rfft", "irfft"):
        same(name, a, device)


def test_out(device):
    a = numbers((3, 4), "complex128")
    x = gi.asarray(a, device=device)
    out = gi.empty((3, 4), dtype="complex128", device=device)
    assert gi.fft.fft(x, out=out) is out
    assert gi.fft.fft(x, None, -1, None, out) is out
    np.testing.assert_allclose(np.asarray(out), np.fft.fft(a), atol=1e-12)
    with pytest.raises(ValueError, match="expected"):
        gi.fft.fft(x, out=out[:2])


@pytest.mark.parametrize("axes", [None, 0, (1,), (0, 1)])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(device, name, axes):
    a = np.arange(15).reshape(3, 5)
    for f in (gi.fft, np.fft):
        found = getattr(f, name)(gi.asarray(a, device=device), axes)
        np.testing.assert_array_equal(np.asarray(found), getattr(np.fft, name)(a, axes))


@pytest.mark.parametrize("dtype", ["float16", "int8", "complex64"])
def test_shifts_of_any_dtype(device, dtype):
    a = np.arange(15).reshape(5, 3).astype(dtype)
    found = gi.fft.fftshift(gi.asarray(a, a.dtype, device=device), 0)
    np.testing.assert_array_equal(found.get(), np.fft.fftshift(a, 0), strict=True)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_no_elements_give_zeros_on_the_host(name, shape):
    found = getattr(gi.fft, name)(gi.zeros(shape, device="cpu"), 4).get()
    like = getattr(np.fft, name)(np.zeros((*shape[:-1], 4), "float32"), 4)
    np.testing.assert_array_equal(found, np.zeros_like(like), strict=True)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(device, name):
    found = getattr(gi.fft, name)(7, 0.5, device=device)
    assert found.device == gi.device(device)
    np.testing.assert_array_equal(np.asarray(found), getattr(np.fft, name)(7, 0.5))


@pytest.mark.parametrize("namespace", [gi.fft, gi.array_api.fft])
@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize(
    ("n", "d", "error"), [(0, 1.0, ValueError), (4, 0, ValueError), (1.5, 1.0, ValueError), (4, "a", TypeError)]
)  # fmt: skip
def test_frequencies_of_wrong_arguments_are_refused(namespace, name, n, d, error):
    with pytest.raises(
        gi.GpuInteropError, match=f"fft.{name}: expected .*\n  got: n={n}, d={d!r}"
    ) as caught:
        getattr(namespace, name)(n, d=d)
    assert isinstance(caught.value, error)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: gi.fft.fft(x, 0),
        lambda x: gi.fft.fft(x, -1),
        lambda x: gi.fft.irfft(x, -1),
        lambda x: gi.fft.hfft(x, -3),
        lambda x: gi.fft.fftn(x, (2, -2), (0, 1)),
        lambda x: gi.fft.irfft2(x, (0, 2)),
        lambda x: gi.fft.fft(x, axis=2),
        lambda x: gi.fft.fft(x, norm="half"),
        lambda x: gi.fft.fft2(x[0]),
        lambda x: gi.fft.fftn(x, (2, 2), (0,)),
        lambda x: gi.fft.fft(x[:, :0]),
        lambda x: gi.fft.rfft(x.astype("complex64")),
    ],
)
def test_wrong_arguments(device, call):
    with pytest.raises((ValueError, TypeError), match="expected"):
        call(gi.ones((3, 3), device=device))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, x: f.fft(x, -1), "fft.fft: expected one point or more along each axis"),
        (lambda f, x: f.fft(x[:, :0]), "got: 0 points"),
        (lambda f, x: f.fft(x, 2.5), r"fft.fft: expected an int or a sequence of ints as lengths"),
        (lambda f, x: f.rfft(x, axis=2), "fft.rfft: .*\n  got: axis 2"),
        (lambda f, x: f.ifft(x, norm="half"), "expected norm='backward', 'forward' or 'ortho'"),
        (lambda f, x: f.fft2(x[0]), r"fft.fft2: .*\n  got: axis -2"),
        (lambda f, x: f.fftn(x, (2, 2), (0,)), r"got: s=\(2, 2\), axes=\(0,\)"),
        (lambda f, x: f.fftshift(x, 2), "fft.fftshift: .*\n  got: axis 2"),
    ],
)
def test_errors_have_the_same_words_on_both_devices(device, call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(gi.fft, gi.ones((3, 3), device=device))


def test_unknown_dtypes_are_refused(device):
    with pytest.raises(gi.DTypeError):
        gi.fft.fft(gi.zeros(4, dtype="float16", device=device))


@pytest.mark.driver
def test_capture():
    a = numbers((3, 16), "complex64")
    x = gi.asarray(a, device="cuda")
    gi.fft.fft(x)  # cuFFT prepares a transform on its first use
    with gi.capture() as captured:
        y = gi.fft.fft(x)
    x[...] = 2 * a
    captured.replay()
    np.testing.assert_allclose(np.asarray(y), np.fft.fft(2 * a), atol=1e-4)


@pytest.mark.driver
def test_a_capture_keeps_the_plans_that_it_uses():
    a = numbers((6, 32), "complex64")
    x = gi.asarray(a, device="cuda")
    gi.fft.fft(x)
    with gi.capture() as inner:
        y = gi.fft.fft(x)
    with gi.capture() as outer:
        inner.replay()
    del inner
    internals.forget_calls()
    x[...] = 3 * a
    outer.replay()
    np.testing.assert_allclose(np.asarray(y), np.fft.fft(3 * a), atol=1e-3)


def test_a_capture_on_the_host_refuses_transforms():
    x = gi.asarray(numbers(8, "complex64"), device="cpu")
    with pytest.raises(gi.CaptureError), gi.capture(device="cpu"):
        gi.fft.fft(x)


@pytest.mark.driver
def test_an_axis_is_transformed_once():
    x = gi.ones((3, 3), device="cuda")
    with pytest.raises(ValueError, match="different axes"):
        gi.fft.fftn(x, axes=(0, 0))

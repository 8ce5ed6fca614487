"""x.real, x.imag, x.view(dtype) and x.flat against NumPy's, on both devices."""

import numpy as np
import pytest
from helpers.layouts import pair, recipes, shapes
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

LAYOUTS = {
    "C": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "steps": lambda x: x[::2, 1::2],
    "column": lambda x: x[:, 1],
    "0-d": lambda x: x[1, 2],
    "empty": lambda x: x[:0],
}


def both(device, dtype="complex64", shape=(4, 6)):
    n = (np.arange(np.prod(shape)) * (1 + 2j)).reshape(shape)
    n = n.astype(dtype) if np.dtype(dtype).kind == "c" else n.real.astype(dtype)
    return n, gi.GpuArray(n, device=device)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_are_views_that_can_be_set(device, dtype, layout):
    n, x = (LAYOUTS[layout](a) for a in both(device, dtype))
    for name in ("real", "imag"):
        part = getattr(x, name)
        expected = getattr(np.asarray(n), name)
        assert (part.shape, part.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(part.get(), expected)
        if part.size:
            assert part.strides == expected.strides
            assert gi.shares_memory(part, x)
        if n.ndim:
            setattr(x, name, 7)
            setattr(n, name, 7)
            part += 1
            expected += 1
            np.testing.assert_array_equal(x.get(), n)
    np.testing.assert_array_equal(np.real(x).get(), n.real)
    np.testing.assert_array_equal(np.imag(x).get(), n.imag)


def test_parts_of_real_numbers(device):
    x = gi.CudaNdarray([[1, 2]], device)
    assert x.real is x
    assert x.imag.tolist() == [[0, 0]]
    assert x.imag.readonly
    x.real = 5
    assert x.tolist() == [[5, 5]]
    with pytest.raises(gi.ArgumentTypeError):
        x.imag = 1


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "int32", "float64", "complex128"])
@pytest.mark.parametrize("source", ["float32", "float64", "uint8"])
def test_views_of_bytes_match_numpy(device, source, dtype):
    n, x = both(device, source, (4, 48))
    for take in (lambda a: a, lambda a: a[::-1], lambda a: a[1:3, :32], lambda a: a[:0]):
        expected, got = take(n).view(dtype), take(x).view(dtype)
        assert (got.shape, got.dtype, got.size and got.strides) == (
            expected.shape, expected.dtype, expected.size and expected.strides,
        )  # fmt: skip
        np.testing.assert_array_equal(got.get().view("u1"), expected.copy().view("u1"))
    view = x.view(dtype)
    view[...] = 0
    assert not x.get().any()


def test_views_keep_classes(device):
    x = gi.CudaNdarray([1, 2], device)
    assert type(x.view()) is type(x.view("float32")) is gi.CudaNdarray
    assert type(x.view("int32")) is gi.GpuArray
    assert x.view("int32").tolist() == np.float32([1, 2]).view("int32").tolist()
    assert x.view("int32").base is x


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[0, 0].view("int8"),
        lambda x: x.T.view("int8"),
        lambda x: x[:, :3].view("float64"),
        lambda x: x[:, ::2].view("float64"),
        lambda x: x[:, 1:3].view("float64"),  # not aligned
        lambda x: gi.zeros((3, 3), device=x.device)[:, :2].view("float64"),  # rows of 12 bytes
    ],
)
def test_views_that_do_not_fit_raise(device, call):
    with pytest.raises((gi.ShapeError, gi.ContiguityError)):
        call(gi.zeros((4, 6), device=device))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flat_reads_and_writes_in_c_order(device, layout):
    n, x = (LAYOUTS[layout](a) for a in both(device, "float64"))
    if not isinstance(n, np.ndarray):
        n = np.asarray(n)
    assert len(x.flat) == n.size
    assert [v.item() for v in x.flat] == list(n.flat)
    assert x.flat.base is not None
    keys = [slice(None), slice(1, None, 2), slice(None, None, -1), [0, -1] if n.size > 1 else []]
    for key in keys:
        np.testing.assert_array_equal(x.flat[key].get(), n.flat[key])
    if n.ndim and n.size:
        for key, value in ((0, 5), (-1, 6), (slice(1, 3), [7, 8]), (slice(None, None, 3), [1, 2])):
            x.flat[key] = value
            n.flat[key] = value
            np.testing.assert_array_equal(x.get(), n)
        x.flat = [1, 2, 3]
        n.flat = [1, 2, 3]
        np.testing.assert_array_equal(x.get(), n)
        copied = x.flat[:2]
        copied[...] = 100
        np.testing.assert_array_equal(x.get(), n)
    np.testing.assert_array_equal(x.flat.copy().get(), n.flat.copy())


def test_flat_errors(device):
    x = gi.zeros((2, 2), device=device)
    with pytest.raises(IndexError):
        x.flat[4]
    with pytest.raises(IndexError):
        x.flat[4] = 1
    for values in ([1, 2], []):
        with pytest.raises(gi.ShapeError, match="one number"):
            x.flat[0] = values
    iterator = x.flat
    assert iterator.index == 0
    next(iterator)
    assert iterator.index == 1
    with pytest.raises(gi.ReadOnlyError):
        x[0].broadcast_to(3, 2).flat[0] = 1


NAMES = ["bool", "int8", "uint16", "int32", "float16", "float64", "complex64", "complex128"]


@given(shapes(300).flatmap(recipes), st.sampled_from(NAMES), st.sampled_from(NAMES), st.data())
@examples(300)
def test_any_view(device, recipe, dtype, other, data):
    _, host, _, x = pair(recipe, dtype, 0, device)
    for name in ("real", "imag"):
        np.testing.assert_array_equal(getattr(x, name).get(), getattr(host, name), strict=True)
    start, stop, step = (data.draw(st.integers(-9, 9)) for _ in range(3))
    key = slice(start, stop, step or None)
    np.testing.assert_array_equal(x.flat[key].get(), host.flat[key], strict=True)
    if x.ptr % np.dtype(other).itemsize:  # NumPy's views may be misaligned
        return
    try:
        expected = host.view(other)
    except ValueError:
        with pytest.raises(ValueError, match="view: expected"):
            x.view(other)
    else:
        assert gi.shares_memory(x.view(other), x) or not x.size
        np.testing.assert_array_equal(x.view(other).get(), expected, strict=True)

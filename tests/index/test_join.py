"""Joining, splitting, filling: against NumPy."""

import numpy as np
import pytest
from helpers.products import values

import gpuinterop
from gpuinterop import CudaNdarray, DTypeError, GpuArray


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joins_of_any_layout_and_number(device: str, axis: int, dtype: str) -> None:
    host = np.arange(2 * 3 * 4).astype(dtype).reshape(2, 3, 4)
    x, short = GpuArray(host, device=device), (slice(None),) * axis + (slice(1, 2),)
    views = [
        lambda a: a,
        lambda a: a[::-1],
        lambda a: a[..., ::-1],
        lambda a: a[short],
        lambda a: a[:, :0] if axis == 1 else a,
    ]
    for chosen in (views, views[:2], views[:1] * 9, [views[3], views[0]], [views[3]] * 2):
        expected = np.concatenate([view(host) for view in chosen], axis)
        found = gpuinterop.concatenate([view(x) for view in chosen], axis)
        np.testing.assert_array_equal(found.get(), expected, strict=True)
    for chosen in (views[:3], [views[3]] * 8):
        expected = np.stack([view(host) for view in chosen], axis)
        found = gpuinterop.stack([view(x) for view in chosen], axis)
        np.testing.assert_array_equal(found.get(), expected, strict=True)
    large = np.resize(host, (300, 900, 2) if axis < 2 else (300, 2, 900))
    y = GpuArray(large, device=device)
    for shift in (1, -7, 0, 901):
        np.testing.assert_array_equal(np.roll(y, shift, axis).get(), np.roll(large, shift, axis))
        np.testing.assert_array_equal(np.roll(x, shift, axis).get(), np.roll(host, shift, axis))
        np.testing.assert_array_equal(np.roll(x, shift).get(), np.roll(host, shift))


def test_concatenate_with_empty_and_out(device: str) -> None:
    a = CudaNdarray(values(0, 2), device=device)
    b = CudaNdarray(values(3, 2), device=device)
    out = CudaNdarray(np.zeros((3, 2), np.float32), device=device)
    assert gpuinterop.concatenate([a, b], out=out) is out
    np.testing.assert_array_equal(np.asarray(out), values(3, 2))
    assert (
        type(gpuinterop.concatenate([b, b[::-1]])) is type(gpuinterop.stack([b, b])) is CudaNdarray
    )
    flat = gpuinterop.concatenate([b[::-1], out], None)
    np.testing.assert_array_equal(flat.get(), np.concatenate([b.get()[::-1], out.get()], None))
    assert gpuinterop.join(0, a, a).shape == (0, 2)


def test_refusals(device: str) -> None:
    x = CudaNdarray(values(2, 3), device=device)
    for join in (gpuinterop.concatenate, gpuinterop.stack):
        for wrong in ([], [x, x[0]], [x, x[:1, :2]]):
            with pytest.raises(gpuinterop.ShapeError):
                join(wrong)
        with pytest.raises(gpuinterop.ArgumentTypeError):
            join(3)
    for call in (lambda: gpuinterop.concatenate([x.sum()]), lambda: gpuinterop.concatenate([x], 2),
                 lambda: gpuinterop.stack([x], 3),
                 lambda: gpuinterop.split(x, 2, axis=1), lambda: gpuinterop.split(x, 0)):  # fmt: skip
        with pytest.raises(gpuinterop.ShapeError) as caught:
            call()
        assert caught.value.where in ("concatenate", "stack", "split")
    for sections in ("ab", 1.5, None, [0.5]):
        with pytest.raises(gpuinterop.ArgumentTypeError, match="parts"):
            gpuinterop.split(x, sections)


JOINS = {
    "concatenate": gpuinterop.concatenate,
    "stack": gpuinterop.stack,
    "join": lambda parts: gpuinterop.join(0, *parts),
    "numpy.append": lambda parts: np.append(*parts, axis=0),
    **{
        f"numpy.{name}": getattr(np, name)
        for name in ("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack")
    },
}


@pytest.mark.parametrize("name", JOINS)
def test_beside_a_cudandarray_every_result_is_float32(device: str, name: str) -> None:
    x = CudaNdarray(values(2, 3), device=device)
    for dtype in ("float64", "int64", "complex64"):
        y = np.ones((2, 3), dtype)
        for parts in ([x, GpuArray(y, device=device)], [y, x]):
            with pytest.raises(DTypeError, match="is a CudaNdarray") as caught:
                JOINS[name](parts)
            assert caught.value.where == name
    small = JOINS[name]([GpuArray(np.ones((2, 3), "int16"), device=device), x])
    assert (type(small), small.dtype) == (CudaNdarray, np.float32)


def test_split_gives_views(device: str) -> None:
    host = values(6, 4)
    x = CudaNdarray(host, device=device)
    for sections, axis in [(3, 0), (1, 0), ([1, 4], 0), ([2, 2, 9], 1), (2, -1)]:
        parts = gpuinterop.split(x, sections, axis)
        for part, expected in zip(parts, np.split(host, sections, axis), strict=True):
            np.testing.assert_array_equal(np.asarray(part), expected)
            assert part.size == 0 or part.base is x


def test_parts_that_share_memory_with_out(device: str) -> None:
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    x = GpuArray(rows, device=device)
    gpuinterop.concatenate([x[1:], x[:1]], out=x)
    np.testing.assert_array_equal(x.get(), np.roll(rows, -1, axis=0))
    gpuinterop.stack([x[3], x[2], x[1], x[0]], out=x)
    np.testing.assert_array_equal(x.get(), np.roll(rows, -1, axis=0)[::-1])

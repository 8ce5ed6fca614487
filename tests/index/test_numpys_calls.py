"""Views, joins, shifts and triangles by NumPy's names: its values, and no Python of the package in a warm call."""

import numpy as np
import pytest
from helpers.profile import PACKAGE, functions_of

import gpuinterop as gi

VIEWS = [
    lambda m, x, y: m.reshape(x, (2, -1)),
    lambda m, x, y: m.reshape(x, 24),
    lambda m, x, y: m.ravel(x),
    lambda m, x, y: m.moveaxis(x, 0, -1),
    lambda m, x, y: m.moveaxis(x, (0, 2), (1, 0)),
    lambda m, x, y: m.rollaxis(x, 2),
    lambda m, x, y: m.rollaxis(x, 0, 3),
    lambda m, x, y: m.rollaxis(x, -1, -2),
    lambda m, x, y: m.expand_dims(x, 1),
    lambda m, x, y: m.expand_dims(x, (0, -1)),
    lambda m, x, y: m.split(x, 2),
    lambda m, x, y: m.split(x, [1, 3, -1], 2),
    lambda m, x, y: m.array_split(x, 3, axis=2),
    lambda m, x, y: m.vsplit(x, 2),
    lambda m, x, y: m.hsplit(x, [2]),
    lambda m, x, y: m.hsplit(x[0, 0], 2),
    lambda m, x, y: m.dsplit(x, 4),
    lambda m, x, y: m.unstack(x, axis=1),
    lambda m, x, y: m.unstack(x[0, 0]),
    lambda m, x, y: m.broadcast_arrays(x, x[0], x[0, 0, 0]),
]
COPIES = [
    lambda m, x, y: m.vstack([x[0, 0], y[0, 0]]),
    lambda m, x, y: m.vstack((x, y)),
    lambda m, x, y: m.hstack([x[0, 0], y[0, 0, ::-1]]),
    lambda m, x, y: m.hstack([x, y]),
    lambda m, x, y: m.hstack([x[0, 0, 0], y[0, 0, 0]]),
    lambda m, x, y: m.dstack([x[0, 0], y[0, 0]]),
    lambda m, x, y: m.dstack([x[0, 0, 0], y[0, 0, 0]]),
    lambda m, x, y: m.dstack([x[0], y[0]]),
    lambda m, x, y: m.dstack([x, y]),
    lambda m, x, y: m.column_stack([x[0, 0], y[0, 0]]),
    lambda m, x, y: m.column_stack([x[0, 0, 0], y[0, 0, 0]]),
    lambda m, x, y: m.column_stack([x[0], y[0]]),
    lambda m, x, y: m.stack([x, y], 2),
    lambda m, x, y: m.concat([x, y], axis=1),
    lambda m, x, y: m.append(x, y),
    lambda m, x, y: m.append(x, y, 1),
    lambda m, x, y: m.roll(x, 5),
    lambda m, x, y: m.roll(x, (1, -2), axis=(0, 2)),
    lambda m, x, y: m.roll(x, (1, 1, 1), (0, 1, 1)),
    lambda m, x, y: m.roll(x, 1, (1, 2)),
    lambda m, x, y: m.roll(x, 0, 1),
    lambda m, x, y: m.fft.fftshift(x),
    lambda m, x, y: m.fft.fftshift(x[:, :, :3], 2),
    lambda m, x, y: m.fft.ifftshift(x[:, :, :3]),
    lambda m, x, y: m.tril(x),
    lambda m, x, y: m.triu(x, -1),
    lambda m, x, y: m.triu(x[0].T, 1),
    lambda m, x, y: m.tril(x[1, ::2, ::-1], 2),
    lambda m, x, y: m.tril(x, 9),
    lambda m, x, y: m.triu(x, 9),
]


@pytest.mark.parametrize("cls", [gi.CudaNdarray, gi.GpuArray])
@pytest.mark.parametrize("call", [*VIEWS, *COPIES])
def test_numpys_values_without_python(device: str, cls: type, call) -> None:
    host = np.arange(24, dtype="float32").reshape(2, 3, 4) + 1
    x, y = cls(host, device=device), cls(-host, device=device)
    found, expected = call(gi, x, y), call(np, host, -host)
    several = isinstance(expected, (list, tuple))
    assert not several or type(found) is type(expected)
    for own, one in zip(*([found], [expected]) if not several else (found, expected), strict=True):
        assert type(own) is cls
        np.testing.assert_array_equal(own.get(), one, strict=True)
        assert call in COPIES or not own.size or gi.shares_memory(own, x)
    if device != "cpu" or call in VIEWS:
        assert functions_of(lambda: call(gi, x, y), PACKAGE) == []


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64", "complex128"])
def test_triangles_of_any_dtype(device: str, dtype: str) -> None:
    host = np.arange(1, 36).reshape(5, 7).astype(dtype)
    x = gi.GpuArray(host, device=device)
    for k in range(-6, 9):
        np.testing.assert_array_equal(gi.tril(x, k).get(), np.tril(host, k), strict=True)
        np.testing.assert_array_equal(gi.triu(x.T, k).get(), np.triu(host.T, k), strict=True)


def test_broadcast_views_are_read_only(device: str) -> None:
    x = gi.ones((2, 3), device=device)
    same, row = gi.broadcast_arrays(x, x[0])
    same[...] = 2
    assert x.tolist() == [[2, 2, 2], [2, 2, 2]]
    with pytest.raises(ValueError, match=r"read-only|readonly"):
        row[...] = 3


def test_the_namespace_takes_the_same_way(device: str) -> None:
    x = gi.array([[1, 2], [3, 4]], device=device)
    calls = {
        "reshape": lambda m: m.reshape(x, (4,)),
        "sum": lambda m: m.sum(x, axis=0),
        "concat": lambda m: m.concat([x, x]),
        "exp": lambda m: m.exp(x),
        "add": lambda m: m.add(x, 1),
    }
    for call in calls.values():
        found = call(gi.array_api)
        assert type(found) is gi.GpuArray
        np.testing.assert_array_equal(found.get(), np.asarray(call(gi)))
        assert functions_of(lambda call=call: call(gi.array_api), PACKAGE) == []


MODES = ("constant", "edge", "wrap", "reflect", "symmetric")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (1, 3), (0, 3)])
def test_borders_of_any_width(device: str, shape: tuple[int, ...], mode: str) -> None:
    host = np.arange(np.prod(shape), dtype="float32").reshape(shape) + 1
    x, uneven = gi.asarray(host, device=device), [(i, 2 - i) for i in range(3)][: len(shape)]
    for widths in (0, 1, 2, 3, 7, [(1, 2)], uneven, np.array(2)):
        try:
            expected = np.pad(host, widths, mode)
        except ValueError:  # of an axis without elements
            continue
        found = gi.pad(x, widths, mode)
        assert type(found) is type(x)
        np.testing.assert_array_equal(found.get(), expected, strict=True)
    y = gi.GpuArray(host, "int64", device=device)
    for value in (3, 2.5, 0.0, (1, 2), [(3, 4)] * len(shape), np.float64(7)):
        expected = np.pad(host.astype("int64"), 2, constant_values=value)
        np.testing.assert_array_equal(gi.pad(y, 2, constant_values=value).get(), expected)

"""take: its modes, indices in every form, captures, out."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import ArrayIndexError

INDICES = {
    "int8": [-128, -1, 0, 5, 127],
    "uint8": [0, 3, 255],
    "int32": [[7, -8], [2**31 - 1, -(2**31)]],
    "int64": [2**62, -(2**63), 4],
    "uint64": [2**64 - 1, 2],
}


def expected(host: np.ndarray, index: np.ndarray, axis: int | None, mode: str) -> np.ndarray:
    """By Python's integers, which no dtype rounds or wraps."""
    extent = host.size if axis is None else host.shape[axis]
    places = [
        min(max(i, 0), extent - 1) if mode == "clip" else i % extent for i in index.ravel().tolist()
    ]
    return host.take(np.array(places).reshape(index.shape), axis=axis)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("dtype", INDICES)
def test_indices_in_an_array(device, dtype, mode):
    index = np.array(INDICES[dtype], dtype)
    for shape in ((6,), (5, 300)):  # 300 is beyond int8
        host = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        x, i = gi.CudaNdarray(host, device=device), gi.GpuArray(index, device=device)
        for axis in (None, -1, 0):
            wanted = expected(host, index, axis, mode)
            for given in (i, index, gi.GpuArray(index[..., ::-1].copy(), device=device)[..., ::-1]):
                got = x.take(given, axis=axis, mode=mode)
                assert type(got) is gi.CudaNdarray
                np.testing.assert_array_equal(got.get(), wanted)
        gi.put(x, i, -1, mode=mode)
        places = expected(np.arange(x.size), index, None, mode)
        np.testing.assert_array_equal(np.flatnonzero(x.get().ravel() == -1), np.unique(places))


@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
def test_one_index_leaves_the_axis_out(device, mode):
    host = np.arange(24, dtype="f4").reshape(4, 6)
    x = gi.CudaNdarray(host, device=device)
    for index in (2, np.int8(2), np.array(2), gi.GpuArray(np.array(2), device=device)):
        for axis in (None, 0, 1):
            got = gi.take(x, index, axis=axis, mode=mode)
            np.testing.assert_array_equal(got.get(), host.take(2, axis=axis), strict=True)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_a_capture_reads_the_indices_at_each_replay(device, mode):
    host = np.arange(24, dtype="f4").reshape(4, 6)
    x, i = gi.CudaNdarray(host, device=device), gi.GpuArray(np.zeros(3, "i4"), device=device)
    graph = gi.capture(lambda a, b: a.take(b, axis=1, mode=mode), x, i)
    for values in ([1, 2, 3], [-1, 6, 40], [5, 0, -7]):
        got = graph(x, gi.GpuArray(np.array(values, "i4"), device=device))
        np.testing.assert_array_equal(got.get(), expected(host, np.array(values), 1, mode))
    x.fill(7)
    assert graph().tolist() == [[7] * 3] * 4


def test_an_empty_axis_has_nothing_to_take(device):
    x = gi.zeros((2, 0), device=device)
    none, one = (gi.GpuArray(np.zeros(n, "i8"), device=device) for n in (0, 1))
    for mode in ("raise", "clip", "wrap"):
        for index in ([0], one):
            with pytest.raises(ArrayIndexError, match="empty") as error:
                x.take(index, axis=1, mode=mode)
            assert "mode=" not in error.value.fix
        for index in ([], none):
            assert x.take(index, axis=1, mode=mode).shape == (2, 0)
    with pytest.raises(gi.ArgumentTypeError):
        x.take([0], axis="a")
    for index in (one.astype("float32"), one.astype("bool")):
        with pytest.raises(TypeError, match="integer indices"):
            x.take(index, mode="clip")


def test_fifth_argument_of_theano_is_accepted(device):
    x = gi.CudaNdarray([1, 2, 3], device=device)
    assert x.take([2, 0], 0, None, "raise", 4).tolist() == [3, 1]
    assert x.take([2, 0], max_threads=4).tolist() == gi.take(x, [2, 0], max_threads=1).tolist()
    with pytest.raises(TypeError):
        x.take([0], 0, None, "raise", 1, 2)

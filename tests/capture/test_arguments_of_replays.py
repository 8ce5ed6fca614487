"""Arguments of a replay: copied into the captured arrays once, all of them or none."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import CudaNdarray


def ones(device: str) -> CudaNdarray:
    return CudaNdarray(np.ones((2, 3), np.float32), device=device)


WRONG = {
    "float64": lambda device: np.ones((2, 3)),
    "its own float64": lambda device: gi.GpuArray(np.ones((2, 3)), device=device),
    "a number too large": lambda device: [[1e39] * 3] * 2,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_refused_argument_leaves_the_others_as_they_were(device, name):
    x, y = ones(device), ones(device)
    graph = gi.capture(lambda a, b: a + b, x, y)
    for arguments in ((x * 2, WRONG[name](device)), (WRONG[name](device), x * 2)):
        with pytest.raises(gi.DTypeError, match=r"^Capture: expected an argument that fits"):
            graph(*arguments)
        assert x.tolist() == y.tolist() == ones(device).tolist()


def test_a_read_only_input_leaves_the_others_as_they_were(device):
    x, y = ones(device), ones(device)
    graph = gi.capture(lambda a, b: a + b, x, y)
    y.flags.writeable = False
    with pytest.raises(gi.ReadOnlyError):
        graph(x * 2, x * 3)
    assert x.tolist() == ones(device).tolist()


def test_each_host_array_is_copied_once(device):
    host = np.full((2, 3), 2, np.float32)
    graph = gi.capture(lambda a, b: a + b, ones(device), ones(device))
    with gi.count_copies() as count:
        result = graph(host, host)
    assert count.count == 2
    assert result.tolist() == (host + host).tolist()


def test_other_dtypes_that_fit_are_cast(device):
    inputs = [ones(device).astype("float64") for _ in range(2)]
    graph = gi.capture(lambda a, b: a - b, *inputs)
    small = np.arange(6, dtype=np.int8).reshape(2, 3)
    assert graph(small, small[::-1, ::-1].tolist()).tolist() == (small - small[::-1, ::-1]).tolist()


def test_what_has_no_shape_is_refused_in_words(device):
    x = CudaNdarray(np.arange(3, dtype="float32"), device=device)
    graph = gi.capture(lambda a: a + 1, x)
    for given in ([[1], [2, 3]], type("Shapeless", (), {"shape": None})()):
        with pytest.raises(gi.ShapeError, match="which has none") as error:
            graph(given)
        assert "(3,)" in error.value.expected
    assert graph([1, 2, 3]).tolist() == [2, 3, 4]


def test_another_array_inside_of_a_list_is_refused_with_what_helps(device):
    x, y = (CudaNdarray(np.full(2, n, "float32"), device=device) for n in (1, 2))
    graph = gi.capture(lambda listed: listed[0] * 2, [x], device=device)
    assert graph([x]).tolist() == [2, 2]
    with pytest.raises(gi.CaptureError, match="arguments of their own"):
        graph([y])
    assert gi.capture(lambda *listed: listed[0] * 2, x)(y).tolist() == [4, 4]

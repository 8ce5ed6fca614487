"""Arguments of a replay: which are accepted, and that all of them are copied once, or none."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import CaptureError, CudaNdarray


def array(values, device: str) -> CudaNdarray:
    return CudaNdarray(np.asarray(values, np.float32), device=device)


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
        with pytest.raises(gi.DTypeError, match=r"^Capture: "):
            graph(*arguments)
        assert x.tolist() == y.tolist() == ones(device).tolist()


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


def test_an_array_inside_of_a_list_is_refused(device):
    x = ones(device)
    with pytest.raises(gi.ArgumentTypeError, match="hashable constants"):
        gi.capture(lambda listed: listed[0] * 2, [x], device=device)


def test_arguments_that_changed_places(device: str) -> None:
    x, y = array([1, 2], device), array([10, 20], device)
    graph = gi.capture(lambda a, b: a - b, x, y)
    assert graph(y, x).tolist() == [9, 18]
    assert (x.tolist(), y.tolist()) == ([10, 20], [1, 2])


def test_arguments_of_another_library_that_changed_places() -> None:
    host = np.arange(6, dtype="float32")
    x = gi.asarray(host, copy=False)
    graph = gi.capture(lambda a, b: a * 10 + b, x[:3], x[3:])
    assert graph(host[3:], host[:3]).tolist() == [30, 41, 52]


def test_inputs_that_share_memory_take_no_other_arguments(device: str) -> None:
    x, p, q = (array(values, device) for values in ([1, 2, 3], [10, 20, 30], [3, 4, 5]))
    graph = gi.capture(lambda a, b: a - b, x, x)
    assert graph().tolist() == graph(x, x).tolist() == graph(p, p).tolist() == [0, 0, 0]
    with pytest.raises(CaptureError, match=r"share memory[\s\S]*x\.copy\(\)"):
        graph(p, q)
    shifted = gi.capture(lambda a, b: a - b, x[:-1], x[1:])
    assert shifted().tolist() == [-10, -10]
    with pytest.raises(CaptureError, match="share memory"):
        shifted(p[:2], q[:2])
    apart = gi.capture(lambda a, b: a - b, x[:1], x[1:2])
    assert apart(p[:1], q[:1]).tolist() == [7]


def test_fixed_arguments_are_distinguished(device: str) -> None:
    x = array([1, 2], device)
    graph = gi.capture(lambda a, s: a + s, x, float("nan"))
    assert np.isnan(graph(x, float("nan")).tolist()).all()
    for own, other in (
        (0.0, -0.0), (1, True), (1, 1.0), ((1, (0.0,)), (1, (-0.0,))),
        ((1,), (1.0,)), ((1,), (1, 2)),
    ):  # fmt: skip
        graph = gi.capture(lambda a, s: a + 1, x, own)
        assert graph(x, own).tolist() == [2, 3]
        with pytest.raises(CaptureError, match="fixed"):
            graph(x, other)


class Celsius(float):
    def __repr__(self):
        return f"{self:.0f} C"


def test_a_short_repr_does_not_make_values_equal(device):
    graph = gi.capture(lambda a, s: a + s, array([1, 2], device), Celsius(20.4))
    with pytest.raises(CaptureError, match="fixed") as refused:
        graph(graph.inputs[0], Celsius(19.6))
    assert "20.4" in refused.value.expected
    assert "19.6" in refused.value.got


def test_arrays_of_other_libraries_are_not_arguments(device: str) -> None:
    x, foreign = array([1, 2], device), np.ones(2, np.float32)
    for arguments in ((foreign,), (x, foreign), (x, np.ones(()))):
        with pytest.raises(TypeError, match=r"numpy.ndarray\n  fix: .*gpuinterop.asarray"):
            gi.capture(lambda *a: a[0] + 1, *arguments, device=device)
    assert gi.capture(lambda a, s: a + s, x, np.float32(2))().tolist() == [3, 4]


# The recorded function, its arguments, those of the replay, the error and its words.
UNFIT = {
    "a list without a shape": (lambda a: a + 1, ([1, 2],), ([[1], [2, 3]],), gi.ShapeError, r"of shape \(2,\)"),
    "an object without a shape": (
        lambda a: a + 1, ([1, 2],), (type("Shapeless", (), {"shape": None})(),), gi.ShapeError, r"of shape \(2,\)"),
    "a number": (lambda a: a + 1, ([1, 2],), (3.0,), ValueError, "as captured"),
    "too few": (lambda a, n: a * n, ([1, 2], 2), ([1, 2],), TypeError, "2 arguments"),
    "too many": (lambda a: a + 1, ([1, 2],), ([1, 2], 2), TypeError, "1 argument,"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_arguments_that_do_not_fit_are_refused(device, name):
    function, recorded, given, error, words = UNFIT[name]
    graph = gi.capture(function, array(recorded[0], device), *recorded[1:])
    with pytest.raises(error, match=words):
        graph(*given)
    assert (
        graph([5, 6], *recorded[1:]).tolist()
        == function(array([5, 6], device), *recorded[1:]).tolist()
    )


def test_keywords_and_arguments_without_a_function_are_refused(device):
    x = array([1, 2], device)
    for call in (
        lambda: gi.capture(lambda a, k: a * k, x, k=2),
        lambda: gi.capture(lambda a: a, x)(a=x),
    ):
        with pytest.raises(TypeError, match="keyword"):
            call()

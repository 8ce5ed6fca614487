"""Recording, replaying, keeping alive, and failing with a reason: on every device there is."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import gpuinterop
from gpuinterop import CudaNdarray
from gpuinterop.errors import CaptureError, DTypeError


def array(values, device: str) -> CudaNdarray:
    return CudaNdarray(np.asarray(values, np.float32), device=device)


def step(x, w):
    """A few launches with temporaries, a reduction, and an update in place."""
    y = gpuinterop.exp(x * w) - 1
    total = (y * y).sum(axis=0)
    w += 0.5 * total
    return y, total


def test_replay_equals_eager_bit_for_bit(device: str) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((40, 30)) * 0.1, rng.standard_normal(30) * 0.1
    eager_x, eager_w = array(x, device), array(w, device)
    graph_x, graph_w = array(x, device), array(w, device)
    graph = gpuinterop.capture(step, graph_x, graph_w)
    for _ in range(4):
        y, total = step(eager_x, eager_w)
        graph_y, graph_total = graph()
        assert np.asarray(graph_y).tobytes() == np.asarray(y).tobytes()
        assert np.asarray(graph_total).tobytes() == np.asarray(total).tobytes()
        assert np.asarray(graph_w).tobytes() == np.asarray(eager_w).tobytes()


def test_nothing_runs_while_recording(device: str) -> None:
    x = array([1, 2, 3], device)
    with gpuinterop.capture(device=device) as graph:
        x += 1
        x[1:] = 7
    assert x.tolist() == [1, 2, 3]
    graph.replay()
    assert x.tolist() == [2, 7, 7]
    graph.replay()
    assert x.tolist() == [3, 7, 7]
    assert graph.nodes >= 2


def test_inputs_are_read_at_each_replay(device: str) -> None:
    x = array([1, 2], device)
    double = gpuinterop.capture(lambda a: a + a, x)
    assert double().tolist() == [2, 4]
    x[...] = 5
    assert double().tolist() == [10, 10]
    assert double(array([1, 0], device)).tolist() == [2, 0]
    assert x.tolist() == [1, 0]  # the captured buffer is the input
    assert double(np.float32([4, 4])).tolist() == [8, 8]


def test_casts_on_the_way_are_part_of_the_sequence(device: str) -> None:
    x = array([1, 2, 3], device)
    z, one = (gpuinterop.zeros(3, "float64", device=device) for _ in range(2))
    with gpuinterop.capture(device=device) as graph:
        y = x + x
        z[...] = y
        one.fill(y[0])
        made = gpuinterop.asarray(y, "float64"), gpuinterop.GpuArray(y, "float64")
        full = gpuinterop.full(3, y[0], "float64", device=device)
    for values in ([1, 2, 3], [5, 6, 7]):
        x[...] = array(values, device)
        graph.replay()
        twice = [2.0 * v for v in values]
        assert [a.tolist() for a in (z, *made)] == [twice] * 3
        assert [a.tolist() for a in (one, full)] == [[twice[0]] * 3] * 2


def test_results_keep_their_place(device: str) -> None:
    x = array([1, 2], device)
    double = gpuinterop.capture(lambda a: a + a, x)
    first, second = double(), double()
    assert first is second
    assert first.ptr == second.ptr


def test_buffers_live_with_the_graph(device: str) -> None:
    x = array(np.ones(1000), device)
    with gpuinterop.capture(device=device) as graph:
        y = x * 3
        z = y + 1
    del x, y
    gc.collect()
    filler = [array(np.zeros(1000), device) for _ in range(8)]
    graph.replay()
    assert float(z[0]) == 4
    assert all(float(f[0]) == 0 for f in filler)
    del graph
    gc.collect()
    assert float(z[-1]) == 4  # results outlive the graph


def test_temporaries_share_memory_inside_a_graph(device: str) -> None:
    x = array(np.ones(256), device)
    with gpuinterop.capture(device=device) as graph:
        y = x
        for _ in range(20):
            y = y + 1
    graph.replay()
    assert float(y[3]) == 21


def test_reading_values_inside_is_refused(device: str) -> None:
    x = array([1, 2], device)
    graph = gpuinterop.capture(device=device)
    with pytest.raises(CaptureError, match="fix: "), graph:
        y = x + 1
        float(y.sum())
    assert (x + 1).tolist() == [2, 3]  # the thread computes again


def test_an_error_inside_leaves_nothing_behind(device: str) -> None:
    x = array([1, 2], device)
    with pytest.raises(ZeroDivisionError), gpuinterop.capture(device=device):
        x += 1
        raise ZeroDivisionError
    x += 1
    assert x.tolist() == [2, 3]


def test_replay_needs_a_finished_capture(device: str) -> None:
    graph = gpuinterop.capture(device=device)
    with pytest.raises(CaptureError, match="finished capture"):
        graph.replay()
    with graph:
        pass
    graph.replay()
    with pytest.raises(CaptureError, match="has not begun"), graph:
        pass


def test_captures_do_not_nest(device: str) -> None:
    with (
        gpuinterop.capture(device=device),
        pytest.raises(CaptureError, match="capture inside a capture"),
        gpuinterop.capture(device=device),
    ):
        pass


def test_other_threads_are_not_recorded(device: str) -> None:
    x, other = array([1, 2], device), array([1, 2], device)

    def elsewhere() -> None:
        nonlocal other
        other = other + 1

    with gpuinterop.capture(device=device) as graph:
        x += 1
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert other.tolist() == [2, 3]
    graph.replay()
    assert other.tolist() == [2, 3]


def test_arguments_that_do_not_fit_are_refused(device: str) -> None:
    double = gpuinterop.capture(lambda a, n: a * n, array([1, 2], device), 2)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        double(array([1, 2, 3], device), 2)
    with pytest.raises(TypeError, match="2 arguments"):
        double(array([1, 2], device))
    with pytest.raises(CaptureError, match="fixed"):
        double(array([1, 2], device), 3)


def test_products_and_joins(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 6)), rng.standard_normal((6, 3))
    x, y = array(a, device), array(b, device)
    with gpuinterop.capture(device=device) as graph:
        joined = gpuinterop.concatenate([x @ y, gpuinterop.stack([x[:, 0], x[:, 1], x[:, 2]], 1)])
    graph.replay()
    np.testing.assert_allclose(
        np.asarray(joined), np.concatenate([a @ b, a[:, :3]]), rtol=1e-5, atol=1e-5
    )


def test_take_reads_at_each_replay() -> None:
    x = gpuinterop.asarray(np.arange(5, dtype="float32"), device="cpu")
    graph = gpuinterop.capture(lambda a: a.take([1, 3]), x)
    x[...] = 7
    assert graph.nodes == 1
    assert graph().tolist() == [7.0, 7.0]


def test_take_and_kernels_keep_what_they_use(device: str) -> None:
    x = array(np.arange(600), device)
    out = array(np.zeros(3), device)
    with gpuinterop.capture(device=device) as graph:
        x.take([1, 598, 2], out=out)
        more = x.take([[5], [7]])
    del x
    gc.collect()
    filler = [array(np.full(600, -1), device) for _ in range(8)]
    indices = [
        array(np.full((3, 2), 7), device) for _ in range(8)
    ]  # of the size of the uploaded ones
    graph.replay()
    graph.replay()
    assert out.tolist() == [1, 598, 2]
    assert more.tolist() == [[5], [7]]
    assert all(float(f[0]) == -1 for f in filler)
    assert all(float(i[0, 0]) == 7 for i in indices)


@pytest.mark.gpu
def test_kernels_of_ones_own_keep_what_they_use() -> None:
    text = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    twice = gpuinterop.RawKernel(text, "twice")
    x, y = array(np.arange(256), "cuda:0"), array(np.zeros(256), "cuda:0")
    twice((1,), (256,), x, y)
    with gpuinterop.capture(device="cuda:0") as graph:
        twice((1,), (256,), x, y)
    del x
    gc.collect()
    filler = [array(np.full(256, -1), "cuda:0") for _ in range(8)]
    y.fill(0)
    graph.replay()
    assert y.tolist() == [2.0 * i for i in range(256)]
    assert len(filler) == 8


def test_wrong_arguments_are_told(device: str) -> None:
    with pytest.raises(TypeError, match="capture: expected a function"):
        gpuinterop.capture(3)
    with pytest.raises(TypeError, match="before its arguments"):
        gpuinterop.capture(None, array([1], device))
    graph = gpuinterop.capture(lambda a: a + 1, array([1, 2], device))
    assert graph([5, 6]).tolist() == [6, 7]
    with pytest.raises(ValueError, match="as captured"):
        graph(3.0)
    with pytest.raises(TypeError, match="1 arguments"):
        graph(1, 2)


def test_arguments_that_changed_places(device: str) -> None:
    x, y = array([1, 2], device), array([10, 20], device)
    graph = gpuinterop.capture(lambda a, b: a - b, x, y)
    assert graph(y, x).tolist() == [9, 18]
    assert (x.tolist(), y.tolist()) == ([10, 20], [1, 2])


def test_arguments_of_another_library_that_changed_places() -> None:
    host = np.arange(6, dtype="float32")
    x = gpuinterop.asarray(host, copy=False)
    graph = gpuinterop.capture(lambda a, b: a * 10 + b, x[:3], x[3:])
    assert graph(host[3:], host[:3]).tolist() == [30, 41, 52]


def test_inputs_that_share_memory_take_no_other_arguments(device: str) -> None:
    x, p, q = (array(values, device) for values in ([1, 2, 3], [10, 20, 30], [3, 4, 5]))
    graph = gpuinterop.capture(lambda a, b: a - b, x, x)
    assert graph().tolist() == graph(x, x).tolist() == graph(p, p).tolist() == [0, 0, 0]
    with pytest.raises(CaptureError, match=r"share memory[\s\S]*x\.copy\(\)"):
        graph(p, q)
    shifted = gpuinterop.capture(lambda a, b: a - b, x[:-1], x[1:])
    assert shifted().tolist() == [-10, -10]
    with pytest.raises(CaptureError, match="share memory"):
        shifted(p[:2], q[:2])
    apart = gpuinterop.capture(lambda a, b: a - b, x[:1], x[1:2])
    assert apart(p[:1], q[:1]).tolist() == [7]


def test_fixed_arguments_are_told_apart(device: str) -> None:
    x = array([1, 2], device)
    graph = gpuinterop.capture(lambda a, s: a + s, x, float("nan"))
    assert np.isnan(graph(x, float("nan")).tolist()).all()
    for own, other in (
        (0.0, -0.0), (1, True), (1, 1.0), ([np.ones(2)], [np.ones(2)]), ((1, [0.0]), (1, [-0.0])),
        ((1,), (1.0,)), ((1,), (1, 2)),
    ):  # fmt: skip
        graph = gpuinterop.capture(lambda a, s: a + 1, x, own)
        assert graph(x, own).tolist() == [2, 3]
        with pytest.raises(CaptureError, match="fixed in the recorded operations"):
            graph(x, other)


def test_a_replay_inside_a_capture_is_part_of_it(device: str) -> None:
    x = array([1, 1, 1], device)
    inner = gpuinterop.capture(lambda a: a + 1, x)
    outer = gpuinterop.capture(lambda a: inner(a) * 2, x)
    made = inner.outputs
    assert outer().tolist() == [4, 4, 4]
    x.fill(10)
    assert outer().tolist() == [22, 22, 22]
    x.fill(0)
    assert made.tolist() == [11, 11, 11]  # computed when it is replayed, and only then
    # On a GPU, memory that another stream used before may bring a node that waits for it.
    assert outer.nodes == 2 if device == "cpu" else outer.nodes >= 2
    inner = made = None
    gc.collect()
    filler = [array(np.full(3, -1), device) for _ in range(8)]
    x.fill(3)
    assert outer().tolist() == [8, 8, 8]  # it needs the inner one no more
    assert all(f.tolist() == [-1, -1, -1] for f in filler)


def test_a_replay_inside_copies_its_arguments_at_each_replay(device: str) -> None:
    x, y = array([0, 0], device), array([1, 2], device)
    with gpuinterop.capture(device=device) as inner:
        x += 1
    inner.inputs = (x,)
    with gpuinterop.capture(device=device) as outer:
        inner(y)
        inner.replay()
    assert x.tolist() == [0, 0]
    outer.replay()
    assert x.tolist() == [3, 4]
    y.fill(7)
    outer.replay()
    assert x.tolist() == [9, 9]


def test_arrays_of_other_libraries_are_no_arguments(device: str) -> None:
    x, foreign = array([1, 2], device), np.ones(2, np.float32)
    for arguments in ((foreign,), (x, foreign), (x, np.ones(()))):
        with pytest.raises(TypeError, match=r"numpy.ndarray\n  fix: .*gpuinterop.asarray"):
            gpuinterop.capture(lambda *a: a[0] + 1, *arguments, device=device)
    assert gpuinterop.capture(lambda a, s: a + s, x, np.float32(2))().tolist() == [3, 4]


@pytest.mark.torch
def test_tensors_are_no_arguments() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"torch.Tensor\n  fix: .*gpuinterop.asarray"):
        gpuinterop.capture(lambda q: q + 1, torch.ones(2))


def test_keywords_are_answered(device: str) -> None:
    x = array([1, 2], device)
    with pytest.raises(TypeError, match=r"got: k=\n  fix: .*lambda x: function\(x, k=...\)"):
        gpuinterop.capture(lambda a, k: a * k, x, k=2)
    graph = gpuinterop.capture(lambda a: a + 1, x)
    with pytest.raises(TypeError, match="Capture: expected arguments by position"):
        graph(a=x)


def test_an_argument_of_another_dtype_names_the_capture(device: str) -> None:
    graph = gpuinterop.capture(lambda a: a + 1, array([1, 2], device))
    with pytest.raises(
        DTypeError, match=r"^Capture: expected an argument that fits the captured float32"
    ):
        graph(np.ones(2) / 3)
    with pytest.raises(DTypeError, match=r"^Capture: "):
        graph([1e300, 1])


def test_only_the_own_thread_ends_a_capture(device: str) -> None:
    x = array([1, 2], device)
    graph = gpuinterop.capture(device=device)
    refused: list[str] = []

    def elsewhere(*reason) -> None:
        try:
            graph.__exit__(*reason)
        except CaptureError as error:
            refused.append(str(error))

    with graph:
        made = x + 1
        for reason in ((None,) * 3, (KeyError, KeyError(), None)):
            thread = threading.Thread(target=elsewhere, args=reason)
            thread.start()
            thread.join()
    assert len(refused) == 2
    assert all("in the thread that began it" in text for text in refused)
    graph.replay()
    assert made.tolist() == [2, 3]


def test_a_capture_that_dies_elsewhere_while_it_records(device: str) -> None:
    x = array([1, 2], device)
    died: list[bool] = []

    def record() -> None:
        graph = gpuinterop.capture(device=device)
        graph.__enter__()
        own = [graph]
        own.append(own)  # only the collector can free it
        del graph, own
        collector = threading.Thread(target=gc.collect)
        collector.start()
        collector.join()
        _ = x + 1
        died.append(True)

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert died
    assert (x + 1).tolist() == [2, 3]


def test_a_capture_dropped_while_it_records(device: str) -> None:
    x = array([1, 2], device)
    gpuinterop.capture(device=device).__enter__()
    gc.collect()
    assert (x + 1).tolist() == [2, 3]


READS = {
    "item": lambda x: x.item(), "float": float, "int": int, "complex": complex, "bool": bool,
    "tolist": lambda x: x.tolist(), "tobytes": lambda x: x.tobytes(), "get": lambda x: x.get(),
    "numpy.asarray": np.asarray,
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_a_refusal_names_the_call_that_would_have_read_a_value(device, name):
    x = array([1.0], device)
    with pytest.raises(CaptureError) as error, gpuinterop.capture(device=device):
        READS[name](x + 1)
    assert error.value.where == name
    assert "captur" in error.value.expected
    assert error.value.fix
    assert READS[name](x + 1) is not None

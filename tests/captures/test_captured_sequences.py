"""Recording, replaying, keeping alive, and failing with a reason: on every device there is."""

import gc

import numpy as np
import pytest
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import CudaNdarray
from gpuinterop.errors import CaptureError


def array(values, device: str) -> CudaNdarray:
    return CudaNdarray(np.asarray(values, np.float32), device=device)


def step(x, w):
    """A few launches with temporaries, a reduction, and an update in place."""
    y = gi.exp(x * w) - 1
    total = (y * y).sum(axis=0)
    w += 0.5 * total
    return y, total


def test_replay_equals_eager_bit_for_bit(device: str) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((40, 30)) * 0.1, rng.standard_normal(30) * 0.1
    eager_x, eager_w = array(x, device), array(w, device)
    graph_x, graph_w = array(x, device), array(w, device)
    graph = gi.capture(step, graph_x, graph_w)
    for _ in range(4):
        y, total = step(eager_x, eager_w)
        graph_y, graph_total = graph()
        assert np.asarray(graph_y).tobytes() == np.asarray(y).tobytes()
        assert np.asarray(graph_total).tobytes() == np.asarray(total).tobytes()
        assert np.asarray(graph_w).tobytes() == np.asarray(eager_w).tobytes()


def test_nothing_runs_while_recording(device: str) -> None:
    x = array([1, 2, 3], device)
    with gi.capture(device=device) as graph:
        x += 1
        x[1:] = 7
    assert x.tolist() == [1, 2, 3]
    graph.replay()
    assert x.tolist() == [2, 7, 7]
    graph.replay()
    assert x.tolist() == [3, 7, 7]
    assert graph.nodes >= 2


def test_casts_on_the_way_are_part_of_the_sequence(device: str) -> None:
    x = array([1, 2, 3], device)
    z, one = (gi.zeros(3, "float64", device=device) for _ in range(2))
    with gi.capture(device=device) as graph:
        y = x + x
        z[...] = y
        one.fill(y[0])
        made = gi.asarray(y, "float64"), gi.GpuArray(y, "float64")
        full = gi.full(3, y[0], "float64", device=device)
    for values in ([1, 2, 3], [5, 6, 7]):
        x[...] = array(values, device)
        graph.replay()
        twice = [2.0 * v for v in values]
        assert [a.tolist() for a in (z, *made)] == [twice] * 3
        assert [a.tolist() for a in (one, full)] == [[twice[0]] * 3] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_assigned_host_memory_is_read_by_each_replay(dtype) -> None:
    x, values = gi.GpuArray([0, 0], device="cpu"), np.zeros(2, dtype)
    with gi.capture(device="cpu") as graph:
        x[...] = values
    values[:] = 1, 2
    graph.replay()
    assert x.tolist() == [1, 2]


def test_buffers_live_with_the_graph(device: str) -> None:
    x = array(np.ones(1000), device)
    with gi.capture(device=device) as graph:
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


def test_replay_needs_a_finished_capture(device: str) -> None:
    graph = gi.capture(device=device)
    with pytest.raises(CaptureError, match="finished capture") as refused:
        graph.replay()
    with pytest.raises(KeyError), graph:
        raise KeyError
    with pytest.raises(CaptureError, match="raised") as raised:
        graph.replay()
    assert refused.value.got == raised.value.got
    with graph:
        pass
    graph.replay()
    with pytest.raises(CaptureError, match="has not begun"), graph:
        pass


def test_other_threads_are_not_recorded(device: str) -> None:
    x, other = array([1, 2], device), array([1, 2], device)

    with gi.capture(device=device) as graph:
        x += 1
        other = in_thread(lambda: other + 1)
    assert other.tolist() == [2, 3]
    graph.replay()
    assert other.tolist() == [2, 3]


def test_take_and_kernels_keep_their_operands_alive(device: str) -> None:
    x = array(np.arange(600), device)
    out = array(np.zeros(3), device)
    with gi.capture(device=device) as graph:
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
def test_user_kernels_keep_their_arguments_alive() -> None:
    text = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    twice = gi.RawKernel(text, "twice")
    x, y = array(np.arange(256), "cuda:0"), array(np.zeros(256), "cuda:0")
    twice((1,), (256,), x, y)
    with gi.capture(device="cuda:0") as graph:
        twice((1,), (256,), x, y)
    del x
    gc.collect()
    filler = [array(np.full(256, -1), "cuda:0") for _ in range(8)]
    y.fill(0)
    graph.replay()
    assert y.tolist() == [2.0 * i for i in range(256)]
    assert len(filler) == 8


def test_a_replay_inside_a_capture_is_part_of_it(device: str) -> None:
    x = array([1, 1, 1], device)
    inner = gi.capture(lambda a: a + 1, x)
    outer = gi.capture(lambda a: inner(a) * 2, x)
    made = inner.outputs
    assert outer().tolist() == [4, 4, 4]
    assert outer() is outer()
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
    with gi.capture(device=device) as inner:
        x += 1
    inner.inputs = (x,)
    with gi.capture(device=device) as outer:
        inner(y)
        inner.replay()
    assert x.tolist() == [0, 0]
    outer.replay()
    assert x.tolist() == [3, 4]
    y.fill(7)
    outer.replay()
    assert x.tolist() == [9, 9]


@pytest.mark.parametrize(
    ("call", "expected"),
    [(gi.exp, np.exp), (lambda x, out: gi.matmul(x, x, out=out), lambda x: x @ x)],
)
def test_a_replay_uses_the_layouts_of_the_recording(device: str, call, expected) -> None:
    def changed(change):
        x = gi.GpuArray(np.float32([[1, 2], [3, 4]]), device=device)
        out = gi.GpuArray(np.zeros((2, 2), np.float32), device=device)
        graph, seen = gi.capture(lambda a: call(a, out=out), x), out[:]
        change(x, out)
        graph.replay()
        return np.asarray(seen)

    for change in (
        lambda x, out: setattr(x, "strides", (4, 8)),
        lambda x, out: setattr(x, "shape", (4,)),
        lambda x, out: setattr(out, "shape", (4,)),
        lambda x, out: setattr(out, "readonly", True),
    ):
        np.testing.assert_allclose(
            changed(change), expected(np.float32([[1, 2], [3, 4]])), rtol=1e-6
        )


def test_only_the_own_thread_ends_a_capture(device: str) -> None:
    x = array([1, 2], device)
    graph = gi.capture(device=device)
    with graph:
        made = x + 1
        with pytest.raises(CaptureError, match="thread"):
            in_thread(graph.__exit__, None, None, None)
    graph.replay()
    assert made.tolist() == [2, 3]


def test_a_capture_dropped_while_it_records(device: str) -> None:
    x = array([1, 2], device)
    gi.capture(device=device).__enter__()
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
    with pytest.raises(CaptureError) as error, gi.capture(device=device):
        READS[name](x + 1)
    assert error.value.where == name
    assert "captur" in error.value.expected
    assert READS[name](x + 1) is not None

"""Index arrays and masks in captures: what a replay reads, and what it does with an index out of range."""

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(12, dtype="f4").reshape(3, 4)


def on(device, host=HOST):
    return gi.GpuArray(host, device=device)


def test_a_replay_reads_the_indices_of_gpuinterop_arrays(device):
    x, i, v = on(device), on(device, np.array([0, 0])), on(device, np.ones(4, "f4"))
    listed = [2, 1]
    numpy = np.array([1, 2])
    with gi.capture(device=device) as graph:
        read, again, fixed, of_numpy = x[i], x.take(i, axis=0), x[listed], x[numpy]
        x[i] = v
        gi.add.at(x, i, v)
        x[x < 2] = -1
    listed[0] = numpy[0] = 0
    expected = HOST.copy()
    for places in ([2, 1], [0, -1], [1, 0]):
        i[...] = np.array(places)
        graph.replay()
        for found in (read, again):
            np.testing.assert_array_equal(found.get(), expected[places])
        np.testing.assert_array_equal(fixed.get(), expected[[2, 1]])
        np.testing.assert_array_equal(of_numpy.get(), expected[[1, 2]])
        expected[places] = 1
        np.add.at(expected, places, 1)
        expected[expected < 2] = -1
        np.testing.assert_array_equal(x.get(), expected)


def test_what_depends_on_the_number_of_selected_elements_is_refused(device):
    x, mask = on(device), on(device, HOST > 3)
    with gi.capture(device=device):
        for call in (
            lambda: x[mask], lambda: gi.argwhere(x), lambda: gi.flatnonzero(mask), lambda: x.compress([True]),
            lambda: x.__setitem__(mask, np.zeros(8, "f4")), lambda: x.__setitem__((mask[:, 0], [0]), 1),
        ):  # fmt: skip
            with pytest.raises(gi.CaptureError):
                call()
    np.testing.assert_array_equal(x.get(), HOST)


CALLS = {
    "x[i]": lambda x, i: x[i],
    "take": lambda x, i: x.take(i, axis=0),
    "take_along_axis": lambda x, i: gi.take_along_axis(x, i[:, None], 0),
    "x[i] = v": lambda x, i: x.__setitem__(i, 5),
    "add.at": lambda x, i: gi.add.at(x, i, 5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_index_out_of_range_at_a_replay(device, call):
    """The replay raises on "cpu". On a GPU a later one does, and nothing outside is read or written."""
    x, i = on(device), on(device, np.array([0, 1]))
    graph = gi.capture(call, x, i)
    graph.replay()
    before = x.get()
    i[...] = np.array([2, 8])
    if device == "cpu":
        with pytest.raises(gi.ArrayIndexError, match="8"):
            graph.replay()
        np.testing.assert_array_equal(x.get(), before)
        i[...] = np.array([0, 1])
        graph.replay()
        return
    graph.replay()
    gi.synchronize(device)
    np.testing.assert_array_equal(x.get()[:2], before[:2])
    i[...] = np.array([0, 1])
    with pytest.raises(gi.ArrayIndexError, match="index 8 in an earlier replay"):
        graph.replay()
    graph.replay()


@pytest.mark.driver
def test_a_capture_around_a_capture_reports_the_index():
    device = "cuda:0"
    x, i = on(device), on(device, np.array([0, 1]))
    inner = gi.capture(lambda a, b: a[b], x, i)
    outer = gi.capture(inner.replay, device=device)
    del inner
    outer.replay()
    i[...] = np.array([0, -4])
    outer.replay()
    gi.synchronize(device)
    with pytest.raises(gi.ArrayIndexError, match="index -4"):
        outer.replay()


def test_an_error_outside_does_not_reach_a_graph(device):
    x, i, bad = on(device), on(device, np.array([0, 1])), on(device, np.array([0, 9]))
    graph = gi.capture(lambda a, b: a[b], x, i)
    with pytest.raises(gi.ArrayIndexError):
        x[bad]
    graph.replay()
    graph.replay()
    np.testing.assert_array_equal(graph.outputs.get(), HOST[[0, 1]])


@pytest.mark.gpu
@pytest.mark.torch
def test_captures_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4)
    i = torch.tensor([0, 1], device="cuda")
    y, out = gi.from_dlpack(x), torch.zeros((2, 4), device="cuda")
    j, into = gi.from_dlpack(i), gi.from_dlpack(out)
    mask = y > 3
    y.take(j, axis=0, out=into)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), gi.stream(torch.cuda.current_stream()):
        y.take(j, axis=0, out=into)
        for call in (lambda: y[mask], lambda: gi.nonzero(y)):
            with pytest.raises(gi.CaptureError):
                call()
    i[0] = 2
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x[i])
    i[0] = 77
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x[[0, 1]])

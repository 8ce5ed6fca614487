"""Reductions cut into parts are one launch: on many streams, in graphs, and without Python between."""

import numpy as np
import pytest

import gpuinterop as gi

pytestmark = pytest.mark.driver  # a host has neither streams nor launches


def long_array(device: str, n: int = 140_001) -> tuple[gi.CudaNdarray, float]:
    host = np.random.default_rng(8).standard_normal(n).astype(np.float32)
    return gi.CudaNdarray(host, device=device), float(host.sum(dtype=np.float64))


def test_more_streams_than_sets_of_counters(device: str) -> None:
    x, exact = long_array(device)
    expected = np.asarray(x.sum())
    assert abs(float(expected) - exact) <= 1e-6 * x.size
    streams = [gi.Stream(device=x.device) for _ in range(40)]
    found = []
    for _ in range(2):
        for stream in streams:
            with gi.stream(stream):
                found.append(x.sum())
    assert {np.asarray(y).tobytes() for y in found} == {expected.tobytes()}


def test_a_graph_has_one_node_and_counts_for_itself(device: str) -> None:
    x, _ = long_array(device)
    expected = np.asarray(x.sum()).tobytes()
    graph = gi.capture(lambda x: x.sum(), x)
    assert graph.nodes == 1
    other = gi.Stream(device=x.device)
    for i in range(6):
        with gi.stream(other if i % 2 else gi.Stream(device=x.device)):
            total = graph()
            assert np.asarray(total).tobytes() == expected
        assert np.asarray(x.sum()).tobytes() == expected
    x[...] = 1
    assert float(graph()) == x.size


def test_several_reductions_in_one_graph(device: str) -> None:
    x, _ = long_array(device, 140_000)
    rows = x.reshape(20_000, 7)

    def several(x, rows):
        return x.sum(), rows.max(axis=0), x.var(), x.argmin()

    eager = [np.asarray(y).tobytes() for y in several(x, rows)]
    graph = gi.capture(several, x, rows)
    for _ in range(3):
        assert [np.asarray(y).tobytes() for y in graph()] == eager


@pytest.mark.gpu
def test_a_graph_of_torch() -> None:
    torch = pytest.importorskip("torch")
    t = torch.ones(1 << 22, device="cuda")
    x = gi.asarray(t)  # shares its memory; CudaNdarray(t) would copy
    x.sum()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), gi.stream(torch.cuda.current_stream()):
        total = x.sum()
    for value in (1.0, 2.0, 3.0):
        t.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert float(total) == value * (1 << 22)

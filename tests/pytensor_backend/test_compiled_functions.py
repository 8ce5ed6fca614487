"""What compiled functions keep on the device, the transfers that they report, and lengths that they refuse."""

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from doubles import fake_driver
from pytensor.tensor.blas import gemv_no_inplace
from test_graphs import PLACES, values

import gpuinterop as gi
import gpuinterop.pytensor as backend


def test_shared_data_stays_on_device(on_device):
    w = pytensor.shared(values(1, 4, 4))
    step = pytensor.function([], [], updates={w: w * 0.5 + pt.dot(w, w)})
    nodes = step.maker.fgraph.toposort()
    assert nodes
    assert all(isinstance(node.op, backend.GpuOp) for node in nodes)
    assert isinstance(w.get_value(borrow=True, return_internal_type=True), gi.CudaNdarray)


def test_device_output_is_an_array(on_device):
    x = pytensor.shared(values(1, 5))
    f = pytensor.function([], backend.gpu_from_host(pt.exp(x)))
    first, second = f(), f()
    assert type(first) is gi.CudaNdarray
    assert first is not second
    np.testing.assert_allclose(first.get(), np.exp(x.get_value()), rtol=1e-6)


@pytest.mark.fake_driver
def test_results_on_the_host_are_downloaded_with_one_wait(on_device):
    w = pytensor.shared(values(1, 40, 500))  # results of 80 kB
    e = pt.exp(w)
    f = pytensor.function([], [pt.cumsum(e, axis=0), e, w.sum(axis=1), w > 0], updates={w: w + 1})
    for call in range(4):
        old, before = w.get_value(), fake_driver.calls("cuStreamSynchronize")
        found = f()
        if call > 1:  # the first calls compile kernels and capture
            assert fake_driver.calls("cuStreamSynchronize") == before + 1
        expected = np.exp(old).cumsum(axis=0), np.exp(old), old.sum(axis=1), old > 0
        for one, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-5)


def test_results_of_every_layout_and_length_are_downloaded(on_device):
    w, e = pytensor.shared(values(1, 700, 800)), pytensor.shared(values(1, 0, 3))
    f = pytensor.function([], [w + 1, pt.exp(w).T[::-2], w[0] * 2, e * 2, w.sum()])
    big = w.get_value().astype("float64")
    expected = big + 1, np.exp(big).T[::-2], big[0] * 2, np.empty((0, 3)), big.sum()
    for _ in range(3):
        for one, right in zip(f(), expected, strict=True):
            assert one.shape == right.shape
            np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-5)


def test_transfers_report_the_reason_and_a_fix(on_device):
    x, w = pt.matrix("x", dtype="float32"), pytensor.shared(values(1, 4, 4), name="w")
    step = pytensor.function([x], pt.dot(x, w))
    up, down = backend.transfers(step)
    assert (up.value, up.direction) == ("x", "to the device")
    assert "shared variable" in up.fix
    assert down.direction == "to the host"
    assert "gpu_from_host(result)" in down.fix
    stays = pytensor.function([], [], updates={w: pt.dot(w, w)})
    assert backend.transfers(stays) == []


def test_transfers_name_what_runs_on_the_host(on_device):
    w, x, i = pytensor.shared(values(1, 4, 4), name="w"), pt.dvector("x"), pt.lvector("i")

    def moves(outputs, inputs=(), mode="GPU"):
        return [str(t) for t in backend.transfers(pytensor.function([*inputs], outputs, mode=mode))]

    (both,) = moves([pt.cumsum(w, axis=0), pt.sort(w, axis=0)])
    assert "Cumsum" in both
    assert "SortOp" in both
    assert "no version for the device" in both
    steps = pytensor.scan(lambda a: a * w, outputs_info=w, n_steps=3, return_updates=False)
    (*_, after) = moves(backend.gpu_from_host(steps[-1]))
    assert "Scan" in after
    assert "no version for the device" in after
    (wide,) = moves(w * x, [x])
    assert "dtype float64" in wide
    assert "use float32" in wide
    (index, _) = moves(w[i].sum(), [i])
    assert "any_dtype=True" in index
    (other_mode,) = moves(w.sum(), mode="FAST_COMPILE")
    assert 'in the mode "GPU"' in other_mode


def test_another_package_adds_a_lowering(on_device):
    class Twice(pytensor.graph.op.Op):
        __props__ = ()

        def make_node(self, x):
            x = pt.as_tensor_variable(x)
            return pytensor.graph.basic.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] * 2

        def infer_shape(self, node, shapes):
            return shapes

    @backend.lower.register(Twice)
    def _(op, node):
        def run(inputs, outputs):
            outputs[0][0] = inputs[0] * 2

        return run

    w = pytensor.shared(values(1, 4))
    twice = pytensor.function([], Twice()(w) + 1)
    assert any(type(node.op).__name__ == "GpuTwice" for node in twice.maker.fgraph.toposort())
    np.testing.assert_allclose(twice(), w.get_value() * 2 + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (lambda x, v: gemv_no_inplace(v, 1.0, x, x[0], 1.0), ((4, 4), (1,))),
        (lambda x, v: x - v, ((4, 1), (3,))),
        (lambda x, v: pt.exp(x - v), ((4, 3), (1,))),
        (lambda x, v: pt.inc_subtensor(x[PLACES], v), ((4, 3), (1,))),
    ],
    ids=["gemv", "one operation", "fused operations", "index array"],
)
def test_lengths_are_not_broadcast_at_run_time(make, shapes, on_device):
    x, v = pt.matrix("x", dtype="float32"), pt.vector("v", dtype="float32")
    f = pytensor.function([x, v], make(x, v))
    with pytest.raises(ValueError, match=r"expected y of shape|Runtime broadcasting not allowed"):
        f(*(values(1, *shape) for shape in shapes))


@pytest.mark.parametrize("lengths", [[5, -1], [1, 1], [3, 2]])
def test_split_refuses_lengths_of_another_sum(lengths, on_device):
    f = pytensor.function([], pt.split(pytensor.shared(values(1, 4, 2)), lengths, n_splits=2))
    with pytest.raises(ValueError, match="sum"):
        f()


@pytest.mark.driver
def test_fusions_of_equal_graphs_are_equal(on_device):
    def fusions(rate, columns=4):
        w, x = pytensor.shared(values(1, 4)), pytensor.shared(values(2, 3, columns))
        u = w if columns == 4 else pytensor.shared(values(1, columns))
        y = pt.exp(pt.dot(x, u)) * np.float32(rate)
        f = pytensor.function([], backend.gpu_from_host(y))
        return [n.op for n in f.maker.fgraph.toposort() if isinstance(n.op, backend.GpuOp)]

    (first,), (second,), (other,) = fusions(0.5), fusions(0.5), fusions(0.25)
    assert first == second
    assert hash(first) == hash(second)
    assert first != other


@pytest.mark.driver
def test_positions_stay_on_the_device(on_device):
    x = pt.fmatrix("x")
    w = pytensor.shared(values(1, 5, 4))
    picked = (x @ w)[pt.arange(x.shape[0]), pt.arange(x.shape[0], 0, -1) - 1]
    f = pytensor.function([x], [picked, pt.arange(x.shape[0]) * picked])
    assert [t.value for t in backend.transfers(f) if t.direction == "to the device"] == ["x"]
    for k in range(12):
        new = values(k, 2 + k % 3, 5)
        expected = np.diagonal((new @ w.get_value())[:, : len(new)][:, ::-1])
        found = f(new)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], np.arange(len(new)) * expected, rtol=1e-5, atol=1e-5)
    assert any(part.replayed for part in backend.replays(f))

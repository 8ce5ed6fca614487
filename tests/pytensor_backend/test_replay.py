"""Functions on a GPU replay captured graphs, and give what they give without: whatever is held, set or changed."""

import gc

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from arrays import is_replayed, values
from pytensor import Out
from pytensor.configdefaults import config
from pytensor.graph import Apply, Op

import gpuinterop as gi
import gpuinterop.pytensor as backend

pytestmark = pytest.mark.driver


def test_results_of_earlier_calls_are_not_overwritten(on_device):
    w = pytensor.shared(values(1, 5))
    f = pytensor.function([], backend.gpu_from_host(w * 2), updates={w: w + 1})
    start, kept = w.get_value(), []
    for i in range(12):
        kept.append(f())
        if i >= 6:
            del kept[0]
    np.testing.assert_allclose(
        [k.get() for k in kept], [(start + i) * 2 for i in range(6, 12)], rtol=1e-6
    )
    np.testing.assert_allclose(w.get_value(), start + 12, rtol=1e-6)


@pytest.mark.lifetime
def test_step_of_a_logistic_regression_is_one_device_op(on_device):
    x, y = pytensor.shared(values(1, 40, 7)), pytensor.shared((values(2, 40) > 0).astype("float32"))
    w, b = pytensor.shared(values(3, 7)), pytensor.shared(np.asarray(0.0, "float32"))
    p = 1 / (1 + pt.exp(-pt.dot(x, w) - b))
    xent = -y * pt.log(p) - (1 - y) * pt.log(1 - p)
    cost = xent.mean() + np.float32(0.01) * (w**2).sum()
    gw, gb = pytensor.grad(cost, [w, b])
    results = [backend.gpu_from_host(pt.cast(r, "float32")) for r in (p > 0.5, xent)]
    f = pytensor.function([], results, updates={w: w - 0.1 * gw, b: b - 0.1 * gb})
    (step,) = [n for n in f.maker.fgraph.toposort() if isinstance(n.op, backend.GpuOp)]
    assert type(step.op).__name__ == "GpuGemv"
    weights, bias = w.get_value().astype("float64"), 0.0
    for _ in range(20):
        _, loss = f()
        z = x.get_value() @ weights + bias
        error = (1 / (1 + np.exp(-z)) - y.get_value()) / 40
        expected = np.logaddexp(0, z) - y.get_value() * z
        np.testing.assert_allclose(loss.get(), expected, rtol=1e-4, atol=1e-5)
        weights -= 0.1 * (error @ x.get_value() + 0.02 * weights)
        bias -= 0.1 * error.sum()
    np.testing.assert_allclose(w.get_value(), weights, rtol=1e-4, atol=1e-5)
    assert is_replayed(f)


@pytest.mark.lifetime
def test_views_and_exports_of_results_hold_them(on_device):
    w = pytensor.shared(values(1, 6))
    f = pytensor.function([], backend.gpu_from_host(w * 2), updates={w: w + 1})
    for _ in range(3):
        f()
    first = w.get_value() * 2
    part, capsule = f()[1::2], f().__dlpack__()
    for _ in range(4):
        f()
    np.testing.assert_allclose(part.get(), first[1::2], rtol=1e-6)
    del capsule
    f()
    assert is_replayed(f)


def test_borrowed_result_has_one_memory(on_device):
    w = pytensor.shared(values(1, 5))
    f = pytensor.function([], Out(backend.gpu_from_host(pt.exp(w)), borrow=True))
    for _ in range(3):
        f()
    held = [f() for _ in range(4)]
    assert is_replayed(f)
    assert len({x.ptr for x in held}) == 1


@pytest.mark.lifetime
def test_more_held_results_than_graphs_run_one_by_one(on_device):
    w = pytensor.shared(values(1, 5))
    f = pytensor.function([], backend.gpu_from_host(pt.exp(w)))
    held = [f() for _ in range(8)]
    (part,) = backend.replays(f)
    assert not part.replayed
    assert "holds" in part.why_not
    assert len({x.ptr for x in held}) == 8
    del held
    f()
    assert is_replayed(f)


def test_value_set_between_calls_is_read(on_device):
    w = pytensor.shared(values(1, 5))
    f = pytensor.function([], backend.gpu_from_host(w + 1))
    for i in range(10):
        new = values(i, 5)
        if i % 3 == 0:
            w.set_value(new)
        elif i % 3 == 1:
            w.set_value(gi.CudaNdarray(new, device=on_device), borrow=True)
        else:
            w.get_value(borrow=True, return_internal_type=True)[...] = new
        np.testing.assert_allclose(f().get(), new + 1, rtol=1e-6)


def test_layout_changed_in_place_is_seen(on_device):
    w = pytensor.shared(values(1, 4, 4))
    f = pytensor.function([], backend.gpu_from_host(w * 2))
    for _ in range(3):
        f()
    array = w.get_value(borrow=True, return_internal_type=True)
    array.strides = array.strides[::-1]
    np.testing.assert_allclose(f().get(), w.get_value() * 2)
    assert w.get_value().T.flags.c_contiguous or (w.get_value() == values(1, 4, 4).T).all()


def test_part_of_an_old_value_that_an_argument_chooses(on_device):
    w, i = pytensor.shared(values(1, 4, 3)), pt.lscalar("i")
    f = pytensor.function([i], [backend.gpu_from_host(w[i]), w.sum()], updates={w: w * 2})
    kept, expected = [], []
    for k in range(8):
        expected.append(w.get_value()[k % 4])
        kept.append(f(k % 4)[0])
    np.testing.assert_allclose([x.get() for x in kept], expected, rtol=1e-6)


def test_node_after_the_graph_reads_the_old_value(on_device):
    class Host(pytensor.graph.op.Op):
        __props__ = ()

        def make_node(self, *inputs):
            return pytensor.graph.basic.Apply(self, list(inputs), [inputs[0].type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] + inputs[1]

    w = pytensor.shared(values(1, 4))
    product = backend.gpu_from_host(w * 3)
    f = pytensor.function([], Host()(w, product), updates={w: w + 1})
    for _ in range(5):
        old = w.get_value()
        np.testing.assert_allclose(f().get(), old * 4, rtol=1e-6)


def test_number_that_changes_runs_one_by_one_and_is_reported(on_device):
    w, rate = pytensor.shared(values(1, 4)), pt.fscalar("rate")
    f = pytensor.function([rate], [], updates={w: w * rate})
    expected = w.get_value()
    for i in range(10):
        f(np.float32(1 + i / 10))
        expected = expected * np.float32(1 + i / 10)
        np.testing.assert_allclose(w.get_value(), expected, rtol=1e-5)
    assert "host" in backend.replays(f)[-1].why_not
    for _ in range(600):
        f(np.float32(1))
    assert backend.replays(f)[-1].replayed


@pytest.mark.lifetime
def test_minibatches_are_replayed(on_device):
    data, batch = pytensor.shared(values(1, 40, 3)), pt.fmatrix("batch")
    i = pt.lscalar("i")
    f = pytensor.function(
        [i], backend.gpu_from_host(pt.exp(batch).sum(axis=0)),
        givens={batch: data[i * 4 : (i + 1) * 4]},
    )  # fmt: skip
    assert not [t for t in backend.transfers(f) if t.direction == "to the device"]
    for k in [*range(10), *range(10)]:
        expected = np.exp(data.get_value()[k * 4 : (k + 1) * 4]).sum(axis=0)
        np.testing.assert_allclose(f(k).get(), expected, rtol=1e-5)
    assert any(part.replayed for part in backend.replays(f))


def test_arguments_of_changing_shapes(on_device):
    x = pt.fmatrix("x")
    w = pytensor.shared(values(1, 3, 3))
    f = pytensor.function([x], [pt.dot(x, w), (x**2).mean()])
    for k in range(12):
        new = values(k, 2 + k % 3, 3)
        product, mean = f(new)
        np.testing.assert_allclose(product, new @ w.get_value(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mean, (new**2).mean(), rtol=1e-5)
    assert any(part.replayed for part in backend.replays(f))


def test_device_arguments_are_replayed(on_device):
    x = backend.CudaNdarrayType((False, False))("x")
    f = pytensor.function([x], backend.gpu_from_host(pt.exp(x).sum(axis=0)))
    arrays = [gi.CudaNdarray(values(k, 4, 3), device=on_device) for k in range(3)]
    for k in range(12):
        found = f(arrays[k % 3])
        np.testing.assert_allclose(found.get(), np.exp(values(k % 3, 4, 3)).sum(axis=0), rtol=1e-5)
    assert backend.replays(f)[-1].replayed


def test_arguments_of_a_replay_are_checked(on_device):
    config.allow_gc = False
    x, y = (backend.CudaNdarrayType((False,))(name) for name in "xy")
    f = pytensor.function([x, y], backend.gpu_from_host(pt.exp(x) - y))
    a, b = (gi.CudaNdarray(values(k, 4), device=on_device) for k in range(2))
    expected = [np.exp(u.get()) - v.get() for u, v in ((a, b), (b, a), (a, a))]
    for _ in range(20):
        for arguments, result in zip([(a, b), (b, a), (a, a)], expected, strict=True):
            np.testing.assert_allclose(f(*arguments).get(), result, rtol=1e-5, atol=1e-6)
    assert is_replayed(f)
    np.testing.assert_allclose(f(a, y=b).get(), expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(f(y=a, x=b).get(), expected[1], rtol=1e-5, atol=1e-6)
    other_class = gi.GpuArray(values(0, 4), device=on_device)
    for wrong in ((a,), (a, b, a), (), (a, other_class), (a, values(0, 4).astype("float64"))):
        with pytest.raises(TypeError):
            f(*wrong)
    np.testing.assert_allclose(f(a, b).get(), expected[0], rtol=1e-5, atol=1e-6)


def test_copy_of_a_function_returns_what_the_function_returns(on_device):
    w = pytensor.shared(values(1, 4))
    for outputs in (backend.gpu_from_host(w * 2), [backend.gpu_from_host(w * 2)], []):
        f = pytensor.function([], outputs, updates={w: w + 1})
        g = f.copy()
        for _ in range(4):
            assert type(f()) is type(g())
    backend.use(on_device, capture=False)
    f = pytensor.function([], w.sum())
    assert f.copy()() == f()


def test_arguments_of_a_function_without_any_are_refused(on_device):
    w = pytensor.shared(values(1, 4))
    f = pytensor.function([], backend.gpu_from_host(w * 2))
    for _ in range(4):
        for wrong in (lambda: f(1), lambda: f(w=1)):
            with pytest.raises(TypeError):
                wrong()
        np.testing.assert_allclose(f().get(), w.get_value() * 2)
    assert is_replayed(f)


@pytest.mark.lifetime
def test_new_array_in_each_call_is_copied_and_read(on_device):
    w = pytensor.shared(values(0, 4), borrow=True)
    f = pytensor.function([], backend.gpu_from_host(pt.exp(w)))
    arrays = [gi.CudaNdarray(values(k, 4), device=on_device) for k in range(60)]
    for k, array in enumerate(arrays):
        w.set_value(array, borrow=True)
        np.testing.assert_allclose(f().get(), np.exp(values(k, 4)), rtol=1e-6)
    assert is_replayed(f)
    w.get_value(borrow=True, return_internal_type=True)[...] = 1
    np.testing.assert_allclose(f().get(), np.exp(np.ones(4)), rtol=1e-6)


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("profiled", [True, False])
def test_error_names_its_operation(capture, profiled, device):
    class Fails(pytensor.graph.op.Op):
        __props__ = ()
        fails = False

        def make_node(self, x):
            return pytensor.graph.basic.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            if self.fails:
                raise ValueError("as told")
            outputs[0][0] = inputs[0]

    op, x = Fails(), pt.fvector("x")
    backend.use(device, capture=capture)
    verbosity, config.exception_verbosity = config.exception_verbosity, "high"
    try:
        w = pytensor.shared(values(1, 4))
        on_host = pytensor.function([], pt.exp(op(pt.exp(w))), profile=profiled)
        on_gpu = pytensor.function([x], backend.gpu_from_host(pt.exp(x) + w), profile=profiled)
        for n in (4, 4, 4, 3):
            op.fails = n == 3
            if n == 4:
                on_host()
                on_gpu(values(2, n))
                continue
            with pytest.raises(ValueError, match="Fails"):
                on_host()
            with pytest.raises(ValueError, match="GpuElemwise"):
                on_gpu(values(2, n))
        op.fails = False
        np.testing.assert_allclose(on_host(), np.exp(np.exp(w.get_value())), rtol=1e-6)
    finally:
        config.exception_verbosity = verbosity
        backend.unuse()


def test_error_in_a_call_leaves_the_function_usable(on_device):
    x = pt.fvector("x")
    w = pytensor.shared(values(1, 4))
    f = pytensor.function([x], backend.gpu_from_host(x + w))
    for n in (4, 4, 4, 3, 3, 3, 4, 4):
        if n == 3:
            with pytest.raises(ValueError, match="equal lengths"):
                f(values(2, n))
        else:
            np.testing.assert_allclose(
                f(values(2, n)).get(), values(2, n) + w.get_value(), rtol=1e-6
            )


class ReadByTheHost(Op):
    """Promises that graphs may contain it, but its lowering reads an array."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + inputs[0].sum()


@backend.lower.register(ReadByTheHost)
def _(op, node):
    def run(inputs, outputs):
        outputs[0][0] = inputs[0] + float(inputs[0].sum())

    return run


backend.recordable.register(ReadByTheHost)(lambda op, node: "fixed")


def test_refused_capture_does_not_lose_numbers_of_the_host(on_device):
    x, i = pt.vector("x"), pt.iscalar("i")
    f = pytensor.function([x, i], ReadByTheHost()(x * pt.cast(i + 1, "float32")))
    for step in range(4):
        assert f(np.ones(3, "float32"), step % 2).tolist() == [4 * (step % 2 + 1)] * 3
    (refused,) = [p for p in backend.replays(f) if "GpuReadByTheHost" in p.operations]
    assert "CaptureError" in refused.why_not


def test_number_that_changes_with_an_array_is_reported(on_device):
    x, rate = backend.CudaNdarrayType((False,))("x"), pt.fscalar("rate")
    f = pytensor.function([x, rate], backend.gpu_from_host(pt.exp(x) * rate))
    batches = [gi.asarray(values(k, 3)) for k in range(20)]
    for k, batch in enumerate(batches):
        np.testing.assert_allclose(f(batch, k).get(), np.exp(batch.get()) * k, rtol=1e-5)
    assert "come from the host" in backend.replays(f)[-1].why_not


def test_capture_can_be_switched_off(device):
    backend.use(device, capture=False)
    try:
        w = pytensor.shared(values(1, 4))
        f = pytensor.function([], backend.gpu_from_host(w + 1))
        for _ in range(3):
            f()
        (part,) = backend.replays(f)
        assert not part.replayed
    finally:
        backend.unuse()


@pytest.mark.lifetime
@pytest.mark.parametrize("allow_gc", [True, False])
def test_memory_stays_flat(allow_gc, on_device):
    config.allow_gc = allow_gc
    w = pytensor.shared(values(1, 64, 64))
    f = pytensor.function([], [backend.gpu_from_host(pt.exp(w)), w.sum()], updates={w: w * 0.99})
    for _ in range(10):
        result = f()
    before = gi.memory_stats(on_device)["live_bytes"]
    for _ in range(200):
        result = f()
    assert gi.memory_stats(on_device)["live_bytes"] == before
    del f, result, w
    gc.collect()
    assert gi.memory_stats(on_device)["live_bytes"] < before


def test_function_inside_a_capture(on_device):
    w = pytensor.shared(values(1, 4))
    f = pytensor.function([], backend.gpu_from_host(w * 2))
    for _ in range(3):
        f()
    with gi.capture(device=on_device) as graph:
        result = f()
    graph.replay()
    np.testing.assert_allclose(result.get(), w.get_value() * 2)

"""Functions on a device compute what host PyTensor computes, whatever is collected, kept, replaced or reshaped."""

import numpy as np
import pytest

pytest.importorskip("pytensor")

import pytensor
import pytensor.tensor as pt
from pytensor.configdefaults import config

import gpuinterop as gi
import gpuinterop.pytensor as backend


def values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def mlp(x, w, v):
    hidden = pt.tanh(pt.dot(x, w) + v)
    return [(hidden**2).sum(), pt.grad((hidden**2).sum(), w)]


# Each makes outputs and updates of a matrix argument x, a shared matrix w and a shared vector v.
GRAPHS = {
    "exp": lambda x, w, v: ([pt.exp(x) * 2 + v], {}),
    "several outputs": lambda x, w, v: ([x + v, x - v, pt.sqr(x)], {}),
    "comparison": lambda x, w, v: ([pt.switch(x > v, x, v), x > 0], {}),
    "cast": lambda x, w, v: ([pt.cast(x > 0.5, "float32") * v], {}),
    "sums": lambda x, w, v: ([x.sum(), x.sum(axis=0), x.mean(axis=1), x.max(axis=1), x.prod()], {}),
    "any and all": lambda x, w, v: ([(x > 0).any(axis=0), (x > 0).all()], {}),
    "product": lambda x, w, v: ([pt.dot(x, w), pt.dot(x, v), pt.dot(x, w) * 0.5 + v], {}),
    "outer": lambda x, w, v: ([pt.outer(v, v)], {}),
    "shapes": lambda x, w, v: (
        [x.T, x.reshape((-1,)), x.dimshuffle(0, "x", 1), x.flatten() * 2],
        {},
    ),
    "slices": lambda x, w, v: ([x[1:], x[::-1, 0], x[0] * v], {}),
    "written slices": lambda x, w, v: (
        [pt.set_subtensor(x[0], v), pt.inc_subtensor(x[:, 1], 1)],
        {},
    ),
    "join": lambda x, w, v: ([pt.concatenate([x, w], axis=0) * 2, pt.stack([v, v])], {}),
    "alloc": lambda x, w, v: ([pt.zeros_like(x) + v, pt.alloc(v, 3, v.shape[0]) * 2], {}),
    "updates": lambda x, w, v: ([w.sum()], {w: w - 0.1 * w * x.sum(), v: v * 0.5}),
    "swap": lambda x, w, v: ([], {w: w.T, v: v + 1}),
    "gradient": lambda x, w, v: (mlp(x, w, v), {w: w - 0.01 * mlp(x, w, v)[1]}),
    "softmax": lambda x, w, v: (
        [pt.special.softmax(x, axis=1), pt.special.log_softmax(x, axis=1)],
        {},
    ),
    "sigmoid": lambda x, w, v: (
        [pt.sigmoid(x), pt.softplus(x), pt.log1p(pt.exp(-x)), pt.erf(x)],
        {},
    ),
    "scalar of the host": lambda x, w, v: (
        [x / x.shape[0], x * pt.cast(x.shape[1], "float32")],
        {},
    ),
    "view of a shared variable": lambda x, w, v: ([w, w[0], w.T], {w: w + 1}),
}


def compiled(name, mode, shared):
    x = pt.matrix("x", dtype="float32")
    w, v = (shared(values(i, *shape)) for i, shape in ((1, (4, 4)), (2, (4,))))
    outputs, updates = GRAPHS[name](x, w, v)
    return (
        pytensor.function([x], outputs, updates=updates, mode=mode, on_unused_input="ignore"),
        w,
        v,
    )


@pytest.mark.parametrize("allow_gc", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_graph_agrees_with_host(name, allow_gc, on_device):
    config.allow_gc = allow_gc
    tested, w, v = compiled(name, "GPU", pytensor.shared)
    work_on_host = [
        node
        for node in tested.maker.fgraph.toposort()
        if backend.has_lowering(node.op)
        and any(o.type.dtype == "float32" and not all(o.type.broadcastable) for o in node.outputs)
    ]
    assert not work_on_host
    backend.unuse()
    config.floatX = "float32"
    host, hw, hv = compiled(name, backend.HOST, pytensor.shared)
    kept = []
    for step, rows in enumerate((4, 4, 3, 4, 7)):
        if name == "join" or rows == 4 or "swap" not in name:
            x = values(10 + step, rows, 4)
            found, expected = tested(x), host(x)
            kept.append((found, [np.array(e) for e in expected]))
        if step == 2:
            for mine, reference in ((w, hw), (v, hv)):
                new = values(20, *reference.get_value().shape)
                mine.set_value(new)
                reference.set_value(new)
        np.testing.assert_allclose(w.get_value(), hw.get_value(), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(v.get_value(), hv.get_value(), rtol=2e-5, atol=2e-5)
    for found, expected in kept:  # also results of earlier calls are still what they were
        for a, b in zip(found, expected, strict=True):
            assert np.asarray(a).dtype == b.dtype
            np.testing.assert_allclose(np.asarray(a), b, rtol=2e-5, atol=2e-5)


def test_shared_data_stays_on_device(on_device):
    w = pytensor.shared(values(1, 4, 4))
    step = pytensor.function([], [], updates={w: w * 0.5 + pt.dot(w, w)})
    nodes = step.maker.fgraph.toposort()
    assert nodes
    assert all(isinstance(node.op, backend.GpuOp) for node in nodes)
    assert isinstance(w.get_value(borrow=True, return_internal_type=True), gi.CudaNdarray)


def test_set_value_keeps_memory_of_its_shape(on_device):
    w = pytensor.shared(values(1, 4, 4))
    array = w.get_value(borrow=True, return_internal_type=True)
    w.set_value(values(2, 4, 4))
    assert w.get_value(borrow=True, return_internal_type=True) is array
    w.set_value(values(3, 2, 4))
    assert w.get_value().shape == (2, 4)
    with pytest.raises(TypeError):
        w.set_value(np.ones((2, 2)))  # float64


def test_device_output_is_an_array(on_device):
    x = pytensor.shared(values(1, 5))
    f = pytensor.function([], backend.gpu_from_host(pt.exp(x)))
    first, second = f(), f()
    assert type(first) is gi.CudaNdarray
    assert first is not second
    np.testing.assert_allclose(first.get(), np.exp(x.get_value()), rtol=1e-6)


def test_transfers_say_why_and_what_to_do(on_device):
    x, w = pt.matrix("x", dtype="float32"), pytensor.shared(values(1, 4, 4), name="w")
    step = pytensor.function([x], pt.dot(x, w))
    up, down = backend.transfers(step)
    assert (up.value, up.direction) == ("x", "to the device")
    assert "shared variable" in up.fix
    assert down.direction == "to the host"
    assert "gpu_from_host" in down.fix
    stays = pytensor.function([], [], updates={w: pt.dot(w, w)})
    assert backend.transfers(stays) == []


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

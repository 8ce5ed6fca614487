"""Functions on a device compute what host PyTensor computes, whatever is collected, kept, replaced or reshaped."""

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from arrays import values
from pytensor.configdefaults import config

try:
    from pytensor.conditional.op import ifelse
except ImportError:  # before PyTensor 3.3
    from pytensor.ifelse import ifelse
from pytensor.raise_op import Assert
from pytensor.tensor.blas import gemm_no_inplace

import gpuinterop.pytensor as backend

# PyTensor before 3.3.6 raises OverflowError where it casts an integer to a dtype that does not hold it.
CASTS_WRAP = tuple(map(int, pytensor.__version__.split(".")[:3])) >= (3, 3, 6)


def mlp(x, w, v):
    hidden = pt.tanh(pt.dot(x, w) + v)
    return [(hidden**2).sum(), pt.grad((hidden**2).sum(), w)]


def logistic(x, w):
    y = pt.cast(x[:, 0] > 0, "float32")
    p = 1 / (1 + pt.exp(-pt.dot(x, w) - 0.5))
    cost = (-y * pt.log(p) - (1 - y) * pt.log(1 - p)).mean() + 0.01 * (w**2).sum()
    return [p > 0.5, cost], {w: w - 0.1 * pt.grad(cost, w)}


PLACES = pytensor.shared(np.array([3, 0, 3]), name="places")  # on the host, because it is int64

# Each makes outputs, or outputs and updates, of a matrix x and an integer i, which are arguments, and of three shared
# variables: a square matrix w, a vector v and a 3-d array t. Operations on the host are allowed only in `ON_HOST`.
GRAPHS = {
    "exp": lambda x, w, v, t, i: [pt.exp(x) * 2 + v],
    "several outputs": lambda x, w, v, t, i: [x + v, x - v, pt.sqr(x)],
    "comparison": lambda x, w, v, t, i: [pt.switch(x > v, x, v), x > 0],
    "ten results": lambda x, w, v, t, i: [pt.exp(x * k) for k in range(-5, 5)],
    "many operands": lambda x, w, v, t, i: [
        pt.add(v, *(pt.flatten(t)[k : k + 4] for k in range(24)))
    ],
    "one of two constants": lambda x, w, v, t, i: [
        pt.switch(x > 0, 1.0, 0.1) * x,
        pt.dot(pt.switch(x > 0, 1.0, 0.1), v) * 2,
    ],
    "cast": lambda x, w, v, t, i: [pt.cast(x > 0.5, "float32") * v],
    "sums": lambda x, w, v, t, i: [x.sum(), x.sum(axis=0), x.mean(axis=1), x.max(axis=1), x.prod()],
    "any and all": lambda x, w, v, t, i: [(x > 0).any(axis=0), (x > 0).all()],
    "product": lambda x, w, v, t, i: [pt.dot(x, w), pt.dot(x, v), pt.dot(x, w) * 0.5 + v],
    "outer": lambda x, w, v, t, i: [pt.outer(v, v)],
    "shapes": lambda x, w, v, t, i: [
        x.T,
        x.reshape((-1,)),
        x.dimshuffle(0, "x", 1),
        x.flatten() * 2,
    ],
    "slices": lambda x, w, v, t, i: [x[1:], x[::-1, 0], x[0] * v],
    "written slices": lambda x, w, v, t, i: [
        pt.set_subtensor(x[0], v),
        pt.inc_subtensor(x[:, 1], 1),
    ],
    "join": lambda x, w, v, t, i: [
        pt.concatenate([x, w], axis=0) * 2,
        pt.stack([v, v]),
        pt.join(0, v, np.array([1, 2], "int8")),
    ],
    "alloc": lambda x, w, v, t, i: [pt.zeros_like(x) + v, pt.alloc(v, 3, v.shape[0]) * 2],
    "updates": lambda x, w, v, t, i: ([w.sum()], {w: w - 0.1 * w * x.sum(), v: v * 0.5}),
    "swap": lambda x, w, v, t, i: ([], {w: w.T, v: v + 1}),
    "gradient": lambda x, w, v, t, i: (mlp(x, w, v), {w: w - 0.01 * mlp(x, w, v)[1]}),
    "softmax": lambda x, w, v, t, i: [
        pt.special.softmax(x, axis=1),
        pt.special.log_softmax(x, axis=1),
    ],
    "sigmoid": lambda x, w, v, t, i: [
        pt.sigmoid(x),
        pt.softplus(x),
        pt.log1p(pt.exp(-x)),
        pt.erf(x),
    ],
    "scalar of the host": lambda x, w, v, t, i: [
        x / x.shape[0],
        x * pt.cast(x.shape[1], "float32"),
    ],
    "view of a shared variable": lambda x, w, v, t, i: ([w, w[0], w.T], {w: w + 1}),
    "argmax": lambda x, w, v, t, i: [
        pt.argmax(x, axis=1),
        pt.argmax(w),
        pt.argmax(t, axis=(0, 2)),
        *pt.max_and_argmax(x, axis=0),
    ],
    "split": lambda x, w, v, t, i: pt.split(w, splits_size=[1, 3], axis=1),
    "products of several matrices": lambda x, w, v, t, i: [
        pt.matmul(t, t),
        t @ w,
        pt.tensordot(t, w, axes=[[2], [0]]),
    ],
    "products with an addend of another shape": lambda x, w, v, t, i: [
        gemm_no_inplace(w[:1], 0.5, x, w, 2.0),
        gemm_no_inplace(x, 0.5, w[:1], w, 2.0),
        gemm_no_inplace(x, 0.5, w[:1], w, 0.0),
    ],
    "batched gradient": lambda x, w, v, t, i: [pt.grad((pt.matmul(t, t) ** 2).sum(), t)],
    "dot products": lambda x, w, v, t, i: [pt.dot(v, v), pt.dot(w, v), pt.dot(v, w)],
    "products with vectors and what is around them": lambda x, w, v, t, i: (
        [
            pt.exp(pt.dot(x, v) * 0.1) + 1,
            pt.tanh(pt.dot(pt.exp(-v), w)),
            pt.dot(x * 2, v + 1).sum(),
            pt.dot(v * 2, pt.exp(v)),
            pt.dot(x, v)[:2] * 2,
        ],
        {v: v - 0.1 * pt.dot(w.T, pt.dot(w, v) - 1)},
    ),
    "logistic step": lambda x, w, v, t, i: logistic(x, v),
    "rank one": lambda x, w, v, t, i: ([], {w: w + 0.1 * pt.outer(v, v)}),
    "moving slices": lambda x, w, v, t, i: (
        [x[i : i + 2] * 2, w[i], pt.inc_subtensor(w[i], v), pt.set_subtensor(w[:, i], 0)],
        {w: pt.inc_subtensor(w[i, 1:], 1)},
    ),
    "index arrays": lambda x, w, v, t, i: (
        [
            w[[0, 2, 2]],
            x[:, [1, 1, 3]],
            t[[0, 2], :, [1, 3]],
            w[PLACES],
            w[[0, 1, 2], i],
            pt.set_subtensor(w[[0, 2]], 1.5),
            pt.inc_subtensor(x[[0, 2, 2]], w[:3]),
            pt.inc_subtensor(v[PLACES], 1),
        ],
        {w: pt.inc_subtensor(w[PLACES], v)},
    ),
    "masks": lambda x, w, v, t, i: [x[x > 0].sum(), pt.set_subtensor(x[x > 0], 0)],
    "gradients of indexing": lambda x, w, v, t, i: [
        pt.grad((x[[0, 2, 2]] ** 2).sum(), x),
        pt.grad((w[PLACES] * w[:3]).sum(), w),
        pt.grad((pt.inc_subtensor(w[[0, 1, 0]], x[:3]) ** 2).sum(), w),
        pt.grad(-pt.log(pt.special.softmax(x, axis=1)[pt.arange(3), PLACES]).mean(), x),
    ],
    "diagonals": lambda x, w, v, t, i: [
        pt.diag(w),
        pt.diag(w).sum(),
        w * pt.eye(4, dtype="float32"),
        x.T @ x + pt.eye(x.shape[1], dtype="float32"),
        x + pt.eye(x.shape[0], x.shape[1], 1, dtype="float32"),
    ],
    "filled diagonals": lambda x, w, v, t, i: [
        pt.fill_diagonal(x, v.sum()),
        pt.fill_diagonal(w[:2], 3),
        pt.fill_diagonal(w, pt.cast(i, "float32")),
        *pt.grad((pt.fill_diagonal(w, v.max()) ** 2).sum(), [w, v]),
    ],
    "variance": lambda x, w, v, t, i: [w.var(axis=0), w.std(), x.mean(axis=0)],
    "repeated": lambda x, w, v, t, i: [pt.repeat(w, 2, axis=0), pt.tile(v, (2, 3)), pt.roll(v, 1)],
    "numbers to a vector": lambda x, w, v, t, i: [pt.stack([w.sum(), v.max()])],
    "counts": lambda x, w, v, t, i: [(x > 0).sum(), pt.neq(x > 0, x > 0.5).mean()],
    "powers and remainders": lambda x, w, v, t, i: [
        x**3,
        pt.abs(x) ** 0.5,
        x % 2,
        x // 2,
        pt.clip(x, -1, 1),
        pt.clip(x, 0.5, -0.5),
        pt.clip(x, v, w[0]),
        pt.sign(x),
        pt.round(x),
    ],
    "integers": lambda x, w, v, t, i: [
        pt.cast(x * 10, "int32"),
        pt.cast(pt.cast(x, "int8"), "float32") + w[0],
    ],
    "ifelse": lambda x, w, v, t, i: [
        ifelse(v.sum() > 0, w * 2, w + 1),
        ifelse(i > 0, v.sum(), v.max()),
    ],
    "scan": lambda x, w, v, t, i: [
        pytensor.scan(lambda a: a * pt.tanh(v), outputs_info=v, n_steps=3, return_updates=False)
    ],
    "checked": lambda x, w, v, t, i: [Assert()(pt.exp(w), pt.ge(w.shape[0], 1)) * 2],
    "fixed shape": lambda x, w, v, t, i: [
        pt.specify_shape(w, (4, 4)) * 2,
        pt.dot(pt.specify_shape(x, (None, 4)), v),
    ],
    "fused reductions": lambda x, w, v, t, i: [
        (x**2).sum(),
        pt.exp(x).max(axis=0),
        pt.log(pt.abs(t) + 1).sum(axis=(0, 2)),
        (x * w[0]).min(axis=1),
    ],
    "gradients of reductions": lambda x, w, v, t, i: [
        pt.grad(x.max(axis=0).sum(), x),
        pt.grad((x.mean(axis=1) ** 2).sum(), x),
    ],
    "gradients of shapes": lambda x, w, v, t, i: [
        pt.grad((x[1:, ::2] ** 2).sum(), x),
        pt.grad((x.T.reshape((-1,)) ** 3).sum(), x),
        pt.grad((pt.concatenate([w, w * 2]) ** 2).sum(), w),
        pt.grad((pt.set_subtensor(w[0], v) ** 2).sum(), w),
        pt.grad(pt.diag(w).sum(), w),
    ],
    "gradient of softmax": lambda x, w, v, t, i: [
        pt.grad((pt.special.softmax(x, axis=1) ** 2).sum(), x)
    ],
    "gradient of ifelse": lambda x, w, v, t, i: [
        pt.grad(ifelse(v.sum() > 0, w * 2, w**2).sum(), w)
    ],
    "operations of the host": lambda x, w, v, t, i: [
        pt.cumsum(w, axis=0),
        pt.sort(x, axis=0),
        pt.grad(x.prod(), x),
    ],
    "updates that need each other": lambda x, w, v, t, i: (
        [w.sum(), pt.dot(w, v)],
        {w: w * 0.5 + pt.outer(v, v), v: pt.dot(w, v) * 0.1},
    ),
}


# Graphs of square matrices.
SQUARE = ("swap",)


def made(name, x, w, v, t, i):
    """The outputs and the updates of a graph."""
    found = GRAPHS[name](x, w, v, t, i)
    return found if isinstance(found, tuple) else (found, {})


def compiled(name, mode):
    x = pt.matrix("x", dtype="float32")
    i = pt.lscalar("i")
    w, v, t = (
        pytensor.shared(values(k, *shape), name=name)
        for k, shape, name in ((1, (4, 4), "w"), (2, (4,), "v"), (3, (3, 4, 4), "t"))
    )
    outputs, updates = made(name, x, w, v, t, i)
    step = pytensor.function([x, i], outputs, updates=updates, mode=mode, on_unused_input="ignore")
    return step, w, v


LAZY = ("ifelse", "gradient of ifelse")

# They have operations without a version on the device.
ON_HOST = ("operations of the host", "scan", "many operands")


@pytest.mark.parametrize(
    ("allow_gc", "inplace", "capture"),
    [(True, True, True), (False, True, True), (True, False, True), (True, True, False)],
    ids=["", "no gc", "no inplace", "no capture"],
)
@pytest.mark.parametrize("name", GRAPHS)
def test_graph_agrees_with_host(name, allow_gc, inplace, capture, device):
    floats = config.floatX
    config.allow_gc = allow_gc
    backend.use(device, capture=capture)
    try:
        tested, w, v = compiled(name, "GPU" if inplace else backend.GPU.excluding("inplace"))
        # No operation on the host reads an array of the device, unless it has no version there.
        nodes = tested.maker.fgraph.toposort()
        if name in ON_HOST:
            nodes = [node for node in nodes if backend.has_lowering(node.op)]
            nodes = [node for node in nodes if backend.device_inputs(node.op, node) is not None]
        for x in (x for node in nodes for x in node.inputs if getattr(x.type, "ndim", 0)):
            assert not isinstance(x.owner and x.owner.op, backend.HostFromGpu)
        uploads = [t for t in backend.transfers(tested) if t.direction == "to the device"]
        assert all(t.value in ("x", "places") for t in uploads) or name in ON_HOST
        backend.unuse()
        config.floatX = "float32"
        host, hw, hv = compiled(name, backend.HOST)
        backend.use(device, capture=capture)
        kept = []
        for step, rows in enumerate((4, 4, 4, 4, 3, 4, 7, 7, 7)):
            x, i = values(10 + step, rows, 4), step % 3
            if rows != 4 and name in SQUARE:
                continue
            found, expected = tested(x, i), host(x, i)
            kept.append((found, [np.array(e) for e in expected]))
            if step == 3:
                for mine, reference in ((w, hw), (v, hv)):
                    new = values(20, *reference.get_value().shape)
                    mine.set_value(new)
                    reference.set_value(new)
            np.testing.assert_allclose(w.get_value(), hw.get_value(), rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(v.get_value(), hv.get_value(), rtol=2e-5, atol=2e-5)
        parts = backend.replays(tested) if name not in LAZY else []
        assert not [p for p in parts if "Error" in p.why_not or "another object" in p.why_not]
        for found, expected in kept:  # results of earlier calls are still what they were
            for a, b in zip(found, expected, strict=True):
                assert np.asarray(a).dtype == b.dtype
                np.testing.assert_allclose(np.asarray(a), b, rtol=2e-5, atol=2e-5)
    finally:
        backend.unuse()
        config.allow_gc, config.floatX = True, floats

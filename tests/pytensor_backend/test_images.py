"""Convolutions and pooling under Theano's names, beside SciPy's convolution and loops over the windows."""

import itertools

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from arrays import values
from old_programs import run
from pytensor.gradient import verify_grad
from scipy.signal import convolve2d, correlate2d

from gpuinterop.theano.images import conv2d, pool_2d


def convolved(x, filters, pad, step, function):
    x = np.pad(x.astype("float64"), [(0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2])
    found = [
        [
            sum(function(a, b, "valid") for a, b in zip(image, weights, strict=True))
            for weights in filters
        ]
        for image in x
    ]
    return np.array(found)[:, :, :: step[0], :: step[1]]


@pytest.mark.parametrize(
    ("options", "pad"),
    [({}, (0, 0)), ({"border_mode": "full"}, (2, 3)), ({"border_mode": "half", "subsample": (2, 1)}, (1, 2)),
     ({"border_mode": "full", "filter_shape": (None, 3, None, 4)}, (2, 3)),
     ({"border_mode": (1, 0), "filter_flip": False}, (1, 0)), ({"border_mode": 2, "subsample": (2, 3)}, (2, 2))],
    ids=str,
)  # fmt: skip
def test_conv2d(options, pad, on_device) -> None:
    x, filters = values(0, 2, 3, 7, 8), values(1, 4, 3, 3, 4)
    shared = pytensor.shared(filters)
    symbol = pt.tensor4(dtype="float32")
    found = pytensor.function([symbol], conv2d(symbol, shared, **options))(x)
    function = convolve2d if options.get("filter_flip", True) else correlate2d
    expected = convolved(x, filters, pad, options.get("subsample", (1, 1)), function)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-4)


def pooled(x, window, step, mode, ignore_border, pad):
    """The windows that begin in the image, one by one."""
    h, w = x.shape[-2:]

    def starts(n, window, step, pad):
        whole = range(-pad, n + pad - window + 1, step)
        partly = (
            () if ignore_border or window + len(whole) * step - step == n else (len(whole) * step,)
        )
        return [*whole, *(start for start in partly if start < n)]

    def value(i, j):
        part = x[..., max(i, 0) : min(i + window[0], h), max(j, 0) : min(j + window[1], w)]
        if mode == "max":
            return part.max((-2, -1))
        count = {"sum": 1, "average_exc_pad": part[0, 0].size}.get(mode)
        if count is None:
            count = window[0] * window[1] if ignore_border else part[0, 0].size
        return part.sum((-2, -1)) / count

    rows, columns = (starts(x.shape[2 + i], window[i], step[i], pad[i]) for i in range(2))
    found = [value(i, j) for i, j in itertools.product(rows, columns)]
    return np.stack(found, -1).reshape(*x.shape[:2], len(rows), len(columns))


POOLS = [((2, 2), None, True, (0, 0)), ((2, 3), None, False, (0, 0)), ((3, 3), (2, 2), True, (1, 1)),
         ((3, 2), (2, 3), False, (0, 0)), ((2, 2), (3, 3), False, (0, 0))]  # fmt: skip


@pytest.mark.parametrize("mode", ["max", "sum", "average_inc_pad", "average_exc_pad"])
@pytest.mark.parametrize(("window", "step", "ignore_border", "pad"), POOLS)
def test_pool_2d(window, step, ignore_border, pad, mode, on_device) -> None:
    x = values(2, 2, 3, 7, 9)
    symbol = pt.tensor4(dtype="float32")
    y = pool_2d(symbol, window, ignore_border, step, pad, mode)
    found = np.asarray(pytensor.function([symbol], y)(x))
    expected = pooled(x, window, step or window, mode, ignore_border, pad)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [lambda x, f: conv2d(x, f, border_mode="half", subsample=(2, 1)), lambda x, _: pool_2d(x, (2, 2), False),
     lambda x, _: pool_2d(x, (3, 3), True, (2, 2), (1, 1))],
)  # fmt: skip
def test_gradients(function) -> None:
    rng = np.random.default_rng(0)
    verify_grad(
        lambda x, f: function(x, f) + f.sum(), [rng.random((2, 2, 5, 6)), rng.random((2, 2, 3, 3))], rng=rng
    )  # fmt: skip


LENET = """\
import numpy, theano, theano.tensor as T
from theano.tensor.nnet import conv
from theano.tensor.signal import downsample
rng = numpy.random.RandomState(1)
x, y = T.matrix('x'), T.ivector('y')
W = theano.shared(rng.uniform(-.3, .3, (4, 1, 5, 5)).astype(theano.config.floatX), borrow=True)
out = conv.conv2d(input=x.reshape((20, 1, 12, 12)), filters=W, filter_shape=(4, 1, 5, 5), image_shape=(20, 1, 12, 12))
h = T.tanh(downsample.max_pool_2d(input=out, ds=(2, 2), ignore_border=True)).flatten(2)
V = theano.shared(numpy.zeros((64, 2), theano.config.floatX))
cost = T.nnet.categorical_crossentropy(T.nnet.softmax(T.dot(h, V)), y).mean()
updates = [(p, p - 0.5 * T.grad(cost, p)) for p in (W, V)]
train = theano.function([x, y], cost, updates=updates, allow_input_downcast=True)
X = rng.rand(20, 144) + numpy.arange(20)[:, None] / 20
costs = [train(X, numpy.arange(20, dtype='int32') / 10) for _ in xrange(10)]
print '%.4f' % costs[0], costs[-1] < costs[0]
"""


def test_a_convolutional_network_trains(device, script) -> None:
    assert run(script(LENET), device="gpu", floatX="float32")[0] == "0.6931 True\n"

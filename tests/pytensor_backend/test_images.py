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
from scipy.signal import convolve, convolve2d, correlate2d

from gpuinterop.theano import images
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


@pytest.mark.parametrize("border_mode", [None, "same"])
def test_an_unknown_border_mode_is_refused(border_mode) -> None:
    with pytest.raises(ValueError, match=f"border_mode={border_mode!r}"):
        conv2d(*(values(i, *shape) for i, shape in enumerate(SHAPES)), border_mode=border_mode)


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
         ((3, 2), (2, 3), False, (0, 0)), ((2, 2), (3, 3), False, (0, 0)),
         ((10, 3), (2, 2), False, (0, 0))]  # fmt: skip


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


SHAPES = (2, 3, 7, 8), (4, 3, 3, 4)  # of images and filters


@pytest.mark.parametrize(
    ("border_mode", "subsample", "filter_flip"),
    [("valid", (1, 1), True), ("full", (2, 1), True), ("half", (1, 2), False), ((1, 2), (2, 2), False)],
    ids=str,
)  # fmt: skip
def test_gradients_of_convolutions_are_operations(
    border_mode, subsample, filter_flip, on_device
) -> None:
    """They are the transposed convolution: sum(y * conv(x, w)) == sum(x * back(y, w)) == sum(w * back(x, y))."""
    options = {"border_mode": border_mode, "subsample": subsample, "filter_flip": filter_flip}
    x, w = (pt.constant(values(i, *shape).astype("float64")) for i, shape in enumerate(SHAPES))
    found = images.AbstractConv2d(**options)(x, w)
    shape = images.get_conv_output_shape(*SHAPES, border_mode, subsample)
    assert found.shape.eval().tolist() == list(shape)
    y = pt.constant(values(2, *shape).astype("float64"))
    sums = [
        (y * found).sum(),
        (x * images.conv2d_grad_wrt_inputs(y, w, (None, None, 7, 8), **options)).sum(),
        (x * images.AbstractConv2d_gradInputs(**options)(w, y, x.shape[2:])).sum(),
        (w * images.conv2d_grad_wrt_weights(x, y, SHAPES[1], **options)).sum(),
        (w * images.AbstractConv2d_gradWeights(**options)(x, y, w.shape[2:])).sum(),
    ]
    numbers = [float(np.asarray(v)) for v in pytensor.function([], sums)()]
    np.testing.assert_allclose(numbers, numbers[0], rtol=1e-10)


@pytest.mark.filterwarnings("ignore:Loop fusion failed")  # of the arithmetic of unknown shapes
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("mode", ["valid", "full"])
def test_conv3d(mode, known, on_device) -> None:
    x, w = values(0, 2, 5, 2, 6, 7), values(1, 3, 2, 2, 3, 4)
    symbols = [pt.tensor5(dtype="float32") for _ in range(2)]
    shapes = (x.shape, w.shape) if known else ()
    y = images.conv3d(*symbols, *shapes, border_mode=("valid", mode, mode))
    found = np.asarray(pytensor.function(symbols, y)(x, w))
    padded = np.pad(x, [(0, 0)] * 3 + [(2, 2), (3, 3)]) if mode == "full" else x
    films, filters = (v.astype("float64").swapaxes(1, 2) for v in (padded, w))
    expected = [
        [
            sum(convolve(a, b, "valid") for a, b in zip(film, filter, strict=True))
            for filter in filters
        ]
        for film in films
    ]
    np.testing.assert_allclose(found, np.array(expected).swapaxes(1, 2), rtol=1e-4, atol=1e-4)
    for refused in ("full", ("valid", mode, "half")):
        with pytest.raises(NotImplementedError, match="border_mode"):
            images.conv3d(*symbols, border_mode=refused)


@pytest.mark.parametrize(
    ("window", "step", "mode"), [((2, 3), None, "valid"), ((3, 3), (1, 3), "valid"), ((4, 2), None, "ignore_borders")]
)  # fmt: skip
def test_windows_are_rows(window, step, mode, on_device) -> None:
    x = values(0, 2, 3, 6, 9)
    symbol = pt.tensor4(dtype="float32")
    rows = images.images2neibs(symbol, window, step, mode)
    (h, w), (dh, dw) = window, step or window
    expected = [
        plane[i : i + h, j : j + w].ravel()
        for plane in x.reshape(-1, 6, 9) for i in range(0, 6 - h + 1, dh) for j in range(0, 9 - w + 1, dw)
    ]  # fmt: skip
    found = pytensor.function([symbol], rows)(x)
    np.testing.assert_array_equal(np.asarray(found), expected)
    if step is None:
        back = images.neibs2images(rows, window, symbol.shape, mode)
        covered = np.zeros_like(x)
        covered[..., : 6 // h * h, : 9 // w * w] = x[..., : 6 // h * h, : 9 // w * w]
        np.testing.assert_array_equal(np.asarray(pytensor.function([symbol], back)(x)), covered)


def test_windows_that_do_not_cover_the_images_are_refused(on_device) -> None:
    x = pt.tensor4(dtype="float32")
    with pytest.raises(AssertionError, match="do not cover"):
        pytensor.function([x], images.images2neibs(x, (4, 3)))(values(0, 1, 1, 6, 9))
    with pytest.raises(NotImplementedError, match="wrap_centered"):
        images.images2neibs(x, (3, 3), mode="wrap_centered")


@pytest.mark.parametrize(("count", "filters"), [((), ()), ((2,), ()), ((), (3,)), ((2,), (3,))])
def test_signal_conv2d_has_no_channels(count, filters, on_device) -> None:
    x, w = (
        values(i, *shape).astype("float64")
        for i, shape in enumerate([(*count, 6, 7), (*filters, 2, 3)])
    )
    found = images.signal_conv2d(
        pt.constant(x), pt.constant(w), border_mode="full", subsample=(2, 3)
    )
    expected = [
        convolve2d(a, b)[::2, ::3] for a in x.reshape(-1, 6, 7) for b in w.reshape(-1, 2, 3)
    ]
    found = np.asarray(pytensor.function([], found)())
    np.testing.assert_allclose(found, np.reshape(expected, (*count, *filters, 4, 3)))


def test_operations_of_cudnn_are_those_of_theano(on_device) -> None:
    x, w = (pt.constant(values(i, *shape)) for i, shape in enumerate(SHAPES))
    pairs = [
        (images.dnn_conv(x, w), conv2d(x, w)),
        (images.dnn_conv(x, w, "half", (2, 2), "cross"), images.GpuCorrMM("half", (2, 2))(x, w)),
        (images.GpuCorrMM(pad=(1, 1))(x, w), conv2d(x, w, border_mode=1, filter_flip=False)),
        (
            images.dnn_pool(x, (3, 3), (2, 2), "max", (1, 1)),
            pool_2d(x, (3, 3), True, (2, 2), (1, 1)),
        ),
        (
            images.dnn_pool(x, (3, 2), (2, 1), "average", (1, 0)),
            images.Pool((3, 2), True, (2, 1), (1, 0), "average_inc_pad")(x),
        ),
        (
            images.dnn_pool(x, (3, 3)),
            pool_2d(ws=(3, 3), input=x, ignore_border=True, stride=(1, 1)),
        ),
        (
            pool_2d(x, None, True, None, mode="sum", ws=(3, 2), stride=(1, 2), pad=(1, 1)),
            pool_2d(x, (3, 2), True, (1, 2), (1, 1), "sum"),
        ),
    ]
    for one, other in pairs:
        found, expected = (np.asarray(v) for v in pytensor.function([], [one, other])())
        np.testing.assert_array_equal(found, expected)


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

"""Functions of Theano that PyTensor has in another form: their results, modes, random numbers and errors."""

import itertools
import sys
import types

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from old_programs import run

from gpuinterop import theano as names
from gpuinterop.theano import nnet, tensor
from gpuinterop.theano.random import RandomStreams

MATRIX = np.arange(6, dtype="float64").reshape(2, 3)
SHIFTED = np.exp(MATRIX + np.array([1, 0, 0]))
SHIFTED /= SHIFTED.sum(axis=1, keepdims=True)
SQUARE = np.array([[2.0, 1], [3, 4]])
FOUR = np.random.default_rng(1).random((2, 2, 2, 2))
ROWS = np.exp(MATRIX) / np.exp(MATRIX).sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("result", "expected"),
    [(nnet.softmax(MATRIX), ROWS), (nnet.logsoftmax(MATRIX), np.log(ROWS)), (nnet.softmax(MATRIX[1]), ROWS[1:]),
     (nnet.crossentropy_softmax_argmax_1hot_with_bias(MATRIX, [1, 0, 0], [2, 0])[0],
      -np.log(SHIFTED[[0, 1], [2, 0]])),
     (nnet.crossentropy_softmax_1hot(MATRIX, [2, 0])[1], ROWS),
     (tensor.stack(pt.constant(1), pt.constant(2)), [1, 2]),
     (tensor.stack([MATRIX, MATRIX], 1), np.stack([MATRIX] * 2, 1)),
     (tensor.stack([MATRIX, MATRIX], axis=2), np.stack([MATRIX] * 2, 2)),
     (tensor.split(pt.constant(MATRIX), [1, 2], 2, axis=1)[1], MATRIX[:, 1:]),
     (tensor.flatten(pt.ones((2, 3, 4)), outdim=2), np.ones((2, 12))),
     (tensor.flatten(pt.constant(MATRIX)), MATRIX.ravel()),
     (tensor.batched_dot(np.ones((2, 3, 4)), np.ones((2, 4, 5))), np.full((2, 3, 5), 4.0)),
     (tensor.batched_dot(MATRIX, MATRIX), (MATRIX * MATRIX).sum(1)),
     (tensor.batched_dot(np.ones((2, 3, 4)), np.ones((2, 4))), np.full((2, 3), 4.0)),
     (tensor.batched_dot(np.ones((2, 4)), np.ones((2, 4, 3))), np.full((2, 3), 4.0)),
     (tensor.batched_tensordot(FOUR, FOUR.T), np.einsum("zabc,zbcd->zad", FOUR, FOUR.T)),
     (tensor.batched_tensordot(FOUR, FOUR, [2, 1]), np.einsum("zabc,zbde->zacde", FOUR, FOUR)),
     (tensor.batched_tensordot(FOUR, FOUR, [[3, 1], [2, 1]]), np.einsum("zabc,zacd->zbd", FOUR, FOUR)),
     (nnet.batch_normalization(pt.constant(MATRIX), 2, 1, MATRIX.mean(0), MATRIX.std(0)), [[-1] * 3, [3] * 3]),
     (tensor.solve_lower_triangular(SQUARE, SQUARE[0]), np.linalg.solve(np.tril(SQUARE), SQUARE[0])),
     (tensor.solve_upper_triangular(SQUARE, SQUARE[0]), np.linalg.solve(np.triu(SQUARE), SQUARE[0]))],
)  # fmt: skip
def test_functions_have_theanos_form(result, expected) -> None:
    value = np.asarray(result.eval())
    assert value.shape == np.shape(expected)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("function", [tensor.real, tensor.conj])
def test_parts_of_real_numbers_leave_the_argument_as_it_is(function) -> None:
    x = pt.dvector()
    mode = pytensor.compile.mode.Mode("py", "fast_run")
    compute = pytensor.function([x], pt.exp(pt.sqr(function(x))), mode=mode)
    given = np.array([1.0, 2.0])
    np.testing.assert_allclose(compute(given), np.exp([1.0, 4.0]))
    assert given.tolist() == [1, 2]


SOFTMAX_REGRESSION = """\
import numpy
import theano
import theano.tensor as T

rng = numpy.random.RandomState(1234)
N, batch_size = 60, 20
X = rng.randn(N, 4).astype(theano.config.floatX)
Y = numpy.argmax(X[:, :3], axis=1)
data_x = theano.shared(X, borrow=True)
data_y = T.cast(theano.shared(numpy.asarray(Y, theano.config.floatX)), 'int32')
index, x, y = T.lscalar(), T.matrix('x'), T.ivector('y')
W = theano.shared(numpy.zeros((4, 3), theano.config.floatX), name='W')
b = theano.shared(numpy.zeros(3, theano.config.floatX), name='b')
p = T.nnet.softmax(T.dot(x, W) + b)
cost = -T.mean(T.log(p)[T.arange(y.shape[0]), y])
g_W, g_b = T.grad(cost, [W, b])
part = slice(index * batch_size, (index + 1) * batch_size)
train = theano.function([index], cost, updates=[(W, W - 0.5 * g_W), (b, b - 0.5 * g_b)],
                        givens={x: data_x[part], y: data_y[part]}, mode='FAST_RUN')
for epoch in xrange(3):
    costs = [train(i) for i in xrange(N / batch_size)]
print ' '.join('%.9g' % v for v in list(W.get_value().ravel()) + [costs[-1]])
"""


def softmax_regression() -> list[float]:
    """The same in NumPy's float64."""
    x = np.random.RandomState(1234).randn(60, 4).astype("float32").astype("float64")
    y = np.eye(3)[x[:, :3].argmax(1)]
    w, b = np.zeros((4, 3)), np.zeros(3)
    for i in list(range(3)) * 3:
        part = slice(20 * i, 20 * i + 20)
        e = np.exp(x[part] @ w + b)
        p = e / e.sum(1, keepdims=True)
        cost = -(y[part] * np.log(p)).sum(1).mean()
        slope = (p - y[part]) / 20
        w, b = w - 0.5 * x[part].T @ slope, b - 0.5 * slope.sum(0)
    return [*w.ravel(), cost]


def test_softmax_regression_with_minibatches(device, script) -> None:
    out, _ = run(script(SOFTMAX_REGRESSION), device="gpu", floatX="float32")
    np.testing.assert_allclose([float(v) for v in out.split()], softmax_regression(), atol=1e-5)


MODES = """\
import numpy, theano, theano.tensor as T
x = T.vector()
w = theano.shared(numpy.ones(3, 'float32'))
get_mode, Mode = theano.compile.mode.get_mode, theano.Mode
for mode in ['FAST_RUN', 'FAST_COMPILE', 'ProfileMode', get_mode('FAST_RUN'), Mode(linker='vm'),
             Mode('cvm', 'fast_compile'), Mode(optimizer=None), None]:
    f = theano.function([x], T.exp(x) + w, mode=mode)
    on_gpu = [type(node.op).__name__.startswith('Gpu') for node in f.maker.fgraph.toposort()]
    print '%.4f' % f([0, 1, 2])[1], any(on_gpu)
print theano.config.mode, theano.config.compute_test_value
theano.config.mode = 'FAST_COMPILE'
assert theano.function([x], x, mode=theano.config.mode).maker.mode is theano.compile.get_default_mode()
print theano.config.mode, '%.4f' % theano.function([], w.sum() * 2)()
try:
    theano.config.device = 'gpu'
except Exception, error:
    print 'refused'
theano.config.compute_test_value = 'raise'
print theano.config.compute_test_value
"""


def test_modes_of_a_function_compile_for_the_device(device, script) -> None:
    out, err = run(script(MODES), device="gpu", floatX="float32", mode="FAST_RUN")
    on_gpu = str(device).startswith("cuda")
    assert out.splitlines() == [f"3.7183 {on_gpu}"] * 8 + [
        "FAST_RUN off",
        "FAST_COMPILE 6.0000",
        "refused",
        "raise",
    ]
    assert err.count("Function profiling") == err.count(" in transfer op") == 1
    assert "theano.config.compute_test_value has no effect in gpuinterop" in err


USE = """\
import numpy, theano, theano.sandbox.cuda as cuda, theano.tensor as T
from theano.ifelse import ifelse
for change in [lambda: None, lambda: cuda.use('gpu0'), cuda.unuse]:
    change()
    w = theano.shared(numpy.ones(3, 'float32'))
    f = theano.function([], w * 2)
    assert (theano.function([], ifelse(T.gt(w.sum(), 5), w, w * 2))() == 2).all()
    assert (theano.function([], ifelse(T.gt(w.sum(), 1), (w, w * 2), (w * 2, w))[0])() == 1).all()
    on_gpu = [type(node.op).__name__.startswith('Gpu') for node in f.maker.fgraph.toposort()]
    print cuda.cuda_enabled, any(on_gpu), type(f.vm).__name__, f().sum()
"""


def test_a_program_chooses_its_device(device, script) -> None:
    on_gpu = str(device).startswith("cuda")
    out, err = run(script(USE), device="cpu", floatX="float32")
    assert out.splitlines() == [f"{used} {used} GpuVM 6.0" for used in (False, on_gpu, False)]
    assert ("Using gpu device 0" if on_gpu else "No GPU for device=gpu0") in err


@pytest.mark.filterwarnings("ignore:Random(Stream|Variable)|Setting default_update")
def test_random_streams_have_theanos_arguments() -> None:
    streams = RandomStreams(seed=1)
    uniform = pytensor.function([], streams.uniform((200, 300), -1, 3, dtype="float32"))
    first, second = uniform(), uniform()
    assert (first.shape, first.dtype) == ((200, 300), "float32")
    assert (first != second).any()
    assert (first.min(), first.max()) == pytest.approx((-1, 3), abs=0.01)
    normal = streams.normal((200, 300), avg=5, std=0.1).eval()
    assert (normal.mean(), normal.std()) == pytest.approx((5, 0.1), abs=0.01)
    x = pt.vector("x")
    mask = pytensor.function([x], streams.binomial(size=x.shape, n=1, p=0.25, dtype="float32"))(
        np.zeros(90000, x.dtype)
    )
    assert set(mask.tolist()) == {0, 1}
    assert mask.mean() == pytest.approx(0.25, abs=0.01)
    p = np.array([[0.5, 0, 0.5], [0, 1, 0]], "float32") * np.float32(1.0000002)
    rows = streams.multinomial(n=1, pvals=pt.constant(p)).eval()
    assert (rows.sum(1).tolist(), rows[1].tolist(), rows[0, 1]) == ([1, 1], [0, 1, 0], 0)
    assert set(streams.random_integers((1000,), low=2, high=4).eval().tolist()) == {2, 3, 4}
    orders = streams.permutation((50,), n=3).eval()
    assert {tuple(row) for row in orders.tolist()} == set(itertools.permutations(range(3)))
    assert set(streams.choice((1000,), a=[5, 7]).eval().tolist()) == {5, 7}
    assert sorted(streams.choice((4,), a=4, replace=False).eval().tolist()) == [0, 1, 2, 3]
    with pytest.raises(AttributeError, match=r"has no poisson .* use pytensor\.tensor\.random"):
        streams.poisson(3)


MISSING = """\
import theano, theano.tensor as T
from theano.tensor.basic import dot
from theano.tensor.var import TensorVariable
from theano.compile.nanguardmode import NanGuardMode
from theano.sandbox.rng_mrg import MRG_RandomStreams
import theano.tensor.nlinalg
assert isinstance(T.var(T.matrix()), TensorVariable)
for text in ['from theano.tensor import raw_random', 'from theano.sandbox.cuda import GpuConv; GpuConv()',
             'T.nnet.h_softmax', 'from theano.gpuarray import init_dev',
             'import theano.nosuch.part', 'from theano import nosuch', 'import theano.tensor.raw_random']:
    try:
        exec(text)
    except (ImportError, AttributeError, NotImplementedError), error:
        print error
"""


def test_a_missing_name_is_an_error_that_gives_its_replacement(script) -> None:
    images = "use theano.tensor.nnet.conv2d and theano.tensor.signal.pool.pool_2d, or PyTorch on shared memory"
    expected = {
        "theano.tensor.raw_random": "use pytensor.tensor.random, which draws on the host",
        "theano.sandbox.cuda.GpuConv": images,
        "theano.tensor.nnet.h_softmax": "use the operations of theano.tensor that define it",
        "theano.sandbox.gpuarray.init_dev": "use the one device that device= chooses",
        "theano.nosuch": "look for the name in pytensor",
    }
    lines = [line.split(" (see")[0] for line in run(script(MISSING), device="cpu")[0].splitlines()]
    assert lines[5:] == [lines[4], lines[0]]
    assert lines[:5] == [
        f"{name} is missing in gpuinterop; {fix}" for name, fix in expected.items()
    ]


def test_a_theano_that_is_imported_already_wins(monkeypatch) -> None:
    present = types.ModuleType("theano")
    monkeypatch.setitem(sys.modules, "theano", present)
    names.install({"THEANO_FLAGS": "device=tpu", "THEANORC": ""})
    assert sys.modules["theano"] is present


def test_host_functions_are_not_fused_without_a_compiler(tmp_path) -> None:
    """PyTensor would compute the fused operation element by element in Python."""
    script = tmp_path / "unfused.py"
    script.write_text(
        "import theano, theano.tensor as T\nx = T.vector()\nf = theano.function([x], T.exp(x) * 2)\n"
        "print f.maker.fgraph.toposort()\n"
    )
    out, _ = run(script, device="cpu", floatX="float32")
    assert out.count("Elemwise{exp") == 2  # the operation, and the result that the next one reads
    assert "Composite" not in out

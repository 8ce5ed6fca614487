"""What programs of Theano's time do beside calling its functions: flags, inputs, modes, and their own operations."""

import copy

import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from old_programs import run

from gpuinterop.theano.functions import In, Param, with_defaults


def function(inputs, output):
    return with_defaults(pytensor.function(inputs, output), inputs)


def test_inputs_have_default_values() -> None:
    x, y, w = pt.dscalars("x", "y", "w")
    inputs = [x, In(y, value=1), Param(w, default=2, name="w_by_name")]
    f = function(inputs, (x + y) * w)
    assert [float(v) for v in (f(33), f(33, 2), f(33, 0, 1), f(33, w_by_name=1), f(x=33, w_by_name=1, y=0))] == [
        68, 70, 33, 34, 33,
    ]  # fmt: skip
    assert f.maker.fgraph.outputs
    assert copy.copy(f)(1) == 4
    with pytest.raises(TypeError, match="Missing input: x"):
        f(y=1)
    v = pt.dvector()
    assert function([In(v, value=[1, 2]), x], v.sum() * x)(x=5) == 15
    with pytest.raises(ValueError, match=r"theano\.shared"):
        In(x, value=1, update=x + 1)


PROGRAM = """\
import os
os.environ['THEANO_FLAGS'] = 'device=cpu,floatX=float32,nvcc.fastmath=True'
import theano, numpy, theano.tensor as T, theano.sparse.basic
theano.config.warn.sum_sum_bug = False
theano.config.dnn.conv.algo_fwd = 'small'
theano.config.gcc.cxxflags = '-O2'
theano.config.optimizer = 'fast_compile'
print theano.config.floatX, theano.config.gcc.cxxflags, theano.config.dnn.conv.algo_fwd
x = T.vector('x')
if not x or not theano.shared(1):
    print 'false'
try:
    if x > 1: print 'true'
except TypeError, error:
    print error

def watch(i, node, fn):
    print i, node.op, [v[0] for v in fn.inputs]
    theano.printing.debugprint(node)

theano.function([x], -x, mode=theano.compile.MonitorMode(pre_func=watch))([1])
print theano.sparse.dense_from_sparse(theano.sparse.csr_matrix('s')).ndim
print theano.clone(x * 2, replace={x: x + 1}, share_inputs=True).eval({x: [1]})

class C(theano.Op):
    __props__ = ()
    def make_node(self, x): return theano.Apply(self, [x], [x.type()])
    def c_code(self, node, name, inputs, outputs, sub): return ''

theano.function([x], C()(x))([1])
"""


def test_a_program_sets_flags_before_and_after_the_import(script) -> None:
    text = script(PROGRAM)
    with pytest.raises(AssertionError) as raised:
        run(text, device="tpu")
    shown = str(raised.value)
    for line, name in ((3, "Theano's flag nvcc.fastmath"), (4, "theano.config.warn.sum_sum_bug"),
                       (5, "theano.config.dnn.conv.algo_fwd")):  # fmt: skip
        assert f"{text}:{line}: UserWarning: {name} has no effect in gpuinterop" in shown
    assert "theano.config.gcc" not in shown
    assert (
        "NotImplementedError: C has no perform(), and gpuinterop does not compile c_code" in shown
    )
    out, _ = run(script(PROGRAM.rpartition("theano.function")[0]), device="tpu")
    assert out.splitlines() == [
        "float32 -O2 small", "a comparison of symbolic variables has no value yet; use T.switch, or compile a function",
        "0 Elemwise{neg,no_inplace} [array([1.], dtype=float32)]", "Elemwise{neg,no_inplace} [@A] ''", " |x [@B]",
        "2", "[4.]",
    ]  # fmt: skip


def test_a_program_without_theano_needs_no_flags(script) -> None:
    assert run(script("print 1\n"), device="tpu")[0] == "1\n"


def test_the_tutorial_s_gibbs_chain_has_persistent_state(script) -> None:
    text = """\
import numpy, theano, theano.tensor as T
from theano.tensor.shared_randomstreams import RandomStreams
rng, W = RandomStreams(1), theano.shared(numpy.eye(3, dtype=theano.config.floatX), name='W')
state = theano.shared(numpy.zeros((20, 3), theano.config.floatX))
def step(h):
    mean = T.nnet.sigmoid(T.dot(h, W))
    return [mean, rng.binomial(size=mean.shape, n=1, p=mean, dtype=theano.config.floatX)]
(means, samples), updates = theano.scan(step, outputs_info=[None, state if state else W], n_steps=3)
end = samples[-1]
cost = T.grad(T.dot(end, W).sum(), W, consider_constant=[end])
updates[state] = end
f = theano.function([], cost, updates=updates)
print f().shape, state.get_value().sum() > 0, (state.get_value() == (f(), state.get_value())[1]).all()
"""
    assert run(script(text), device="cpu", floatX="float32")[0] == "(3, 3) True False\n"


# A program, and what Python 2.7 with Theano 0.8.2 prints for it.
TRAINING = """\
import numpy as np, theano, theano.tensor as T
from theano.ifelse import ifelse
rng = np.random.RandomState(0)
data, kinds = rng.randn(40, 6), rng.randint(0, 3, 40)
x, y, rate = T.dmatrix('x'), T.ivector('y'), T.dscalar('rate')
W, h = theano.shared(np.zeros((4, 3)), 'W'), theano.shared(rng.randn(6, 4) / 2, 'h')
p = T.nnet.softmax(T.dot(T.tanh(T.dot(x, h)), W))
cost = T.nnet.categorical_crossentropy(p, y).mean() + .01 * (W ** 2).sum()
moves = [(w, theano.shared(np.zeros_like(w.get_value()))) for w in W, h]
updates = []
for w, m in moves:
    step = .5 * m - rate * T.grad(cost, w)
    updates += [(m, step), (w, w + step)]
train = theano.function([x, y, theano.Param(rate, default=.5)], [cost, T.neq(T.argmax(p, 1), y).sum()], updates=updates)
for epoch in xrange(6):
    loss, wrong = train(data, kinds.astype('int32')) if epoch % 2 else train(data, kinds.astype('int32'), .1)
    print 'epoch %d/%d' % (epoch, 5), '%.4f' % loss, wrong
k, v = T.iscalar('k'), T.dvector('v')
powers, _ = theano.scan(lambda before, v: before * v, outputs_info=T.ones_like(v), non_sequences=v, n_steps=k)
print theano.function([v, k], powers)([1, 2, 3], 3).tolist()
print theano.function([v, k], powers[-1])(range(3), 7 / 2).tolist()
print theano.function([k], ifelse(T.lt(k, 3), k * 2, -k))(2)
print [int(theano.function([k], f)(5)) for f in T.sqr(k), -k / 2, k % -3]
H = theano.function([v], T.hessian((v ** 3).sum(), v))
print H([1, 2]).tolist(), theano.function([v], T.Rop(v ** 2, v, v[::-1]))([1, 2]).tolist()
try:
    train(data, kinds)
except TypeError, error:
    print 'refused', 'int32' in str(error)
"""
TRAINED = """\
epoch 0/5 1.0986 25
epoch 1/5 1.0969 22
epoch 2/5 1.0883 22
epoch 3/5 1.0833 22
epoch 4/5 1.0766 22
epoch 5/5 1.0730 22
[[1.0, 2.0, 3.0], [1.0, 4.0, 9.0], [1.0, 8.0, 27.0]]
[0.0, 1.0, 8.0]
4
[25, -3, -1]
[[6.0, 0.0], [0.0, 12.0]] [4.0, 4.0]
refused True
"""


def test_a_program_that_trains_prints_what_theano_printed(script) -> None:
    assert run(script(TRAINING), device="cpu")[0] == TRAINED

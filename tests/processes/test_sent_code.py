"""Functions, kernels, classes and errors that a program sends to a worker: by pickle, by cloudpickle, by copy."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import gpuinterop as gi

cloudpickle = pytest.importorskip("cloudpickle")

OFFSET = 3.0


@gi.fuse
def shifted(x):
    return x * 2 + OFFSET


@gi.fuse(static_argnames="order")
def powers(x, order, *, scale=1.0):
    return sum(x**n for n in range(1, order)) * scale


class Model:
    """A user's class whose method is fused."""

    def __init__(self, rate):
        self.rate = rate

    @gi.fuse
    def step(self, x):
        return x * self.rate


class Noted(gi.RawKernel):
    """A user's kernel class with an attribute of its own."""


def closure(weights):
    return gi.fuse(lambda x: (x * weights).sum())


def raw():
    kernel = Noted(
        "__global__ void k(float* x) { x[0] = 1; }", "k", ("-lineinfo",), any_strides=True
    )
    kernel.note = "kept"
    return kernel


def expression():
    graph = gi.Expression()
    x, y = graph.input(), graph.input()
    return graph.compile([graph.apply("add", graph.apply("exp", x), y)], "sums")


def generator():
    """Return a generator in the middle of its stream, and of a block of four values."""
    rng = gi.random.default_rng(5, device="cpu")
    rng.random(3)
    rng.integers(0, 9, 5, dtype="uint8")
    return rng


def raised(call):
    with pytest.raises(gi.GpuInteropError) as caught:
        call()
    return caught.value


X = gi.asarray([1.0, 2.0], device="cpu")
# What is sent, what the worker computes of it as `f`, and the result's repr.
SENT = {
    "the package": (lambda: gi, "f.exp(f.zeros(2, device='cpu')).tolist()", "[1.0, 1.0]"),
    "a module that is a function": (lambda: gi.devices, "len(f()) > 0", "True"),
    "the namespace of arrays": (lambda: X.__array_namespace__(), "f.pi > 3", "True"),
    "a lambda that names the package": (
        lambda: lambda x: gi.exp(x) + gi.devices.device("cpu").index, "f(x - x).tolist()", "[1.0, 1.0]"),
    "an operation": (lambda: gi.exp, "f is gi.exp", "True"),
    "a reduction": (lambda: gi.sum, "f is gi.sum", "True"),
    "a converter": (lambda: gi.converters.to_numpy, "f is gi.converters.to_numpy", "True"),
    "a function of the standard": (lambda: gi.array_api.linalg.matmul, "f is gi.array_api.linalg.matmul", "True"),
    "a borrowed function": (lambda: gi.via.numpy.sort, "f(-x).tolist()", "[-2.0, -1.0]"),
    "a borrowed function that copies": (
        lambda: gi.via(copyif=True).numpy.linalg.norm, "str(f)", "'<numpy.linalg.norm, for gpuinterop arrays>'"),
    "classes": (lambda: (gi.CudaNdarray, gi.GpuArray), "f[1] is gi.GpuArray", "True"),
    "a fused function": (lambda: shifted, "f(x).tolist()", "[5.0, 7.0]"),
    "a fused function with options": (lambda: powers, "f(x, 3, scale=2.0).tolist()", "[4.0, 12.0]"),
    "a fused lambda": (lambda: gi.fuse(lambda x: x + 1), "f(x).tolist()", "[2.0, 3.0]"),
    "a fused closure": (lambda: closure(X), "f(x).tolist()", "5.0"),
    "a fused method": (lambda: Model(4.0), "f.step(x).tolist()", "[4.0, 8.0]"),
    "an elementwise kernel": (
        lambda: gi.ElementwiseKernel("T x", "T y", "y = x * 2", "twice", host=lambda x: x * 2), "f(x).tolist()",
        "[2.0, 4.0]"),
    "a raw kernel": (raw, "f.name, f.options, f.any_strides, f.note", "('k', ('-lineinfo',), True, 'kept')"),
    "CUDA text": (lambda: gi.CudaText("T x", "T y", "y = x", "same"), "str(f)", "'same(T x) -> T y'"),
    "a compiled expression": (expression, "f(x - x, x).tolist()", "[2.0, 3.0]"),
    "a strided argument": (lambda: gi.strided(X[::-1]), "f.array.strides", "(-4,)"),
    "dtypes": (lambda: [X.dtype, np.dtype("int8")], "f[1].name", "'int8'"),
    "a device": (lambda: gi.device("cpu"), "f is gi.device('cpu')", "True"),
    "an error": (lambda: raised(lambda: X + gi.zeros(5, device="cpu")), "f.where, f.reason", "('add', 'shape')"),
    "a plan": (lambda: gi.explain(X, "numpy"), "f.shared, str(f)", "(True, 'to_numpy: shared')"),
    "a generator": (generator, "f.random(5).tolist()", repr(generator().random(5).tolist())),
    "a captured generator": (
        lambda: (lambda rng: lambda: rng.integers(0, 99, 3).tolist())(generator()), "f()",
        repr(generator().integers(0, 99, 3).tolist())),
    "an array": (lambda: X[::-1], "f.tolist(), f.strides", "([2.0, 1.0], (-4,))"),
}  # fmt: skip

WORKER = """
import pickle, sys
import gpuinterop as gi
assert [str(d) for d in gi.devices.devices()] == ["cpu"]
results = []
for text, expression in pickle.load(sys.stdin.buffer):
    try:
        f = pickle.loads(text)
        results.append(repr(eval(expression, {"f": f, "gi": gi, "x": gi.asarray([1.0, 2.0], device="cpu")})))
    except Exception as error:
        results.append(f"{type(error).__name__}: {error}")
sys.stdout.buffer.write(pickle.dumps(results))
"""


def run(code: str, given: bytes = b"") -> bytes:
    """Run a program in a new process that finds no driver and none of the modules of the tests."""
    environment = {**os.environ, "GPUINTEROP_LIBCUDA": "libnone.so", "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, env=environment, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def results():
    this = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(this)
    try:
        sent = [(cloudpickle.dumps(make()), check) for make, check, _ in SENT.values()]
    finally:
        cloudpickle.unregister_pickle_by_value(this)
    return dict(zip(SENT, pickle.loads(run(WORKER, pickle.dumps(sent))), strict=True))


@pytest.mark.parametrize("name", SENT)
def test_a_new_process_without_a_gpu_computes_what_was_sent(name, results):
    assert results[name] == SENT[name][2]


NAMED = [
    name
    for name in SENT
    if "lambda" not in name and name not in ("a fused closure", "a captured generator")
]


def with_named_host(name):
    """Return what is sent; a host function that is a lambda has no name, so NumPy's replaces it."""
    if name == "an elementwise kernel":
        return gi.ElementwiseKernel("T x", "T y", "y = x", "same", host=np.positive)
    return SENT[name][0]()


@pytest.mark.parametrize("name", NAMED)
def test_pickle_and_copy_suffice_for_what_has_a_name(name):
    made = with_named_host(name)
    texts = [pickle.dumps(made, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    sent = [copy.copy(made), copy.deepcopy(made), *map(pickle.loads, texts)]
    assert {type(x) for x in sent} == {type(made)}
    assert len({str(x).partition(" at 0x")[0] for x in sent}) == 1


def test_functions_are_the_same_object_after_pickle_and_copy():
    for function in (gi.exp, gi.sum, gi.where, shifted, powers, Model.step, gi.array_api.abs):
        for same in (copy.copy(function), copy.deepcopy(function)):
            assert same is function
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(function, protocol)) is function


def test_a_copied_generator_goes_on_by_itself_and_a_shallow_copy_draws_from_the_same_stream():
    """As NumPy's generators do."""
    for made in (np.random.default_rng(5), generator()):
        texts = pickle.dumps(made), cloudpickle.dumps(made)
        sent = copy.deepcopy(made), *map(pickle.loads, texts)
        same = copy.copy(made)
        expected = made.random(2).tolist(), same.random(2).tolist()
        assert expected[0] != expected[1]
        for other in sent:
            assert (other.random(2).tolist(), other.random(2).tolist()) == expected


def test_a_fused_function_without_a_name_is_refused_by_pickle_alone():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(closure(X))
    assert pickle.loads(cloudpickle.dumps(closure(X)))(X).tolist() == 5


def test_a_fused_function_sent_as_code_is_not_taken_for_the_one_of_the_module():
    this = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(this)
    try:
        text = cloudpickle.dumps(shifted)
    finally:
        cloudpickle.unregister_pickle_by_value(this)
    again = pickle.loads(text)
    assert again is not shifted
    assert (again.__qualname__, again(X).tolist()) == ("shifted", [5, 7])


def test_a_copied_graph_does_not_mix_up_its_values():
    graph = gi.Expression()
    x = graph.input()
    one = graph.apply("exp", x)
    graph, x, one = pickle.loads(pickle.dumps((graph, x, one)))
    made = [graph.apply("add", graph.apply("sin", x), k) for k in range(50)]
    both = graph.compile([one, made[7]])
    zeros = gi.zeros(2, device="cpu")
    assert [value.tolist() for value in both(zeros)] == [[1, 1], [7, 7]]


MAIN = """
import subprocess, sys
import cloudpickle
import gpuinterop as gi

@gi.fuse
def tripled(x):
    return gi.exp(x) * 3

class Step:
    @gi.fuse
    def run(self, x):
        return tripled(x) + 1

worker = "import pickle, sys; print(pickle.load(sys.stdin.buffer)())"
for work in (lambda: tripled(gi.zeros(2)).tolist(), lambda: Step().run(gi.zeros(1)).tolist()):
    print(subprocess.run([sys.executable, "-c", worker], input=cloudpickle.dumps(work),
                         capture_output=True, check=True).stdout.decode().strip())
import pickle
assert pickle.loads(pickle.dumps(tripled)) is tripled
"""


def test_functions_of_a_script_reach_a_worker():
    assert run(MAIN).decode().split("\n")[:2] == ["[3.0, 3.0]", "[4.0]"]


@pytest.mark.gpu
def test_a_launched_raw_kernel_sends_its_source():
    kernel = gi.RawKernel('extern "C" __global__ void k(float* x) { x[0] = 7; }', "k")
    for sent in (kernel, pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        x = gi.zeros(1, device="cuda")
        sent(1, 1, x)
        assert x.tolist() == [7]
    assert b"x[0] = 7" in pickle.dumps(kernel)


def test_joblib_runs_functions_that_mention_the_package_in_processes():
    joblib = pytest.importorskip("joblib")

    def step(x):
        return os.getpid(), gi.exp(x) + shifted(x)

    # joblib hands large arrays over as files, if their class is NumPy's.
    inputs = [gi.asarray(np.linspace(0, 1, n, dtype="float32"), device="cpu") for n in (3, 400_000)]
    with joblib.Parallel(n_jobs=2) as workers:
        found = workers(joblib.delayed(step)(x) for x in inputs)
    for x, (process, result) in zip(inputs, found, strict=True):
        n = x.get()
        assert process != os.getpid()
        np.testing.assert_allclose(result.get(), np.exp(n) + n * 2 + OFFSET, rtol=1e-6)

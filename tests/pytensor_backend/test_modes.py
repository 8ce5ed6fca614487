"""The mode by itself, PyTensor's checking modes, copies and pickles of functions, and Ops of a user."""

import itertools
import pickle
from functools import partial

import numpy as np
import pytest
from doubles import driver

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

import pytensor
import pytensor.tensor as pt
from pytensor.compile.debug.debugmode import DebugMode
from pytensor.compile.debug.nanguardmode import NanGuardMode
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType
from test_graphs import CASTS_WRAP, GRAPHS, made, values

import gpuinterop as gi
import gpuinterop.pytensor as backend


def test_mode_alone_compiles_one_function(device):
    if gi.default_device() != gi.device(device):
        pytest.skip("needs this device as the default")  # the mode alone takes the default device
    x = pt.fvector("x")
    f = pytensor.function([x], pt.exp(x), mode="GPU")
    assert any(isinstance(node.op, backend.GpuOp) for node in f.maker.fgraph.toposort())
    np.testing.assert_allclose(f(values(1, 4)), np.exp(values(1, 4)), rtol=1e-6)
    g = pytensor.function([x], pt.exp(x))
    assert not any(isinstance(node.op, backend.GpuOp) for node in g.maker.fgraph.toposort())


@pytest.mark.parametrize("dtype", "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
def test_integers_without_dimensions_wrap_as_in_pytensors_own_modes(dtype):
    i, j = (TensorType(dtype, ())(name) for name in "ij")
    results = [
        i * i + 1, i * j - i + 3, i % j + 1, i // j + i, i ** pt.cast(3, dtype), pt.abs(i) - j * 2,
        pt.switch(i > j, i + 1, i * 2), pt.sqr(i) - pt.sqr(j), (i & j) + (i | j),
        pt.minimum(i + 1, j - 1), pt.sign(i) * j,
    ]  # fmt: skip
    if CASTS_WRAP:
        results.append(pt.cast(i * j, "int8") + 1)
    own = Mode("py", "fast_compile")
    device, host, expected = (
        pytensor.function([i, j], results, mode=m) for m in ("GPU", backend.HOST, own)
    )
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    limits = [
        np.array(v).astype(dtype)
        for v in {least, least + 1, 0, 1, 3, most - 1, most, -1 if least else 2}
    ]
    with np.errstate(all="ignore"):
        for pair in itertools.product(limits, repeat=2):
            for one in (device, host):
                assert [(v.dtype, v.item()) for v in one(*pair)] == [
                    (v.dtype, v.item()) for v in expected(*pair)
                ]


def test_use_chooses_the_precision_of_products(device):
    for precision in ("tf32x3", "tf32"):
        backend.use(device, product_precision=precision)
        assert gi.set_product_precision(precision) == precision
    backend.unuse()
    assert gi.set_product_precision("exact") == "exact"


def test_unuse_restores_what_use_changed(device):
    before = config.mode, config.floatX
    backend.use(device)
    backend.use(device)
    assert config.floatX == "float32"
    backend.unuse()
    backend.unuse()
    assert (config.mode, config.floatX) == before
    assert not isinstance(pytensor.shared(values(1, 3)).type, backend.GpuArrayType)


def test_any_dtype_moves_float64(device):
    backend.use(device, any_dtype=True)
    try:
        w = pytensor.shared(np.arange(4.0))
        f = pytensor.function([], pt.exp(w) + pt.zeros(4))
        made = [n for n in f.maker.fgraph.toposort() if isinstance(n.op, backend.GpuOp)]
        assert {n.outputs[0].type.dtype for n in made} == {"float64"}
        np.testing.assert_allclose(f(), np.exp(np.arange(4.0)), rtol=1e-12)
        x, lengths = pt.vector("x", dtype="float64"), pt.lvector("lengths")
        split = pytensor.function([x, lengths], pt.split(x, lengths * 1, n_splits=2))
        for part, n in zip(split(np.arange(5.0), [2, 3]), (2, 3), strict=True):
            assert part.shape == (n,)
        a, one = pt.zmatrix("a"), np.ones((3, 3)) * 1j
        angles = pytensor.function([a], pt.exp(pt.arcsin(a)))
        np.testing.assert_allclose(angles(one), np.exp(np.arcsin(one)), rtol=1e-12)
    finally:
        backend.unuse()


def test_any_dtype_sums_in_the_dtype_of_the_result(device):
    backend.use(device, any_dtype=True)
    try:
        x = pt.vector("x", dtype="float16")
        f = pytensor.function([x], [x.mean(), pt.sum(x, dtype="float32"), (x * x).mean()])
        found = f(np.ones(100_000, "float16"))
        assert found == [1, 100_000, 1]
        many = pytensor.function([x], [pt.sum(x > 0, dtype="bool"), pt.sum(x, dtype="int8")])
        assert many(np.ones(3, "float16")) == [True, 3]
        assert pytensor.shared(found[0]).type.values_eq(found[0], np.float16(1))
    finally:
        backend.unuse()


def test_any_dtype_multiplies_complex_matrices(device):
    backend.use(device, any_dtype=True)
    try:
        a, b = pt.zmatrix("a"), pt.zmatrix("b")
        f = pytensor.function([a, b], pt.dot(a, b) * 2j + a)
        one = np.ones((3, 3)) * 1j
        np.testing.assert_allclose(f(one, one), -6j + one, rtol=1e-12)
    finally:
        backend.unuse()


@pytest.mark.parametrize(
    "name", [n for n in GRAPHS if n not in ("ifelse", "gradient of ifelse", "scan")]
)
def test_debug_mode_finds_nothing(name, on_device):
    checked = DebugMode(backend.GPU.provided_optimizer, check_c_code=False, stability_patience=2)
    x, i = pt.fmatrix("x"), pt.lscalar("i")
    w, v, t = (pytensor.shared(values(k, *s)) for k, s in ((1, (4, 4)), (2, (4,)), (3, (3, 4, 4))))
    outputs, updates = made(name, x, w, v, t, i)
    f = pytensor.function([x, i], outputs, updates=updates, mode=checked, on_unused_input="ignore")
    f(values(10, 4, 4), 1)


def test_nan_guard_mode_names_the_operation(on_device):
    checked = NanGuardMode(optimizer=backend.GPU.provided_optimizer)
    w, x = pytensor.shared(values(1, 3)), pt.fvector("x")
    f = pytensor.function([x], backend.gpu_from_host(pt.log(x) * w), mode=checked)
    found = f(np.float32([1, 2, 3]))
    np.testing.assert_allclose(found.get(), np.log([1, 2, 3]) * w.get_value(), rtol=1e-5)
    for wrong, text in (
        (-1, "NaN detected"),
        (0, "Inf detected"),
        (np.inf, "an input of the graph"),
    ):
        with pytest.raises(AssertionError, match=text):
            f(np.float32([1, wrong, 3]))
    with pytest.raises(AssertionError, match="GpuElemwise"):
        f(np.float32([1, -1, 3]))


def test_function_is_pickled_with_its_values(on_device):
    w, x = pytensor.shared(values(1, 4, 4), name="w"), pt.fmatrix("x")
    f = pytensor.function([x], [pt.dot(x, w), (w**2).sum(), w.argmax()], updates={w: w * 0.5})
    again = pickle.loads(pickle.dumps(f))
    given = values(2, 4, 4)
    for _ in range(4):
        for a, b in zip(f(given), again(given), strict=True):
            np.testing.assert_array_equal(a, b)


def test_pickle_is_read_in_another_process(on_device, tmp_path):
    w = pytensor.shared(values(1, 4, 4), name="w")
    (tmp_path / "w").write_bytes(pickle.dumps([w, pt.exp(w).T.sum(axis=0)]))
    code = (
        "import pickle, sys, gpuinterop.pytensor as backend; backend.use('cpu')\n"
        "w, y = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert w.name == 'w'"
    )
    assert driver.python("-c", code, tmp_path / "w").returncode == 0


class Doubling:
    class Scale(Op):
        __props__ = ()
        factor = 2

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] * self.factor


class Tripling:
    class Scale(Doubling.Scale):
        factor = 3


@backend.lower.register(Doubling.Scale)
@backend.lower.register(Tripling.Scale)
def _scale(op, node):
    return partial(op.perform, node)


@pytest.mark.parametrize("package", [Doubling, Tripling])
def test_ops_of_one_name_are_pickled(package, on_device):
    x = pt.fmatrix("x")
    functions = [pytensor.function([x], p.Scale()(x)) for p in (Doubling, Tripling)]
    again = pickle.loads(pickle.dumps(functions[package is Tripling]))
    np.testing.assert_allclose(again(values(1, 2, 2)), values(1, 2, 2) * package.Scale.factor)


def test_copies_of_functions(on_device):
    w, other = pytensor.shared(values(1, 4)), pytensor.shared(values(2, 4))
    f = pytensor.function([], (w * 2).sum(), updates={w: w + 1})
    for _ in range(3):
        f()
    before = w.get_value()
    g = f.copy(swap={w: other})
    np.testing.assert_allclose(g(), values(2, 4).sum() * 2, rtol=1e-5)
    np.testing.assert_allclose(other.get_value(), values(2, 4) + 1)
    np.testing.assert_array_equal(w.get_value(), before)


class Doubled(Op):
    """Writes to the cells of its thunk, as the tutorials do."""

    __props__ = ()

    def make_node(self, x):
        x = backend.gpu_contiguous(backend.as_device_variable(x))
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] * 2

    def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
        (source,), (target,) = (
            [storage_map[v] for v in node.inputs],
            [storage_map[v] for v in node.outputs],
        )

        def thunk():
            old = target[0]
            if old is None or old.shape != source[0].shape:
                target[0] = old = gi.CudaNdarray.zeros(source[0].shape)
            old[...] = source[0] * 2

        return thunk


@pytest.mark.parametrize("allow_gc", [True, False])
def test_op_with_a_thunk_of_its_own(allow_gc, on_device):
    config.allow_gc = allow_gc
    if gi.default_device() != gi.device(on_device):
        pytest.skip("needs this device as the default")
    x = pt.fmatrix("x")
    f = pytensor.function([x], Doubled()(pt.exp(x)) + 1)
    kept = [f(values(k, 3, 4)) for k in range(5)]
    for k, found in enumerate(kept):
        np.testing.assert_allclose(found, np.exp(values(k, 3, 4)) * 2 + 1, rtol=1e-6)


class Scaled(backend.KernelOp):
    source = """extern "C" __global__ void scaled(const float* x, const float* y, float* z, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) z[i] = 3 * x[i] + y[i];
    }"""
    name = "scaled"

    def host(self, x, y):
        return 3 * x + y


def test_kernel_op(on_device):
    w, x = pytensor.shared(values(1, 5, 4)), pt.fmatrix("x")
    f = pytensor.function([x], [Scaled()(w.T, x) * 2, Scaled()(x, x).sum()])
    for k in range(5):
        given = values(k, 4, 5)
        first, second = f(given)
        np.testing.assert_allclose(first, (3 * values(1, 5, 4).T + given) * 2, rtol=1e-5)
        np.testing.assert_allclose(second, given.sum() * 4, rtol=1e-4, atol=1e-5)


class Wrong(Scaled):
    def host(self, x, y):
        return x[:1]


class OnlyOnGpus(Scaled):
    host = None


@pytest.mark.parametrize(
    ("op", "error", "message"),
    [(Wrong, gi.ShapeError, r"Wrong\.host: expected .* \[\(4, 5\)\]\n  got: shapes \[\(1, 5\)\]"),
     (OnlyOnGpus, gi.DeviceError, r"(?s)OnlyOnGpus\.host: .* fix: define host\(self")],
)  # fmt: skip
def test_kernel_op_on_cpu_needs_a_right_host_function(op, error, message):
    backend.use("cpu")
    try:
        x = pt.fmatrix("x")
        f = pytensor.function([x], op()(x, x))
        with pytest.raises(error, match=message):
            f(values(1, 4, 5))
    finally:
        backend.unuse()


@pytest.mark.parametrize("report", [backend.transfers, backend.replays, backend.profile_summary])
def test_reports_need_a_compiled_function(report):
    with pytest.raises(
        TypeError, match=rf"{report.__name__}: expected a function that pytensor\.function returned"
    ):
        report(np.exp)


def test_profile_separates_transfers(on_device):
    w, x = pytensor.shared(values(1, 5, 4)), pt.fmatrix("x")
    f = pytensor.function([x], pt.exp(pt.dot(x, w)))
    for synchronise in (True, False):
        summary = backend.profile_summary(f, values(2, 3, 5), calls=3, synchronise=synchronise)
        kinds = [row.kind for row in summary.rows]
        assert kinds.count("to the device") == kinds.count("to the host") == 1
        assert sum(summary.seconds(kind) for kind in ("device", "host")) > 0
        assert "GpuFromHost" in str(summary)
    np.testing.assert_allclose(
        f(values(2, 3, 5)), np.exp(values(2, 3, 5) @ values(1, 5, 4)), rtol=1e-4
    )


def test_profile_of_another_mode_is_refused(on_device):
    w = pytensor.shared(values(1, 3))
    f = pytensor.function([], w.sum(), mode="FAST_COMPILE")
    with pytest.raises(TypeError, match='mode="GPU"'):
        backend.profile_summary(f)


def test_profile_of_pytensor_counts_each_operation(on_device):
    w = pytensor.shared(values(1, 5, 4))
    f = pytensor.function([], pt.exp(w).sum(), profile=True)
    for _ in range(3):
        f()
    assert set(f.profile.apply_callcount.values()) == {3}
    f.profile.print_summary = None  # or it prints at the end of the process

"""Theano's flags, profiles, debugprint and module names."""

import itertools
import re

import numpy as np
import pytest
from doubles import driver
from doubles.on_fake import FAKE

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

from old_programs import PROGRAMS, run

import gpuinterop as gi
from gpuinterop import theano as names

LINE = """\
import numpy as np
import theano
import theano.tensor as T

m, x, b = (np.full((4, 4), v, "float32") for v in (1, 2, 3))
tm, tx, tb = T.matrix("m"), T.matrix("x"), T.matrix("b")
line = theano.function(inputs=[tx, tm, tb], outputs=[T.add(T.dot(tm, tx), tb)])
theano.printing.debugprint(line)
print line(x, m, b)[0][0, 0]
"""
# The tree of the blog; its letters and numbers follow the order in which the operands are met.
TREE = """\
HostFromGpu [@A] ''   4
 |GpuGemm{inplace} [@B] ''   3
   |GpuFromHost [@C] ''   2
   | |b [@D]
   |TensorConstant{1.0} [@E]
   |GpuFromHost [@F] ''   1
   | |m [@G]
   |GpuFromHost [@H] ''   0
   | |x [@I]
   |TensorConstant{1.0} [@E]
"""


@pytest.fixture
def line(script):
    return script(LINE)


def without_places(tree: str) -> list[str]:
    return [text.rstrip(" 0123456789") for text in tree.splitlines()]


def test_debugprint_prints_the_tree_of_the_blog(device, line) -> None:
    out, _ = run(line, device="gpu", floatX="float32")
    *tree, number = out.splitlines()
    assert float(number) == 11
    if gi.device(device).type == "cuda":
        assert without_places("\n".join(tree)) == without_places(TREE)
    else:
        assert tree[0].startswith("Gemm{no_inplace} [@A] ''")


def test_profile_has_the_tables_of_the_tutorial(device, line) -> None:
    _, err = run(line, device="gpu", floatX="float32", profile="True")
    for words in (
        "Function profiling",
        "Class\n---",
        "Ops\n---",
        "Apply\n------",
        "<Class name>",
        "<Apply name>",
    ):
        assert words in err
    spent = next(text for text in err.splitlines() if "Spent" in text)
    assert [part.split(" in ")[1] for part in spent.replace(" and ", ", ").split(", ")] == [
        "cpu op", "gpu op", "transfer op",
    ]  # fmt: skip
    if gi.device(device).type == "cuda":
        assert "GpuFromHost(m)" in err
        assert "HostFromGpu(GpuGemm{inplace}.0)" in err
        assert "(0.00%) in transfer op" not in spent
    else:
        assert "(100.00%) in cpu op" in spent


def test_profiles_are_summed(script) -> None:
    two = script(LINE + "predict = theano.function([tx], tx + 1)\npredict(x)\n")
    _, err = run(two, device="cpu", floatX="float32", profile="True")
    assert "Message: Sum of all(2) printed profiles at exit excluding Scan op profile." in err
    assert "Time in 2 calls to Function.__call__" in err


MODES = [{"mode": "FAST_RUN"}, {"mode": "FAST_COMPILE"}, {"mode": "ProfileMode"}, {"optimizer": "fast_compile"},
         {"optimizer": "None"}, {"allow_gc": "False"}]  # fmt: skip
if not FAKE:  # it runs each operation many times, and kernels of the fake driver take long
    MODES.append({"mode": "DebugMode"})


@pytest.mark.parametrize("flags", MODES, ids=str)
def test_modes_give_the_same_numbers(device, line, flags) -> None:
    out, err = run(line, device="gpu", floatX="float32", **flags)
    assert float(out.splitlines()[-1]) == 11
    assert ("Function profiling" in err) == (flags.get("mode") == "ProfileMode")


@pytest.mark.parametrize(
    ("flag", "error"),
    [("mode=fast", "mode=fast: expected"), ("optimizer=o9", "optimizer=o9: expected"),
     ("device=opencl0:0", r"device=opencl0:0: expected .* gpuinterop.to\(x, 'pyopencl'")],
)  # fmt: skip
def test_wrong_values_are_refused(flag: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        names.install({"THEANO_FLAGS": flag, "THEANORC": ""}, replace=True)


def test_unknown_flags_are_named() -> None:
    from gpuinterop.theano.flags import read_flags

    with pytest.warns(UserWarning, match=r"nvcc\.fastmath has no effect"):
        flags = read_flags({"THEANO_FLAGS": "nvcc.fastmath=True,floatX=float32", "THEANORC": ""})
    assert flags["floatX"] == "float32"


def test_flags_of_pytensor_are_passed_on(script) -> None:
    unused = script(
        "import theano, theano.tensor as T\nf = theano.function([T.matrix()], T.constant(1))\n"
        "print f([[0]]), theano.config.cast_policy\n"
    )
    out, err = run(unused, device="cpu", on_unused_input="ignore", cast_policy="numpy+floatX")
    assert out.split() == ["1", "numpy+floatX"]
    assert not err
    with pytest.raises(AssertionError, match=r"gpuinterop run: Invalid value .*maybe"):
        run(unused, device="cpu", on_unused_input="maybe")


def test_theanorc_is_read_as_it_is_written(tmp_path) -> None:
    from gpuinterop.theano.flags import read_flags

    file = tmp_path / "theanorc"
    environment = {"THEANO_FLAGS": "allow_gc=False", "THEANORC": str(file)}
    file.write_bytes(
        b"\xef\xbb\xbf[global]\ndevice = gpu\ndevice = gpu1\nbase_compiledir = %(home)s/50%\xe9\n[nvcc]\nflags=x\n"
    )
    with pytest.warns(UserWarning, match=r"base_compiledir|nvcc\.flags has no effect"):
        flags = read_flags(environment)
    assert (flags["device"], flags["allow_gc"], flags["floatX"]) == ("gpu1", "False", "float64")
    for text, line in (("floatX = float32\n", 1), ("[global]\n\nfloatX float32\n", 3)):
        file.write_text(text)
        with pytest.raises(
            ValueError, match=rf"theanorc, line {line}: expected .* write \[global\]"
        ):
            read_flags(environment)


NAMES = """
theano.function theano.shared theano.config theano.Op theano.Apply theano.In theano.Out theano.grad theano.scan
theano.tensor.matrix theano.tensor.dot theano.tensor.inv theano.tensor.Elemwise theano.tensor.nnet.sigmoid
theano.tensor.nnet.softmax theano.tensor.nnet.categorical_crossentropy theano.tensor.nnet.relu theano.scalar.float32
theano.compile.SharedVariable theano.compile.function theano.gof.Op theano.gof.Apply theano.printing.debugprint
theano.printing.pp theano.ifelse.ifelse
theano.sandbox.cuda.CudaNdarray theano.sandbox.cuda.dot theano.sandbox.cuda.dimshuffle theano.sandbox.cuda.mem_info
theano.sandbox.cuda.from_gpu_pointer theano.sandbox.cuda.use theano.sandbox.cuda.cuda_available
theano.sandbox.cuda.CudaNdarrayType theano.sandbox.cuda.filter theano.sandbox.cuda.shared_constructor
theano.sandbox.cuda.float32_shared_constructor theano.sandbox.cuda.basic_ops.gpu_from_host
theano.sandbox.cuda.basic_ops.GpuElemwise theano.sandbox.cuda.basic_ops.gpu_contiguous
theano.sandbox.cuda.var.CudaNdarraySharedVariable theano.sandbox.cuda.var.CudaNdarrayVariable
theano.sandbox.cuda.var.CudaNdarrayConstant theano.sandbox.cuda.var.float32_shared_constructor
theano.sandbox.cuda.type.CudaNdarrayType theano.sandbox.cuda.blas.GpuGemm theano.sandbox.cuda.blas.GpuDot22
theano.sandbox.cuda.cuda_ndarray.cuda_ndarray.CudaNdarray theano.sandbox.gpuarray.basic_ops.gpu_from_host
theano.misc.pycuda_init.pycuda_available theano.misc.pycuda_utils.to_gpuarray theano.misc.pycuda_utils.to_cudandarray
theano.misc.cudamat_utils.cudandarray_to_cudamat theano.misc.cudamat_utils.cudamat_to_cudandarray
theano.misc.gnumpy_utils.cudandarray_to_garray theano.misc.gnumpy_utils.garray_to_cudandarray
theano.tests.unittest_tools.seed_rng theano.tests.unittest_tools.verify_grad
theano.Type theano.FunctionGraph theano.SharedVariable theano.OpFromGraph theano.predefined_modes theano.ProfileMode
theano.gof.graph.inputs theano.gof.graph.variables theano.gof.PureOp theano.gof.fg.FunctionGraph theano.gof.type.generic
theano.gof.OpWiseCLinker theano.gof.vm.VM_Linker theano.gof.python25.OrderedDict theano.compat.python2x.OrderedDict
theano.compile.monitormode.MonitorMode theano.compile.profilemode.ProfileMode theano.compile.builders.OpFromGraph
theano.scalar.abs_ theano.scalar.basic_scipy.erf theano.scan_module.scan_utils.until theano.scan_module.scan_op.Scan
theano.sandbox.linalg.ops.matrix_inverse theano.sandbox.cuda.rng_curand.CURAND_RandomStreams
theano.tensor.patternbroadcast theano.tensor.unbroadcast theano.tensor.AdvancedSubtensor1 theano.tensor.nnet.selu
theano.updates.OrderedUpdates theano.misc.may_share_memory.may_share_memory theano.misc.cudamat_utils.cudamat_available
theano.sandbox.cuda.gpu_dot22 theano.sandbox.cuda.GpuAlloc theano.sandbox.cuda.basic_ops.GpuReshape
theano.sandbox.cuda.basic_ops.GpuFromHost theano.sandbox.cuda.GpuJoin theano.sandbox.cuda.GpuOp
theano.sandbox.cuda.basic_ops.GpuAdvancedSubtensor1 theano.sandbox.cuda.elemwise.GpuElemwise
theano.sandbox.cuda.CudaNdarraySharedVariable theano.sandbox.cuda.device_properties theano.sandbox.cuda.fvector
theano.sandbox.cuda.active_device_number theano.sandbox.cuda.blas.gpu_dot22 cuda_ndarray.cuda_ndarray.CudaNdarray
theano.sandbox.gpuarray.as_gpuarray_variable theano.sandbox.gpuarray.type.GpuArrayVariable
theano.sandbox.gpuarray.basic_ops.as_gpuarray_variable theano.sandbox.gpuarray.basic_ops.GpuFromHost
theano.sandbox.gpuarray.elemwise.GpuElemwise theano.sandbox.gpuarray.blas.GpuGemm
theano.gpuarray.basic_ops.gpu_from_host theano.gpuarray.type.GpuArrayType
theano.get_scalar_constant_value theano.function_dump theano.compile.monitormode.detect_nan theano.compile.ops.Shape
theano.compile.ops.SpecifyShape theano.gof.fg.MissingInputError theano.gof.graph.equal_computations theano.gof.Query
theano.gof.utils.flatten theano.gof.link.Container theano.gof.toolbox.ReplaceValidate theano.gof.type.CDataType
theano.raise_op.Assert theano.tensor.opt.Assert theano.tensor.type_other.NoneConst theano.tensor.xlogx.xlogx
theano.tensor.utils.shape_of_variables theano.tensor.ShapeError theano.tensor.SortOp theano.scalar.basic.Inv
theano.printing.pydotprint_variables theano.d3viz.d3viz theano.tests.breakpoint.PdbBreakpoint theano.ifelse.IfElse
theano.scan_module.scan_utils.clone theano.compat.six.moves.xrange theano.sandbox.cuda.dnn.dnn_available
theano.sandbox.cuda.type.CudaNdarray_unpickler theano.gof.destroyhandler.DestroyHandler
theano.as_op theano.OrderedUpdates theano.sparse_grad theano.version.short_version theano.sandbox.linalg.ops.diag
theano.tensor.nnet.bn.batch_normalization theano.tensor.batched_tensordot
theano.tensor.slinalg.solve_lower_triangular
theano.tensor.nnet.abstract_conv.conv2d theano.tensor.nnet.abstract_conv.AbstractConv2d_gradInputs theano.tensor.Join
theano.tensor.nnet.abstract_conv.conv2d_grad_wrt_weights theano.tensor.nnet.conv3d2d.conv3d theano.pprint
theano.gof.graph.is_same_graph theano.printing.pprint theano.tensor.inplace.exp_inplace theano.compat.exc_message
theano.sandbox.cuda.dnn.dnn_conv theano.sandbox.cuda.dnn.GpuDnnConv theano.sandbox.gpuarray.dnn.dnn_available
theano.gpuarray.dnn.GpuDnnPool theano.sandbox.cuda.blas.GpuCorrMM theano.sandbox.cuda.blas.GpuDownsampleFactorMax
theano.config.warn.sum_sum_bug theano.config.unittests.rseed theano.tensor.signal.conv.conv2d
theano.tensor.signal.downsample.DownsampleFactorMax theano.tensor.signal.pool.Pool theano.misc.pkl_utils.dump
theano.misc.pkl_utils.CompatUnpickler theano.tensor.nnet.neighbours.images2neibs
theano.sandbox.neighbours.neibs2images theano.typed_list.TypedListType theano.typed_list.basic.Append
""".split()


def test_names_of_theano_are_there(script) -> None:
    modules = sorted({re.sub(r"(config.*|\.\w+)$", "", name) for name in NAMES} - {"theano."})
    imports = "".join(f"import {module}\n" for module in modules)
    uses = "".join(f"{name}\n" for name in NAMES)
    assert run(script(f"{imports}{uses}print('all')\n"), device="cpu")[0] == "all\n"


USES = """\
import numpy as np, theano, theano.tensor as T, theano.sandbox.cuda as cuda
x, y = T.matrix('x'), T.matrix('y')
print [v.name for v in theano.gof.graph.inputs([x + y])], len(theano.gof.graph.ops([x], [T.exp(x) * x]))
one = T.patternbroadcast(x, (True, False))
print one.broadcastable, cuda.fmatrix('m').type, cuda.vector('v').type
f = theano.function([x, y], [cuda.gpu_dot22(x, y), cuda.gpu_join(0, x, y), cuda.gpu_flatten(x), one + y],
                    mode=theano.ProfileMode(linker=theano.gof.OpWiseCLinker()))
made = f(np.ones((1, 1), 'float32'), np.ones((1, 1), 'float32'))
print [type(v).__name__ for v in made], \\
    [np.asarray(v).ravel().tolist() for v in made]
for node in f.maker.fgraph.toposort():
    if isinstance(node.op, (cuda.GpuFromHost, cuda.GpuJoin, cuda.blas.GpuDot22, cuda.GpuReshape)):
        print 'on the device'; break
z = np.array([-1.5, 0.25, 2])
for values in (T.nnet.selu(z), T.nnet.softsign(z), T.nnet.sigmoid_binary_crossentropy(z, 0.25),
               T.nnet.softmax_with_bias(z, [1, 0, 1])[0]):
    print ' '.join('%.6f' % v for v in values.eval())
"""


def test_renamed_names_do_what_theano_did(device, script) -> None:
    out, err = run(script(USES), device="gpu", floatX="float32")
    z = np.array([-1.5, 0.25, 2])
    p = 1 / (1 + np.exp(-z))
    e = np.exp(z + np.array([1, 0, 1]))
    expected = [
        np.where(z > 0, z, 1.6732632423543772 * (np.exp(z) - 1)) * 1.0507009873554805, z / (1 + abs(z)),
        -0.25 * np.log(p) - 0.75 * np.log(1 - p), e / e.sum(),
    ]  # fmt: skip
    lines = out.splitlines()
    assert lines[:2] == [
        "['x', 'y'] 2",
        "(True, False) CudaNdarrayType(float32, matrix) CudaNdarrayType(float32, vector)",
    ]
    assert lines[2] == f"{['CudaNdarray'] * 3 + ['ndarray']} [[1.0], [1.0, 1.0], [1.0], [2.0]]"
    assert lines[3] == "on the device"
    assert lines[4:] == [" ".join(f"{v:.6f}" for v in row) for row in expected]
    assert "Function profiling" in err


LEFT = """\
import theano, theano.tensor as T, numpy as np, pickle
from theano.sandbox.cuda import dnn
from theano.gof.graph import is_same_graph
from theano.misc.pkl_utils import dump, load
x, y, z = T.matrix('x'), T.matrix('y'), T.matrix('z')
print is_same_graph(x.mean() + 1, x.mean() + 1), is_same_graph(x + y, y + x), is_same_graph(x + 1, x + 2)
print is_same_graph(x + 1, y + 1), is_same_graph(x + 1, y + 1, givens={x: y}), is_same_graph(x + 1, z + 1, [(x, z)])
print theano.pprint(x + T.exp(y)), theano.pp(x * 2), theano.Variable(x.type).owner
joined = T.Join()(1, x, y)
print joined.eval({x: [[1]], y: [[2]]}).tolist(), isinstance(joined.owner.op, T.Join), \\
    isinstance((x + y).owner.op, T.Join)
print T.inplace.add_inplace(x, T.inplace.exp_inplace(y)).eval({x: [[1]], y: [[0]]}).tolist()
print isinstance(joined.owner.op, dnn.GpuDnnConv), dnn.dnn_available(), T.inplace.__name__
try:
    dnn.GpuDnnSoftmax('bc01', 'fast', 'channel')
except NotImplementedError, error:
    print error
print theano.compat.exc_message(ValueError(KeyError('inner'))), theano.config.unittests.rseed, \\
    theano.config.warn.sum_sum_bug
w = theano.shared(np.arange(3.), name='w')
with open('FILE', 'wb') as f:
    dump((w, np.ones(2), w.get_value(borrow=True), 'text'), f)
print sorted(np.load('FILE').keys())
with open('FILE', 'rb') as f:
    v, ones, same, text = load(f)
print v.name, v.get_value().tolist(), ones.tolist(), same.tolist(), text
"""


def test_left_over_names_do_what_theano_did(script, tmp_path) -> None:
    out, _ = run(
        script(LEFT.replace("FILE", str(tmp_path / "file.zip"))), device="cpu", floatX="float64"
    )
    assert out.splitlines() == [
        "True False False", "False True True", "(x + exp(y)) (x * TensorConstant{2}) None",
        "[[1.0, 2.0]] True False", "[[2.0]]",
        "False False theano.tensor.inplace",
        "theano.sandbox.cuda.dnn.GpuDnnSoftmax is missing in gpuinterop; use theano.tensor.nnet.conv2d and "
        "theano.tensor.signal.pool.pool_2d, or PyTorch on shared memory (see docs/reference/theano-names.md)",
        "inner 666 False", "['array_0', 'pkl', 'w']", "w [0.0, 1.0, 2.0] [1.0, 1.0] [0.0, 1.0, 2.0] text",
    ]  # fmt: skip


def test_a_missing_name_has_the_most_special_successor() -> None:
    from gpuinterop.theano.missing import explain

    assert "theano.tensor.signal.pool" in explain(
        "theano.tensor.nnet.abstract_conv.bilinear_upsampling"
    )
    assert "operations of theano.tensor" in explain("theano.tensor.nnet.h_softmax")


def test_all_names_can_be_imported_at_once(script) -> None:
    everything = script(
        "from theano import *\nfrom theano.tensor import *\nx = fmatrix()\n"
        "print(function([x], tanh(x) + shared(1) + nnet.sigmoid(x))([[0]]), config.device)\n"
    )
    assert run(everything, device="cpu")[0] == "[[1.5]] cpu\n"


def test_an_installed_theano_wins(tmp_path, script, monkeypatch) -> None:
    (tmp_path / "theano").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = "import gpuinterop as gi\nif {}: import theano\ngi.theano.install({{'THEANORC': ''}})\n"
    for before in range(2):  # a folder without __init__.py is not Theano, but a namespace package
        code = found.format(before) + "import theano.tensor as T\nprint(T.constant(2).eval())\n"
        assert driver.run(code, PYTENSOR_FLAGS="cxx=,blas__ldflags=") == "2\n"
    assert run(script("import theano\nprint theano.__version__\n"), device="cpu")[0] == "0.8.2\n"
    (tmp_path / "theano/__init__.py").write_text("mine = True\n")
    uses = script("import theano\nprint(getattr(theano, 'mine', False))\n")
    assert run(uses, device="cpu")[0] == "True\n"
    assert run(uses, "--replace", device="cpu")[0] == "False\n"


def test_packages_are_attributes_of_gpuinterop() -> None:
    code = """
    import gpuinterop as gi
    gi.theano.install({"THEANORC": ""})
    import theano
    gi.pytensor.use("cpu")
    print(theano.config.device)
    """
    assert driver.run(code, PYTENSOR_FLAGS="cxx=,blas__ldflags=") == "cpu\n"


def test_an_error_names_the_line_of_the_python_2_program(script) -> None:
    text = script("print 'one'\nprint 'two'\n1 / 0\n")
    with pytest.raises(AssertionError, match=r'old\.py", line 3'):
        run(text, device="cpu")
    assert text.read_text().startswith("print 'one'")


@pytest.mark.parametrize(
    ("text", "line"), [("x = = 3\n", 1), ("print 'one'\nx = (\n", 3), ("print 'one'\nnone 1\n", 2)]
)  # fmt: skip
def test_a_program_in_neither_python_is_a_syntax_error(script, text, line) -> None:
    message = rf'(?s)old\.py", line {line}\n.*SyntaxError: neither Python 3 nor Python 2'
    with pytest.raises(AssertionError, match=message):
        run(script(text), device="cpu")


@pytest.mark.gpu
@pytest.mark.pycuda
@pytest.mark.parametrize("name", ["pycuda_multiply", "pycuda_double_op", "pycuda_theano"])
def test_programs_with_pycuda_kernels_run_as_printed(name: str, tmp_path) -> None:
    pytest.importorskip("pycuda")
    text = (PROGRAMS / f"{name}.py.txt").read_text()
    script = tmp_path / f"{name}.py"
    script.write_text(text + "test_pycuda_theano()\n" * (name == "pycuda_theano"))
    out, _ = run(script, device="gpu", floatX="float32")
    if name == "pycuda_double_op":
        assert out.count("2.") == 20


@pytest.mark.driver
def test_small_arrays_have_room_behind_their_elements() -> None:
    """A kernel of 400 threads over 100 floats must not write into another array."""
    arrays = [gi.zeros(100, device="cuda:0") for _ in range(64)]
    places = sorted(x.ptr for x in arrays)
    assert min(b - a for a, b in itertools.pairwise(places)) >= 400 * 4


PRINTED = """\
import theano
import theano.tensor as T

x, i = T.dscalar('x'), T.iscalar()
print theano.pp(T.grad(x ** 3, x))
print repr(x.type), T.and_(i, 1), T.or_(i, 1), T.xor(i, 1), ~i
old, new, v = T.dmatrix(), T.dmatrix(), T.dvector()
print theano.function([old, new, v], T.Rop(T.dot(v, old), old, new))([[1, 1]], [[2, 3]], [1])
"""


def test_expressions_and_types_are_printed_as_in_theano(script) -> None:
    lines = run(script(PRINTED), device="cpu")[0].splitlines()
    assert lines[0] == (
        "((fill((x ** TensorConstant{3}), TensorConstant{1.0}) * TensorConstant{3}) "
        "* (x ** (TensorConstant{3} - TensorConstant{1})))"
    )
    bits = (f"Elemwise{{{name},no_inplace}}.0" for name in ("and_", "or_", "xor", "invert"))
    assert lines[1] == " ".join(["TensorType(float64, scalar)", *bits])
    assert lines[2] == "[2. 3.]"  # an input of which the result does not depend is accepted

"""Whole kernels: compiled text, strided arguments, errors that show the line."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import jit
from gpuinterop.errors import (
    ArgumentTypeError,
    CompileError,
    ContiguityError,
    LibraryNotFoundError,
    ShapeError,
)
from gpuinterop.ops import core_callbacks

SCALE = """
extern "C" __global__ void scale(gpuinterop_strided<float, 2> x, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < x.shape[0] * x.shape[1]) x(i / x.shape[1], i % x.shape[1]) *= by;
}
"""


@pytest.fixture
def nvrtc():
    try:
        jit.compiler_version()
    except LibraryNotFoundError as error:
        pytest.skip(f"no NVRTC: {error.got}")


def test_text_compiles_for_any_architecture(nvrtc):
    kernel = gi.RawKernel(SCALE, "scale")
    assert kernel.compile(jit.supported_archs()[0]).startswith(b"\x7fELF")
    # A device newer than the compiler gets PTX.
    assert kernel.compile(999).startswith(b"//")


def test_an_error_counts_lines_of_the_users_text(nvrtc):
    text = 'extern "C" __global__ void k(float* x) {\n  x[0] = undefined_name;\n}'
    with pytest.raises(CompileError, match=r">\s+2 \|   x\[0\] = undefined_name;"):
        gi.RawKernel(text, "k").compile(90)


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_the_lines_that_an_error_shows_are_the_users(nvrtc, at):
    lines = ['extern "C" __global__ void k(float* x) {', "  x[0] = 1;", "  x[1] = 2;", "}"]
    lines[at - 1] = "oops " + lines[at - 1]
    with pytest.raises(CompileError) as told:
        gi.RawKernel("\n".join(lines), "k").compile(90)
    shown = [line for line in told.value.got.splitlines() if " | " in line]
    numbers = range(max(1, at - 2), min(4, at + 1) + 1)
    assert shown == [f"{'>' if n == at else ' '} {n:4d} | {lines[n - 1]}" for n in numbers]


@pytest.mark.parametrize(
    ("text", "options", "fix"),
    [
        ("", ("--nonsense",), "omit the option"),
        ("#include <vector>", (), "copy the needed declarations.*-I/path"),
        ("void f() {", (), "correct the source code"),
        ("oops", (), "correct the"),
    ],
)
def test_the_fix_is_for_what_is_wrong(nvrtc, text, options, fix):
    with pytest.raises(CompileError, match=rf"fix: {fix}"):
        gi.RawKernel(text, "k", options).compile(90)


@pytest.mark.parametrize("arch", ["sm_90", 9.0, None, (9, 0), True])
def test_an_architecture_is_a_number(arch):
    with pytest.raises(
        ArgumentTypeError, match=r"k.compile: expected a compute capability times ten"
    ):
        gi.RawKernel("", "k").compile(arch)


def text_body(operation):
    from gpuinterop.ops.expression import CudaText, Expression
    from gpuinterop.ops.expression_codegen import ElementwiseOperation

    graph = Expression()
    graph.results = [graph.cuda(CudaText("T x", "T y", operation, "mine"), graph.input())]
    return ElementwiseOperation("mine", graph).body((10,))


def test_an_error_in_an_elementwise_expression_shows_it(nvrtc):
    from gpuinterop.jit.codegen import KernelSpec, render

    spec = KernelSpec(text_body("y = x +* 2"), ("float32", "float32"), "CC", "flat", 0, 4, 1, False)
    with pytest.raises(CompileError, match=r">\s+1 \| y = x \+\* 2;"):
        jit.compile_source(render(spec), 90, name="mine.cu")


@pytest.mark.parametrize("comment", ["", "  // twice", "\n// twice"])
def test_a_comment_may_end_an_elementwise_expression(nvrtc, comment):
    from gpuinterop.jit.codegen import KernelSpec, render

    def compiled(text):
        spec = KernelSpec(
            text_body(text + comment), ("float32", "float32"), "CC", "flat", 0, 4, 1, False
        )
        return jit.compile_source(render(spec), 90, name="mine.cu")

    assert compiled("y = 2 * x")
    with pytest.raises(CompileError, match=r">\s+2 \| y = wrong"):
        compiled("T z = x;\ny = wrong")


def test_numbers_need_a_size(device):
    x = gi.CudaNdarray(np.ones((2, 2), np.float32), device=device)
    with pytest.raises(TypeError, match=r"numpy\.int32\(5\)"):
        gi.RawKernel(SCALE, "scale")((1,), (32,), x, 5)
    for number, name in (
        (2**40, "int64"),
        (-(2**31) - 1, "int64"),
        (2**63, "uint64"),
        (2**31 - 1, "int32"),
    ):
        with pytest.raises(TypeError, match=rf"numpy\.{name}\({number}\)"):
            gi.RawKernel(SCALE, "scale")((1,), (32,), x, number)
        assert int(getattr(np, name)(number)) == number
    with pytest.raises(TypeError, match="at most 64 bits"):
        gi.RawKernel(SCALE, "scale")((1,), (32,), x, 2**64)
    if device == "cpu":
        with pytest.raises(ValueError, match="CUDA device"):
            gi.RawKernel(SCALE, "scale")((1,), (32,), x)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("grid", "got", "fix"),
    [((0,), "0", "launch nothing"), ((-1,), "-1", "launch nothing"), ((-(2**70),), "64 bits", "launch nothing"),
     ((2**31,), str(2**31), "let each thread"), ((1, 1, 1, 1), "4", "pass .x, y, z.")],
)  # fmt: skip
def test_a_grid_that_cannot_be_names_the_kernel(grid, got, fix):
    x = gi.ones(2, device="cuda:0")
    with pytest.raises(
        ValueError, match=rf"scale: expected a grid[\s\S]*got: .*{got}[\s\S]*fix: {fix}"
    ):
        gi.RawKernel(SCALE, "scale")(grid, (32,), x, np.float32(1))


@pytest.mark.gpu
def test_a_strided_kernel_copies_nothing():
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = gi.CudaNdarray(host, device="cuda:0")
    gi.RawKernel(SCALE, "scale")((1,), (32,), gi.strided(x[::-1, ::2]), np.float32(2))
    expected = host.copy()
    expected[::-1, ::2] *= 2
    np.testing.assert_array_equal(x.get(), expected)


TWICE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


def test_wrong_texts_and_declarations():
    for arguments in [(3, "k"), ("text", 3), ("text", "k", "-G"), ("text", "k", [3])]:
        with pytest.raises(ArgumentTypeError):
            gi.RawKernel(*arguments)
    with pytest.raises(ArgumentTypeError, match="strided: expected an array"):
        gi.strided(3)
    good = ("float32 x", "float32 y", "y = x", "k")
    for i in range(4):
        with pytest.raises(ArgumentTypeError, match="text as"):
            gi.ElementwiseKernel(*(3 if i == j else value for j, value in enumerate(good)))
    with pytest.raises(ArgumentTypeError, match="host"):
        gi.ElementwiseKernel(*good, "", 3)
    for ins, outs in [
        ("", "float32 y"),
        ("float32 x", ""),
        ("float32 x, T x", "T y"),
        ("T x", "T x"),
    ]:
        with pytest.raises(ArgumentTypeError, match="a name of its own"):
            gi.ElementwiseKernel(ins, outs, "")


def test_launches_that_cannot_be_meant(device):
    x = gi.GpuArray(np.ones((3, 4), np.float32), device=device)
    kernel = gi.RawKernel(TWICE, "twice")
    with pytest.raises(ContiguityError, match=r"gpuinterop\.strided\(x\)"):
        kernel((1,), (32,), x.T)
    with pytest.raises(ContiguityError):
        kernel((1,), (32,), x[:, ::2])
    with pytest.raises(ArgumentTypeError, match="a grid and a block"):
        kernel(x)
    with pytest.raises(ArgumentTypeError, match="a grid of one to three ints"):
        kernel("a", (32,), x)
    with pytest.raises(ArgumentTypeError, match="a block of one to three ints"):
        kernel((1,), (2.5,), x)
    for shared in (-1, "a", True, 1.5, 2**31, 2**32):
        with pytest.raises(ArgumentTypeError, match="shared"):
            kernel((1,), (32,), x, shared=shared)
    with pytest.raises(ArgumentTypeError, match="with stream"):
        kernel((1,), (32,), x, stream=3)


@pytest.mark.gpu
def test_extents_beyond_all_bounds_are_refused():
    x = gi.GpuArray(np.ones(32, np.float32), device="cuda:0")
    for extent in (2**31, 2**70, -(2**70), 0):
        with pytest.raises(ShapeError, match="grid of extents"):
            gi.RawKernel(TWICE, "twice")((extent,), (32,), x)


def test_a_kernel_may_have_the_name_of_an_operation():
    program = (
        "import gpuinterop as gi\n"
        "gi.ElementwiseKernel('T x, T y', 'T z', 'z = x', 'add', host=lambda x, y: x)\n"
        "x = gi.asarray([1.0, 2.0], device='cpu')\n"
        "assert (x + x).tolist() == [2, 4]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_operations_go_with_what_made_them(device):
    x = gi.asarray(np.arange(3, dtype="float32"), device=device)
    kept = gi.fuse(lambda x: x * 2)
    kept(x)
    graph = gi.capture(gi.fuse(lambda x: x + 7), x)
    gc.collect()
    before = len(core_callbacks._by_id)
    for i in range(5):
        big = gi.ones(3, device=device)
        gone = weakref.ref(big)
        function = gi.fuse(lambda x, big=big, i=i: (x + big) * i)
        assert function(x).tolist() == [i, 2 * i, 3 * i]
        kernel = gi.ElementwiseKernel(
            "float32 x", "float32 y", f"y = x * {i}", f"times_{i}", host=lambda x, i=i: x * i
        )  # fmt: skip
        assert kernel(x).tolist() == [0, i, 2 * i]
    del function, kernel, big
    gc.collect()
    assert gone() is None
    assert len(core_callbacks._by_id) == before
    assert kept(x).tolist() == [0, 2, 4]
    assert graph().tolist() == [7, 8, 9]


@pytest.mark.gpu
def test_calls_as_cupy_and_pycuda_write_them():
    x = gi.GpuArray(np.ones(32, np.float32), device="cuda:0")
    kernel = gi.RawKernel(TWICE, "twice")
    kernel((1,), (32,), (x,))
    kernel(x, grid=(1, 1), block=(32, 1, 1))
    kernel(1, 32, x)
    assert x.tolist() == [8.0] * 32
    across = gi.RawKernel(TWICE, "twice", any_strides=True)
    across((1,), (1,), x[::-8])
    assert x.tolist() == [8.0] * 31 + [16.0]


@pytest.mark.parametrize(
    ("outputs", "host", "said"),
    [
        ("float32 z", lambda x: None, "NoneType"),
        ("float32 z", lambda x: (x, x), "ndarray, ndarray"),
        ("float32 z", lambda x: (), "nothing"),
        ("float32 z", lambda x: np.ones(7), r"\(7,\)"),
        ("float32 z", lambda x: "text", "str of shape"),
        ("float32 z, float32 w", lambda x: None, "NoneType"),
        ("float32 z, float32 w", lambda x: x, "ndarray"),
        ("float32 z, float32 w", lambda x: (x,), "tuple of ndarray"),
        ("float32 z, float32 w", lambda x: (x, None), "ndarray, NoneType"),
    ],
)
def test_what_a_host_function_gives(outputs, host, said):
    kernel = gi.ElementwiseKernel("float32 x", outputs, "z = x", "halve", host=host)
    with pytest.raises(gi.GpuInteropError, match=rf"halve: expected .*host=\n.*{said}.*\n.*return"):
        kernel(gi.ones(3, device="cpu"))


def test_ways_to_give_results_on_the_host():
    x = gi.asarray([1.0, 4.0], device="cpu")
    for host in (lambda x: (x,), lambda x: [x], lambda x: x):
        kernel = gi.ElementwiseKernel("float32 x", "float32 z", "z = x", host=host)
        assert kernel(x).tolist() == [1, 4]
    for host in (lambda x: (x, -x), lambda x: [x, -x], lambda x: np.stack([x, -x])):
        kernel = gi.ElementwiseKernel(
            "float32 x", "float32 z, float32 w", "z = x; w = -x", host=host
        )
        assert [v.tolist() for v in kernel(x)] == [[1, 4], [-1, -4]]


NARROWED = {
    ("int64", "int32"): 2**40 + 5, ("float32", "int32"): 1.7, ("float64", "float32"): 1e300,
    ("complex64", "float32"): 1 + 2j, ("int32", "float32"): 2**24 + 1, ("int32", "uint32"): -1,
    ("float32", "bool"): 0.5,
}  # fmt: skip


@pytest.mark.parametrize(("given", "declared"), NARROWED)
def test_no_array_is_narrowed_without_a_word(device, given, declared):
    kernel = gi.ElementwiseKernel(f"{declared} x", f"{declared} z", "z = x", host=lambda x: x)
    x = gi.GpuArray(np.asarray([NARROWED[given, declared]], given), device=device)
    with pytest.raises(gi.DTypeError, match=rf"got: {given}\n  fix: .*astype\('{declared}'\)"):
        kernel(x)
    assert kernel(gi.GpuArray(np.ones(1, declared), device=device)).dtype == declared


@pytest.mark.parametrize(
    ("given", "declared"), [("bool", "int8"), ("int32", "int64"), ("uint8", "int16"), ("float32", "float64"),
                        ("float32", "complex64"), ("int16", "float32"), ("int64", "float64")],
)  # fmt: skip
def test_arrays_are_widened(device, given, declared):
    kernel = gi.ElementwiseKernel(f"{declared} x", f"{declared} z", "z = x", host=lambda x: x)
    values = np.asarray([0, 1, 1], given)
    made = kernel(gi.GpuArray(values, device=device))
    assert made.dtype == declared
    assert made.tolist() == values.astype(declared).tolist()


@pytest.mark.parametrize(
    ("declared", "number"),
    [("int32", 2**40), ("int8", -129), ("float32", 1e300), ("float16", 70000), ("float64", 1j),
     ("int32", float("nan")), ("int32", np.int64(2**40)), ("float32", np.float64(1e300)),
     ("float32", np.asarray(1e300)), ("T", 1e300), ("uint8", -1)],
)  # fmt: skip
def test_numbers_follow_the_rule_of_asarray(device, declared, number):
    kernel = gi.ElementwiseKernel(f"T x, {declared} s", "T z", "z = x", "held", host=lambda x, s: x)
    x = gi.GpuArray(np.ones(2, np.float32), device=device)
    dtype = "float32" if declared == "T" else declared
    with pytest.raises(gi.DTypeError):
        gi.asarray(np.asarray(number).item(), dtype=dtype, device="cpu")
    with pytest.raises(gi.DTypeError, match=r"^held, parameter s: expected"):
        kernel(x, number)


def test_numbers_that_a_parameter_holds(device):
    kernel = gi.ElementwiseKernel(
        "float32 x, int32 n, float32 s",
        "float32 z",
        "z = x * n + s",
        host=lambda x, n, s: x * n + s,
    )
    x = gi.GpuArray(np.ones(2, np.float32), device=device)
    assert kernel(x, 3, 0.1).tolist() == [float(np.float32(3) + np.float32(0.1))] * 2
    assert kernel(x, np.int64(3), np.float64(2)).tolist() == [5, 5]
    assert kernel(x, 1.5, float("inf")).tolist() == [np.inf] * 2
    assert kernel(x, True, 1).tolist() == [2, 2]


@pytest.mark.parametrize(
    "names",
    [
        ("a1", "a0", "z"),
        ("a0", "a1", "o0"),
        ("s0", "r0", "a0"),
        ("o0", "a1", "r0"),
        ("e", "k", "x"),
    ],
)
def test_any_names_are_good_for_parameters(device, names):
    x, y, z = names
    kernel = gi.ElementwiseKernel(
        f"float32 {x}, float32 {y}", f"float32 {z}, float32 o1", f"{z} = {x} - 2 * {y}; o1 = {y}",
        f"named_{x}_{y}_{z}", host=lambda a, b: (a - 2 * b, b),
    )  # fmt: skip
    a, b = (gi.asarray(np.array(v, "float32"), device=device) for v in ([1, 2], [10, 30]))
    found = kernel(a, b)
    assert [f.tolist() for f in found] == [[-19, -58], [10, 30]]

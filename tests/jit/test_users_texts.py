"""Texts as users have them: any names of their own, kernels without extern "C", lines as they count."""

import pytest

import gpuinterop as gi
from gpuinterop import jit
from gpuinterop.arrays.dtypes import NAMES
from gpuinterop.elementwise.codegen import KernelSpec, render
from gpuinterop.errors import CompileError
from gpuinterop.fusion.builder import CudaText, Expression
from gpuinterop.fusion.codegen import ElementwiseOperation
from gpuinterop.jit.nvrtc import kernels_in, symbol_of

MULTIPLY = """
__global__ void multiply_them(float *dest, float *a, float *b)
{
  const int i = threadIdx.x;
  dest[i] = a[i] * b[i];
}
"""
MANY = """
__device__ __noinline__ float add(float x) { return x + 1; }
__global__ void scale(float *x) { x[0] = add(x[0]); }
__global__ void scale(double *x) { x[0] *= 2; }
template <class T> __global__ void fill(T *x) { x[0] = 1; }
template __global__ void fill<float>(float *);
namespace inner { __global__ void fill(int *x) { x[0] = 1; } }
extern "C" __global__ void plain(float *x) { x[0] = 2; }
"""
PTX = 999  # newer than any compiler

pytestmark = pytest.mark.usefixtures("nvrtc")


@pytest.mark.parametrize("arch", [90, PTX])
def test_kernels_are_read_from_machine_code(arch):
    code = jit.compile_source(MANY, arch)
    assert kernels_in(code) == [
        "_Z4fillIfEvPT_", "_Z5scalePd", "_Z5scalePf", "_ZN5inner4fillEPi", "plain",
    ]  # fmt: skip


@pytest.mark.parametrize("arch", [90, PTX])
def test_a_kernel_is_found_by_its_plain_name(arch):
    code = jit.compile_source(MULTIPLY, arch)
    assert symbol_of("multiply_them", code, MULTIPLY) == "_Z13multiply_themPfS_S_"
    many = jit.compile_source(MANY, arch)
    assert symbol_of("plain", many, MANY) == "plain"
    assert symbol_of("fill", many, MANY) == "_Z4fillIfEvPT_"
    assert symbol_of("_Z5scalePd", many, MANY) == "_Z5scalePd"


def test_names_that_are_several_kernels_or_none():
    for name, said in {
        "scale": "_Z5scalePd, _Z5scalePf",
        "scal": "_Z4fillIfEvPT_, _Z5scalePd",
        "add": "_Z4fillIfEvPT_",
    }.items():
        with pytest.raises(CompileError) as caught:
            gi.RawKernel(MANY, name).compile(90)
        assert said in caught.value.got


def test_invalid_machine_code_is_passed_to_the_driver():
    for code in (b"", b"\x7fELF of another driver", b"FAKECUDA:x"):
        assert symbol_of("k", code, "") == "k"


STRIDED = """
extern "C" __global__ void k(gpuinterop_strided<float, 2> x) {
  x(0, 1) = MORE;
}
"""


@pytest.mark.parametrize("name", ["N", "I", "d", "at", "index", "d="])  # fmt: skip
def test_any_macro_may_be_an_option(name):
    define = f"-D{name}" if name.endswith("=") else f"-D{name}=4"
    gi.RawKernel(MULTIPLY, "multiply_them", (define,)).compile(90)
    gi.RawKernel(STRIDED, "k", (define, "-DMORE=1")).compile(90)
    gi.RawKernel(STRIDED, "k", (f"-D{name.strip('=')}=", "-DMORE=1")).compile(90)


def test_members_of_a_strided_argument():
    text = STRIDED.replace("MORE", "x.shape[0] + *x.data + x.strides[1]")
    gi.RawKernel(text, "k").compile(90)
    with pytest.raises(CompileError, match=r"k.cu\(3\): error.*\n\s+x\(0, 1\) = data;"):
        gi.RawKernel(STRIDED.replace("MORE", "data"), "k").compile(90)


def program(operation: str, preamble: str = "", dtype: str = "float32", layout: str = "flat"):
    graph = Expression()
    graph.results = [graph.cuda(CudaText("T x", "T y", operation, "user", preamble), graph.input())]
    body = ElementwiseOperation("user", graph).body((NAMES.index(dtype),))
    spec = KernelSpec(body, (dtype, dtype), "CC", layout, int(layout == "general"), 1, 1)
    return render(spec)


PREAMBLES = {
    "macros": "#define n 5\n#define data\n#define count 3\n#define V 2\n#define k (\n#define at )",
    "types": "struct f16 { int a; };\nstruct c64 { float a, b; };\ntypedef unsigned long u64;\n"
             "struct u128 {};\nstruct bf16 {};\nstruct b8 {};\ntypedef double i32;",
    "functions": "__device__ float more(float v) { return v + 1; }\n"
                 "template <class A> __device__ A gi_read(A v) { return v; }",
}  # fmt: skip


@pytest.mark.parametrize("layout", ["flat", "general"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "complex64", "bool"])
@pytest.mark.parametrize("kind", PREAMBLES)
def test_a_preamble_may_have_any_names(kind, dtype, layout):
    text = program("y = x", PREAMBLES[kind], dtype, layout)
    code = jit.compile_source(text, 90, name="user.cu")
    assert len(kernels_in(code)) == 1


def test_an_error_in_a_preamble_shows_the_line_of_the_preamble():
    preamble = "__device__ float f(float v) {\n  return oops;\n}"
    with pytest.raises(CompileError, match=r"\n\s+return oops;") as raised:
        jit.compile_source(program("y = f(x)", preamble), 90, name="user.cu")
    assert "user.preamble(2)" in raised.value.got


@pytest.mark.parametrize("comment", ["", "  // twice", "\n// twice"])
def test_an_error_in_an_operation_shows_its_line(comment):
    assert jit.compile_source(program(f"y = 2 * x{comment}"), 90)  # it may end with a comment
    with pytest.raises(CompileError, match=r"user\(2\): error.*\n\s+y = oops"):
        jit.compile_source(
            program(f"T z = x;\ny = oops{comment}", "#define n 5"), 90, name="user.cu"
        )

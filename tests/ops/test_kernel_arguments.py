"""What kernels of one's own take: numbers, arrays, texts; and what they refuse beforehand."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, ShapeError

TWICE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


@pytest.mark.parametrize(
    ("declared", "numbers", "dtype"),
    [("float32 a, float32 b", (2.0, 3.0), "float32"), ("int32 a, int64 b", (2, 3), "int64"),
     ("float32 a, float32 b", (2, np.float64(3)), "float32"), ("T a, T b", (2.0, 3), "float32"),
     ("T a, T b", (2, 3), "float32"), ("T a, T b", (np.int16(2), 3), "int16"),
     ("T a, T b", (np.float32(2), np.float64(3)), "float64"), ("float16 a, T b", (2, 3), "float32"),
     ("bool a, uint8 b", (True, 3), "uint8"), ("int32 a, T b", (np.asarray(2), 3.0), "float32")],
)  # fmt: skip
def test_numbers_alone(device, declared, numbers, dtype):
    second = declared.split()[2]
    kernel = gi.ElementwiseKernel(declared, f"{second} z", "z = a + b", host=lambda a, b: a + b)
    found = kernel(*numbers)
    assert found.dtype == dtype
    assert found.item() == sum(int(n) for n in numbers)
    with pytest.raises(gi.DTypeError, match="parameter b"):
        kernel(numbers[0], 1j)


def test_one_number_alone(device):
    kernel = gi.ElementwiseKernel("int32 n", "int32 z", "z = 2 * n", host=lambda n: 2 * n)
    assert kernel(2).item() == 4
    for number in (2**40, float("nan")):
        with pytest.raises(gi.DTypeError, match="parameter n"):
            kernel(number)


def test_readonly_arrays_are_refused(device):
    x = gi.asarray(np.ones((3, 4), np.float32), device=device)
    frozen = x.view()
    frozen.flags.writeable = False
    spread = gi.ones((1, 4), device=device).broadcast_to((3, 4))
    kernel = gi.RawKernel(TWICE, "twice")
    anywhere = gi.RawKernel(TWICE, "twice", any_strides=True)
    for refusing, argument in (
        (kernel, frozen), (kernel, gi.strided(frozen)), (kernel, gi.strided(spread)),
        (anywhere, frozen), (anywhere, spread),
    ):  # fmt: skip
        with pytest.raises(
            gi.ReadOnlyError, match=r"a kernel may write.*\n.*\n.*allow_readonly=True"
        ):
            refusing((1,), (1,), argument)
    reading = gi.RawKernel("", "k", any_strides=True, allow_readonly=True)
    if device == "cpu":
        for argument in (frozen, spread, gi.strided(spread)):
            with pytest.raises(gi.DeviceError):  # the next question
                reading((1,), (1,), argument)


@pytest.mark.gpu
def test_a_readonly_array_is_read():
    text = "__global__ void sum(const float* x, float* to) { *to = x[0] + x[1]; }"
    x, to = gi.ones(2, device="cuda:0"), gi.zeros(1, device="cuda:0")
    x.flags.writeable = False
    gi.RawKernel(text, "sum", allow_readonly=True)((1,), (1,), x, to)
    assert to.tolist() == [2]


@pytest.mark.gpu
def test_a_kernel_as_pycudas_documentation_has_it():
    text = """
__global__ void multiply_them(float *dest, float *a, float *b)
{
  const int i = threadIdx.x;
  dest[i] = a[i] * b[i];
}
"""
    a, b, dest = (
        gi.asarray(np.arange(400) + i, dtype="float32", device="cuda:0") for i in range(3)
    )
    multiply = gi.RawKernel(text, "multiply_them")
    multiply(dest, a, b, block=(400, 1, 1), grid=(1, 1))
    assert dest.tolist() == (np.arange(400) * np.arange(1, 401)).tolist()
    safe = gi.converters.pycuda.kernel(multiply, copyif=True)
    safe(dest, a[::-1], b, block=(400, 1, 1))
    assert dest.tolist() == (np.arange(400)[::-1] * np.arange(1, 401)).tolist()


def test_a_wrong_number_of_operands_is_answered_with_the_declared_names():
    axpy = gi.ElementwiseKernel(
        "float32 a, float32 x, float32 y", "float32 z", "z = a * x + y", "axpy",
        host=lambda a, x, y: a * x + y,
    )  # fmt: skip
    with pytest.raises(ArgumentTypeError) as caught:
        axpy(2, gi.ones(3, device="cpu"))
    assert caught.value.fix == "call axpy(a, x, y)"


@pytest.mark.gpu
def test_wrong_arguments_are_refused_before_the_launch():
    text = 'extern "C" __global__ void scale(float* x, double by) { *x *= by; }'
    x = gi.ones(4, device="cuda:0")
    scale = gi.RawKernel(text, "scale")
    scale((1,), (1,), x, np.float64(3))
    for arguments, got in (((x,), "1 argument of 8 bytes"), ((x, np.float32(4)), "8 and 4 bytes"),
                           ((x, np.float64(4), x), "3 arguments")):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match=rf"2 arguments of 8 and 8 bytes\n.*{got}"):
            scale((1,), (1,), *arguments)
    by_value = 'extern "C" __global__ void k(gpuinterop_strided<float, 2> x, bool b, short s) {}'
    wide = x.reshape(2, 2)
    gi.RawKernel(by_value, "k")((1,), (1,), gi.strided(wide), np.bool_(True), np.int16(2))
    with pytest.raises(ArgumentTypeError, match="of 40, 1 and 2 bytes"):
        gi.RawKernel(by_value, "k")((1,), (1,), gi.strided(x), np.bool_(True), np.int16(2))
    with pytest.raises(ShapeError, match="at most 1024 threads"):
        scale((1,), (2000,), x, np.float64(1))
    gi.RawKernel('extern "C" __global__ void empty() {}', "empty")((1,), (1,))
    gi.synchronize()
    assert x.tolist() == [3, 1, 1, 1]


@pytest.mark.gpu
def test_a_preamble_with_any_names_computes():
    kernel = gi.ElementwiseKernel(
        "float32 x, int32 m", "float32 z", "f16 two = {2}; z = two.a * more(x) + n + m", "mine",
        "#define n 5\n#define data\nstruct f16 { int a; };\n"
        "__device__ float more(float v) { return v + 1; }",
    )  # fmt: skip
    x = gi.asarray(np.arange(1000), dtype="float32", device="cuda:0")
    assert kernel(x, 7).tolist() == (2 * (np.arange(1000) + 1) + 12).tolist()
    assert kernel(x[::-3], 7).tolist() == (2 * (np.arange(1000)[::-3] + 1) + 12).tolist()


@pytest.mark.parametrize("bad", ["\0", "\ud800"])
def test_texts_that_the_compiler_cannot_be_given(bad):
    for arguments in (
        (f"text\n{bad}", "k"), ("text", f"k{bad}"), ("text", "k", (f"-DA{bad}",)),
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match="RawKernel: expected text of whole characters"):
            gi.RawKernel(*arguments)
    with pytest.raises(
        ArgumentTypeError, match=r"ElementwiseKernel: expected text .* as operation"
    ):
        gi.ElementwiseKernel("T x", "T y", f"y = x{bad}")
    with pytest.raises(ArgumentTypeError, match=r"as preamble\n.*in line 3"):
        gi.ElementwiseKernel("T x", "T y", "y = x", preamble=f"\n\n{bad}")


def test_options_may_be_left_out():
    assert gi.RawKernel("text", "k", None).options == ()
    for options in (3, "-G", [3], [None]):
        with pytest.raises(ArgumentTypeError, match="option"):
            gi.RawKernel("text", "k", options)
    for name in ("", "k k", "f<float>", 'k"', "3k"):
        with pytest.raises(ArgumentTypeError, match="the name of a kernel"):
            gi.RawKernel("text", name)


def test_arguments_that_are_no_arrays_of_ours(device):
    x = gi.ones(3, device=device)
    kernel = gi.RawKernel(TWICE, "twice")
    told = {
        "gpuinterop.asarray": [np.ones(3)], "numpy.float32(2.5)": [2.5], "numpy.int32(5)": [5],
        "numpy.bool_(True)": [True], "numpy.complex64(1j)": [1j], "pass arrays and": [None, "x"],
    }  # fmt: skip
    torch = sys.modules.get("torch")
    if torch is not None:
        told["gpuinterop.asarray"].append(torch.ones(3))
    for fix, values in told.items():
        for value in values:
            with pytest.raises(ArgumentTypeError, match=re.escape(fix)):
                kernel((1,), (1,), x, value)

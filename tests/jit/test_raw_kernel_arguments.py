"""Whole kernels: compiled text, strided arguments, and what is refused before the launch."""

import gc
import weakref

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, ContiguityError

SCALE = """
extern "C" __global__ void scale(gpuinterop_strided<float, 2> x, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < x.shape[0] * x.shape[1]) x(i / x.shape[1], i % x.shape[1]) *= by;
}
"""
TWICE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


def test_text_compiles_for_any_architecture(nvrtc):
    kernel = gi.RawKernel(SCALE, "scale")
    assert kernel.compile(90).startswith(b"\x7fELF")
    # A device newer than the compiler gets PTX.
    assert kernel.compile(999).startswith(b"//")


@pytest.mark.parametrize(
    "arguments",
    [(3, "k"), ("text", 3), ("text", "k", "-G"), ("text", "k", 3), ("text", "k", [3]), ("text", "k", [None]),
     ("text\0", "k"), ("text\ud800", "k"), ("text", "k\0"), ("text", "k", ("-DA\0",)), ("text", ""),
     ("text", "k k"), ("text", "f<float>"), ("text", "3k")],
)  # fmt: skip
def test_wrong_texts_names_and_options(arguments):
    with pytest.raises(ArgumentTypeError):
        gi.RawKernel(*arguments)
    assert gi.RawKernel("text", "k", None).options == ()


def test_arguments_that_need_a_conversion_name_it(device):
    x = gi.ones((2, 2), device=device)
    for value in (np.ones(3), 2.5, 5, True, 1j, None, "x", 2**64):
        with pytest.raises(ArgumentTypeError, match=r"gpuinterop.asarray\(x\).*numpy.float32"):
            gi.RawKernel(SCALE, "scale")((1,), (32,), x, value)
    if device == "cpu":
        with pytest.raises(gi.DeviceError):
            gi.RawKernel(SCALE, "scale")((1,), (32,), x)
    with pytest.raises(ArgumentTypeError, match="strided"):
        gi.strided(3)


def test_invalid_launch_is_refused(device):
    x = gi.GpuArray(np.ones((3, 4), np.float32), device=device)
    kernel = gi.RawKernel(TWICE, "twice")
    for strided in (x.T, x[:, ::2]):
        with pytest.raises(ContiguityError, match=r"gpuinterop\.strided\(x\)"):
            kernel((1,), (32,), strided)
    for wrong in (lambda: kernel(x), lambda: kernel("a", (32,), x), lambda: kernel((1,), (2.5,), x),
                  lambda: kernel((1,), (32,), x, stream=3)):  # fmt: skip
        with pytest.raises(ArgumentTypeError):
            wrong()
    for shared in (-1, "a", True, 1.5, 2**31, 2**32):
        with pytest.raises(ArgumentTypeError, match="shared"):
            kernel((1,), (32,), x, shared=shared)


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
        with pytest.raises(gi.ReadOnlyError, match="allow_readonly=True"):
            refusing((1,), (1,), argument)
    reading = gi.RawKernel("", "k", any_strides=True, allow_readonly=True)
    if device == "cpu":
        for argument in (frozen, spread, gi.strided(spread)):
            with pytest.raises(gi.DeviceError):  # the next question
                reading((1,), (1,), argument)


def test_operations_are_released_with_their_kernel(device):
    x = gi.asarray(np.arange(3, dtype="float32"), device=device)
    kept = gi.fuse(lambda x: x * 2)
    kept(x)
    graph = gi.capture(gi.fuse(lambda x: x + 7), x)
    gc.collect()
    made = []
    for i in range(5):
        big = gi.ones(3, device=device)
        function = gi.fuse(lambda x, big=big, i=i: (x + big) * i)
        assert function(x).tolist() == [i, 2 * i, 3 * i]
        kernel = gi.ElementwiseKernel(
            "float32 x", "float32 y", f"y = x * {i}", "add", host=lambda x, i=i: x * i
        )  # fmt: skip
        assert kernel(x).tolist() == [0, i, 2 * i]
        made += map(weakref.ref, (big, function, kernel))
    assert (x + x).tolist() == [0, 2, 4]  # a kernel may have the name of an operation
    del function, kernel, big
    gc.collect()
    assert not any(reference() for reference in made)
    assert kept(x).tolist() == [0, 2, 4]
    assert graph().tolist() == [7, 8, 9]


@pytest.mark.gpu
def test_launches_as_pycuda_and_cupy_write_them():
    text = "__global__ void multiply(float *to, float *a, float *b) { int i = threadIdx.x; to[i] = a[i] * b[i]; }"
    a, b, to = (gi.asarray(np.arange(400) + i, dtype="float32", device="cuda:0") for i in range(3))
    multiply = gi.RawKernel(text, "multiply")
    multiply(to, a, b, block=(400, 1, 1), grid=(1, 1))
    assert to.tolist() == (np.arange(400) * np.arange(1, 401)).tolist()
    safe = gi.converters.pycuda.kernel(multiply, copyif=True)
    safe(to, a[::-1], b, block=(400, 1, 1))
    assert to.tolist() == (np.arange(400)[::-1] * np.arange(1, 401)).tolist()

    x = gi.ones(32, device="cuda:0")
    twice = gi.RawKernel(TWICE, "twice")
    twice((1,), (32,), (x,))
    twice(1, 32, x)
    gi.RawKernel(TWICE, "twice", any_strides=True)((1,), (1,), x[::-8])
    assert x.tolist() == [4.0] * 31 + [8.0]


@pytest.mark.gpu
def test_strided_and_readonly_arguments():
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = gi.CudaNdarray(host, device="cuda:0")
    gi.RawKernel(SCALE, "scale")((1,), (32,), gi.strided(x[::-1, ::2]), np.float32(2))
    host[::-1, ::2] *= 2
    np.testing.assert_array_equal(x.get(), host)
    text = "__global__ void sum(const float* x, float* to) { *to = x[0] + x[1]; }"
    x, to = gi.ones(2, device="cuda:0"), gi.zeros(1, device="cuda:0")
    x.flags.writeable = False
    gi.RawKernel(text, "sum", allow_readonly=True)((1,), (1,), x, to)
    assert to.tolist() == [2]

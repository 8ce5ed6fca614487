"""Whole kernels: compiled text, strided arguments, errors that show the line."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import jit
from gpuinterop.errors import CompileError, LibraryNotFoundError

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


def test_an_error_in_an_elementwise_expression_shows_it(nvrtc):
    from gpuinterop.jit.codegen import render
    from gpuinterop.jit.spec import KernelSpec
    from gpuinterop.ops.kernel import _Expression

    expression = _Expression("mine", [("T", "x")], [("T", "y")], "y = x +* 2", "", None)
    body = expression.body((10,))
    spec = KernelSpec(body, ("float32", "float32"), "CC", "flat", 0, 4, 1, False)
    with pytest.raises(CompileError, match=r">\s+1 \| y = x \+\* 2;"):
        jit.compile_source(render(spec), 90, name="mine.cu")


def test_numbers_need_a_size(device):
    x = gi.CudaNdarray(np.ones((2, 2), np.float32), device=device)
    with pytest.raises(TypeError, match=r"numpy\.int32\(5\)"):
        gi.RawKernel(SCALE, "scale")((1,), (32,), x, 5)
    if device == "cpu":
        with pytest.raises(ValueError, match="CUDA device"):
            gi.RawKernel(SCALE, "scale")((1,), (32,), x)


@pytest.mark.gpu
def test_a_strided_kernel_copies_nothing():
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = gi.CudaNdarray(host, device="cuda:0")
    gi.RawKernel(SCALE, "scale")((1,), (32,), gi.strided(x[::-1, ::2]), np.float32(2))
    expected = host.copy()
    expected[::-1, ::2] *= 2
    np.testing.assert_array_equal(x.get(), expected)
